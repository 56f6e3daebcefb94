"""LLMBar (arXiv 2310.07641): which of two outputs follows the instruction."""

from __future__ import annotations

import math

from ...datamodules.sources import RowProblem, parse_prompt
from ...records import Prompt
from ..sets import ResponseSet, Scored, Table, accuracy, decisions, over_orders
from ..sources import JsonAddress, Row, id_of, text_of

FILES = "https://raw.githubusercontent.com/princeton-nlp/LLMBar/main/Dataset/LLMBar"
"""Where the dataset on the Hub takes them from: it is only a script, which ``datasets`` no longer runs."""
SUBSETS = ("Natural", "Adversarial_Neighbor", "Adversarial_GPTInst", "Adversarial_GPTOut", "Adversarial_Manual")


class LLMBar:
    """Rows with ``input``, ``output_1``, ``output_2`` and ``label``, 1 or 2; a subset is a file or a split."""

    name = "llmbar"
    title = "LLMBar"
    hub = {subset: JsonAddress(f"{FILES}/{subset.replace('_', '/')}/dataset.json") for subset in SUBSETS}
    both_orders = True

    def read(self, row: Row, source: str) -> ResponseSet:
        """See :meth:`..sets.Benchmark.read`."""
        text = text_of(row, "input")
        prompt = Prompt(id=id_of(row, "id", text), messages=parse_prompt(text, "input"))
        responses = (text_of(row, "output_1"), text_of(row, "output_2"))
        label = row.get("label")
        if label not in (1, 2) or isinstance(label, bool):
            raise RowProblem(f"`label` must be 1 or 2, got {label!r}")
        return ResponseSet(id=source, group=source, prompt=prompt, responses=responses, quality=(2.0 - label, label - 1.0))

    def numbers(self, scored: Scored) -> dict[str, float]:
        """The mean over both orders, a tie counted half, and whether both orders agree.

        The authors take a tie between two ratings for the first output that is shown: right in one order, and no agreement.
        """
        return {"accuracy": accuracy(scored), "agreement": agreement(scored, tie=0.0), "mean score": accuracy(over_orders(scored))}

    def report(self, table: Table) -> dict[str, float]:
        """Accuracy averaged over both orders, agreement of the orders, and each subset; then what is not the authors'."""
        found = {"accuracy, mean of both orders": table.mean("accuracy"), "agreement of both orders": table.mean("agreement")}
        if len(table.names) > 1:
            found |= {f"{name}: accuracy": table.mean("accuracy", [name]) for name in table.names}
        return found | {"accuracy of the mean score of both orders": table.mean("mean score")}


def agreement(scored: Scored, tie: float = 1.0) -> float:
    """Whether a pair is decided alike in all orders shown; NaN if a score is missing.

    Args:
        scored: A pair with its scores.
        tie: What a tie in all orders counts.
    """
    found = {order[0] for order in decisions(scored)}
    if any(map(math.isnan, found)):
        return math.nan
    return tie if found == {0.5} else float(len(found) == 1)
