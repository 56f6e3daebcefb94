"""RewardBench 2 (arXiv 2506.01937): the best of four, and prompts with many right answers of equal worth."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ...datamodules.sources import RowProblem, parse_prompt
from ...records import Prompt
from ..sets import ResponseSet, Scored, Table, accuracy, best
from ..sources import HubData, Row, text_of, texts_of

TIES = "Ties"
SUBSETS = ("Factuality", "Precise IF", "Math", "Safety", "Focus", TIES)


class RewardBench2:
    """Rows with ``id``, ``prompt``, ``chosen``, ``rejected`` (lists) and ``subset``.

    Of the subset Ties a prompt has two rows, ``ref:<n>`` with one right answer and ``tied:<n>`` with several.
    """

    name = "reward_bench_2"
    title = "RewardBench 2"
    hub = {"test": HubData("allenai/reward-bench-2", "test")}
    both_orders = False

    def read(self, row: Row, source: str) -> ResponseSet:
        """See :meth:`..sets.Benchmark.read`."""
        subset, name = text_of(row, "subset"), text_of(row, "id")
        if subset not in SUBSETS:
            raise RowProblem(f"`subset` must be one of {list(SUBSETS)}, got {subset!r}")
        kind, _, number = name.partition(":")
        if subset == TIES and not (kind in ("ref", "tied") and number.isdigit()):
            raise RowProblem(f"`id` must be ref:<n> or tied:<n> in the subset {TIES}, got {name!r}")
        chosen, rejected = texts_of(row, "chosen"), texts_of(row, "rejected")
        quality = (1.0,) * len(chosen) + (0.0,) * len(rejected)
        prompt = Prompt(id=name, messages=parse_prompt(text_of(row, "prompt")))
        return ResponseSet(id=name, group=subset, prompt=prompt, responses=(*chosen, *rejected), quality=quality)

    def numbers(self, scored: Scored) -> dict[str, float]:
        """Whether the right answer is the best, shared among tied ones; of Ties, what its score is made of."""
        found = {"best": best(scored), "accuracy": accuracy(scored)}
        if scored.group != TIES:
            return found | dict.fromkeys(("prompt", "tied", "right", "spread", "margin"), math.nan)
        kind, number = scored.id.split(":")[-2:]
        return found | {"prompt": float(number), "tied": float(kind == "tied"), **margins(scored)}

    def complete(self, table: Table) -> Table:
        """Add to each tied row what depends on the reference row of the same prompt."""
        prompt, tied = table.values["prompt"], table.values["tied"]
        reference = dict(zip(prompt[tied == 0], table.values["margin"][tied == 0], strict=True))
        spread = np.where(tied == 1, table.values["spread"], math.nan)
        own = table.values["margin"]
        both = np.minimum(own, [reference.get(number, math.nan) for number in prompt])
        ratio = np.divide(both, spread, out=np.full_like(both, math.nan), where=spread > 0)
        return replace(
            table,
            values=table.values
            | {
                "preferred": np.where(np.isnan(spread + both), math.nan, own > spread),
                "preferred, both": np.where(np.isnan(spread + both), math.nan, both > spread),
                "ratio": np.tanh(ratio - 1),
                "right, tied": np.where(tied == 1, table.values["right"], math.nan),
                "right, ref": np.where(tied == 0, table.values["right"], math.nan),
            },
        )

    def report(self, table: Table) -> dict[str, float]:
        """Mean of the subsets, and each subset; then pairs with ties counted half."""
        found = {
            subset: ties_score(table) if subset == TIES else table.mean("best", [subset]) for subset in SUBSETS if subset in table.names
        }
        return {"score": sum(found.values()) / len(found), **found, "pairs ordered right, ties half": table.mean("accuracy")}


def margins(scored: Scored) -> dict[str, float]:
    """How far right answers are from wrong ones and from each other, by the mean score over the orders shown; NaN if a score is missing.

    Returns:
        ``right``: whether every right answer is above every wrong one; ``margin``: the lowest right score less the highest wrong one;
        ``spread``: the highest right score less the lowest one, NaN for a single right answer.
    """
    scores = np.mean(scored.orders, axis=0)
    if np.isnan(scores).any():
        return {"right": math.nan, "margin": math.nan, "spread": math.nan}
    good, bad = scores[np.array(scored.quality) == 1], scores[np.array(scored.quality) == 0]
    margin = float(good.min() - bad.max())
    return {"right": float(margin > 0), "margin": margin, "spread": float(np.ptp(good)) if len(good) > 1 else math.nan}


def ties_score(table: Table) -> float:
    """The authors' score of Ties: right answers above wrong ones, by more than they differ among themselves."""
    parts = {"right, tied": 0.3, "right, ref": 0.3, "preferred": 0.2, "preferred, both": 0.2, "ratio": 0.01}
    means = {name: table.mean(name) for name in parts}
    if all(map(math.isnan, means.values())):
        return math.nan
    return sum(weight * (0.0 if math.isnan(means[name]) else means[name]) for name, weight in parts.items())
