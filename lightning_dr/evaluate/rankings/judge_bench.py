"""JudgeBench (arXiv 2410.12784): which of two answers to a hard question is correct."""

from __future__ import annotations

import math

from ...datamodules.sources import RowProblem, parse_prompt
from ...records import Prompt
from ..sets import ResponseSet, Scored, Table, accuracy, decisions, over_orders
from ..sources import HubData, Row, text_of
from .llmbar import agreement

CATEGORIES = {"mmlu-pro": "Knowledge", "livebench-reasoning": "Reasoning", "livebench-math": "Math", "livecodebench": "Coding"}
"""Beginning of ``source`` -> what the authors call it."""
LABELS = {"A>B": (1.0, 0.0), "B>A": (0.0, 1.0)}


class JudgeBench:
    """Rows with ``pair_id``, ``question``, ``response_A``, ``response_B``, ``source`` and ``label``, ``A>B`` or ``B>A``."""

    name = "judge_bench"
    title = "JudgeBench"
    hub = {split: HubData("ScalerLab/JudgeBench", split) for split in ("gpt", "claude")}
    both_orders = True

    def read(self, row: Row, source: str) -> ResponseSet:
        """See :meth:`..sets.Benchmark.read`."""
        prompt = Prompt(id=text_of(row, "pair_id"), messages=parse_prompt(text_of(row, "question"), "question"))
        responses = (text_of(row, "response_A"), text_of(row, "response_B"))
        label, of = text_of(row, "label"), text_of(row, "source")
        if label not in LABELS:
            raise RowProblem(f"`label` must be 'A>B' or 'B>A', got {label!r}")
        group = next((category for start, category in CATEGORIES.items() if of.startswith(start)), None)
        if group is None:
            raise RowProblem(f"`source` must begin with one of {list(CATEGORIES)}, got {of!r}")
        return ResponseSet(id=prompt.id, group=group, prompt=prompt, responses=responses, quality=LABELS[label])

    def numbers(self, scored: Scored) -> dict[str, float]:
        """Whether the two orders together say what is correct."""
        return {
            "correct": correct(scored),
            "accuracy": accuracy(scored),
            "inconsistent": 1 - agreement(scored),
            "mean score": accuracy(over_orders(scored)),
        }

    def report(self, table: Table) -> dict[str, float]:
        """Correct over both orders, overall and by category, and the share that the order changes; then what is not the authors'."""
        found = {"correct over both orders": table.mean("correct")}
        found |= {f"{name}: correct over both orders": table.mean("correct", [name]) for name in table.names}
        found |= {"inconsistent between orders": table.mean("inconsistent")}
        found |= {"accuracy, mean of both orders, ties half": table.mean("accuracy")}
        return found | {"accuracy of the mean score of both orders": table.mean("mean score")}


def correct(scored: Scored) -> float:
    """1 if the orders, of which a right one counts +1, a wrong one −1 and a tie 0, add up to more than 0; NaN if a score is missing.

    So a judge that changes its mind with the order is not correct, nor is one that sees a tie twice.
    """
    found = sum(2 * order[0] - 1 for order in decisions(scored))
    return math.nan if math.isnan(found) else float(found > 0)
