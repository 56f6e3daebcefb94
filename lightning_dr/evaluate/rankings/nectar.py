"""Ranked lists in the schema of Nectar."""

from __future__ import annotations

import math

from ...datamodules.nectar import parse_answers
from ...datamodules.sources import RowProblem, parse_prompt
from ...records import Prompt
from ..sets import ResponseSet, Scored, Table, accuracy, best, strict
from ..sources import HubData, Row, id_of, text_of


class RankedLists:
    """Rows with ``prompt`` and ``answers``, a list of ``{answer, rank}``; rank 1 is best, equal ranks are not ordered."""

    name = "nectar"
    title = "Ranked lists"
    hub = {"train": HubData("berkeley-nest/Nectar", "train")}
    both_orders = False

    def read(self, row: Row, source: str) -> ResponseSet:
        """See :meth:`..sets.Benchmark.read`."""
        text = text_of(row, "prompt")
        prompt = Prompt(id=id_of(row, "id", text), messages=parse_prompt(text))
        pairs = parse_answers(row.get("answers"))
        quality = tuple(-rank for _, rank in pairs)
        if not any(strict(one, other) for one in quality for other in quality):
            raise RowProblem("`answers` has no two answers of different rank")
        responses = tuple(answer for answer, _ in pairs)
        return ResponseSet(id=prompt.id, group=source, prompt=prompt, responses=responses, quality=quality)

    def numbers(self, scored: Scored) -> dict[str, float]:
        """Share of the ordered pairs, and whether the answer of the best rank is scored highest."""
        highest = max(quality for quality in scored.quality if not math.isnan(quality))
        first = tuple(float(quality == highest) for quality in scored.quality)
        top = Scored(id=scored.id, group=scored.group, quality=first, orders=scored.orders)
        return {"accuracy": accuracy(scored), "best": best(top)}

    def report(self, table: Table) -> dict[str, float]:
        """Means over lists."""
        return {"pairs ordered right, ties half": table.mean("accuracy"), "best answer scored highest": table.mean("best")}
