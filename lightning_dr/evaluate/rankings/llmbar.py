"""LLMBar (arXiv 2310.07641): which of two outputs follows the instruction."""

from __future__ import annotations

import math

from ...datamodules.sources import RowProblem, parse_prompt
from ...records import Prompt
from ..sets import ResponseSet, Scored, Table, accuracy, decisions, over_orders
from ..sources import HubData, Row, text_of

SUBSETS = ("Natural", "Adversarial_Neighbor", "Adversarial_GPTInst", "Adversarial_GPTOut", "Adversarial_Manual")


class LLMBar:
    """Rows with ``input``, ``output_1``, ``output_2`` and ``label``, 1 or 2; a subset is a file or a split."""

    name = "llmbar"
    title = "LLMBar"
    # The dataset's own loader is a script, which `datasets` no longer runs; the Hub keeps a copy in parquet.
    hub = {subset: HubData("princeton-nlp/LLMBar", subset, "LLMBar", "refs/convert/parquet") for subset in SUBSETS}
    both_orders = True

    def read(self, row: Row, source: str) -> ResponseSet:
        """See :meth:`..sets.Benchmark.read`."""
        prompt = Prompt(id=source, messages=parse_prompt(text_of(row, "input"), "input"))
        responses = (text_of(row, "output_1"), text_of(row, "output_2"))
        label = row.get("label")
        if label not in (1, 2):
            raise RowProblem(f"`label` must be 1 or 2, got {label!r}")
        return ResponseSet(id=source, group=source, prompt=prompt, responses=responses, quality=(2.0 - label, label - 1.0))

    def numbers(self, scored: Scored) -> dict[str, float]:
        """The mean over both orders, a tie counted half, and whether both orders agree."""
        return {"accuracy": accuracy(scored), "agreement": agreement(scored), "mean score": accuracy(over_orders(scored))}

    def report(self, table: Table) -> dict[str, float]:
        """Accuracy averaged over both orders, agreement of the orders, and each subset; then what is not the authors'."""
        found = {"accuracy, mean of both orders": table.mean("accuracy"), "agreement of both orders": table.mean("agreement")}
        if len(table.names) > 1:
            found |= {f"{name}: accuracy": table.mean("accuracy", [name]) for name in table.names}
        return found | {"accuracy of the mean score of both orders": table.mean("mean score")}


def agreement(scored: Scored) -> float:
    """Whether a pair is decided alike in all orders shown; NaN if a score is missing."""
    found = [order[0] for order in decisions(scored)]
    return math.nan if any(map(math.isnan, found)) else float(len(set(found)) == 1)
