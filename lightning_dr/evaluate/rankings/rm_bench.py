"""RM-Bench (arXiv 2410.16184): a subtle error against style, in a matrix of three styles of right and of wrong answers."""

from __future__ import annotations

import math

import numpy as np

from ...datamodules.sources import RowProblem, parse_prompt
from ...records import Prompt
from ..sets import ResponseSet, Scored, Table, decide
from ..sources import HubData, Row, id_of, text_of, texts_of

STYLES = 3
"""Concise, detailed, detailed with markdown."""
DOMAINS = {"chat": "chat", "code": "code", "math": "math", "safety-refuse": "safety", "safety-response": "safety"}
LEVELS = ("easy", "normal", "hard")


class RMBench:
    """Rows with ``prompt``, ``chosen`` and ``rejected`` (three each), and ``domain`` or a file such as ``chat_filtered.json``.

    The six answers are one response set.
    """

    name = "rm_bench"
    title = "RM-Bench"
    hub = {"total_dataset": HubData("THU-KEG/RM-Bench", "train")}
    both_orders = False

    def read(self, row: Row, source: str) -> ResponseSet:
        """See :meth:`..sets.Benchmark.read`."""
        text = text_of(row, "prompt")
        prompt = Prompt(id=id_of(row, "id", text), messages=parse_prompt(text))
        responses = (*texts_of(row, "chosen", STYLES), *texts_of(row, "rejected", STYLES))
        domain = row.get("domain") or source.removesuffix("_filtered")
        if domain not in tuple(DOMAINS):
            raise RowProblem(f"`domain` must be one of {list(DOMAINS)}, in the row or as the name of the file, got {domain!r}")
        quality = (1.0,) * STYLES + (0.0,) * STYLES
        return ResponseSet(id=f"{domain}:{prompt.id}", group=domain, prompt=prompt, responses=responses, quality=quality)

    def numbers(self, scored: Scored) -> dict[str, float]:
        """Shares of the matrix: a tie is wrong for the authors; with ``, ties half`` it counts half."""
        matrix = np.array(
            [[[decide(scores[i], scores[STYLES + j]) for j in range(STYLES)] for i in range(STYLES)] for scores in scored.orders]
        )
        if np.isnan(matrix).any():
            return {f"{level}{ties}": math.nan for ties in ("", ", ties half") for level in LEVELS}
        return levels(np.floor(matrix).mean(0)) | {f"{name}, ties half": value for name, value in levels(matrix.mean(0)).items()}

    def report(self, table: Table) -> dict[str, float]:
        """Mean over domains of each level, their mean, and the domains; the two kinds of safety are one domain of equal parts."""
        of_level = {level: over_domains(table, level) for level in LEVELS}
        found = {"average": mean(list(of_level.values())), **of_level}
        domains = list(dict.fromkeys(DOMAINS[name] for name in table.names))
        if len(domains) > 1:
            found |= {domain: mean([of_domain(table, domain, level) for level in LEVELS]) for domain in domains}
        return found | {"average, ties half": mean([over_domains(table, f"{level}, ties half") for level in LEVELS])}


def levels(matrix: np.ndarray) -> dict[str, float]:
    """Easy: the right answer has more style (below the diagonal); normal: as much; hard: less. ``[3, 3]``, right × wrong answers."""
    below, above = np.tril_indices(STYLES, -1), np.triu_indices(STYLES, 1)
    return {"easy": float(matrix[below].mean()), "normal": float(np.diag(matrix).mean()), "hard": float(matrix[above].mean())}


def of_domain(table: Table, domain: str, level: str) -> float:
    """Mean over the parts of a domain that are there."""
    return mean([table.mean(level, [name]) for name in table.names if DOMAINS[name] == domain])


def over_domains(table: Table, level: str) -> float:
    """Mean over the domains that are there."""
    return mean([of_domain(table, domain, level) for domain in dict.fromkeys(DOMAINS[name] for name in table.names)])


def mean(values: list[float]) -> float:
    """Mean of the values that exist."""
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan
