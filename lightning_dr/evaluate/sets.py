"""What a benchmark of evaluators is: response sets with a reference order, and the numbers that its authors report."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..experiments.statistics import Values, bootstrap
from ..gap import MeanInterval
from ..records import Prompt
from .sources import Named, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseSet:
    """The responses to one prompt, and their reference order."""

    id: str
    """Unique within a file, the same at every reading."""
    group: str
    """What its authors report apart: a subset, a category."""
    prompt: Prompt
    responses: tuple[str, ...]
    quality: tuple[float, ...]
    """Of each response: higher is better, NaN is unknown; equal ones are not ordered."""
    pairs: tuple[tuple[int, int], ...] = ()
    """The pairs that the authors count; none: all ordered ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What an evaluator gave to a response set."""

    id: str
    group: str
    quality: tuple[float, ...]
    pairs: tuple[tuple[int, int], ...] = ()
    orders: tuple[tuple[float, ...], ...]
    """Scores of the responses, in the order of ``quality``, for each order in which they were shown; NaN where one could not be judged."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Numbers of n rows, from which everything that is reported is computed."""

    group: NDArray[np.str_]
    """``[n]``"""
    values: dict[str, Values]
    """Name -> ``[n]``; NaN where a row has none."""
    names: tuple[str, ...]
    """All groups, in order: a resample may lack one."""

    def on(self, rows: NDArray[np.intp]) -> Table:
        """The same for other rows, such as a bootstrap resample."""
        return replace(self, group=self.group[rows], values={name: value[rows] for name, value in self.values.items()})

    def mean(self, name: str, groups: Iterable[str] | None = None) -> float:
        """Mean of a number over the rows that have it; of some groups, or of all. NaN where there is none."""
        values = self.values[name] if groups is None else self.values[name][np.isin(self.group, list(groups))]
        values = values[~np.isnan(values)]
        return float(values.mean()) if len(values) else math.nan


class Benchmark(Named, Protocol):
    """Turns official rows into response sets, and scores into what the authors report.

    One whose numbers depend on several rows has a method ``complete(table)``, which adds them to the table of all rows.
    """

    @property
    def both_orders(self) -> bool:
        """Whether the authors show each pair in both orders. Else the order is shuffled by the id of the row."""
        ...

    def read(self, row: Row, source: str) -> ResponseSet:
        """The response set of a row.

        Args:
            row: As in the official file.
            source: The key in ``hub``, or the name of the local file without its ending.

        Raises:
            RowProblem: If the row is bad; the message names the column.
            RowFiltered: If the authors leave the row out.
        """
        ...

    def numbers(self, scored: Scored) -> dict[str, float]:
        """What a row adds to the table; NaN where it could not be judged."""
        ...

    def report(self, table: Table) -> dict[str, float]:
        """What is reported, by name, in order: the same names for every table with the same ``names``."""
        ...


def decisions(scored: Scored) -> list[list[float]]:
    """How each pair that counts is decided, in each order shown: 1 right, 0 wrong, a half for a tie; NaN for a score that is missing."""
    pairs = scored.pairs or tuple(itertools.combinations(range(len(scored.quality)), 2))
    ordered = [
        (i, j) if scored.quality[i] > scored.quality[j] else (j, i) for i, j in pairs if strict(scored.quality[i], scored.quality[j])
    ]
    return [[decide(scores[i], scores[j]) for i, j in ordered] for scores in scored.orders]


def strict(one: float, other: float) -> bool:
    """Whether two qualities are known and differ."""
    return one > other or one < other


def decide(better: float, worse: float) -> float:
    """1 if the better response has the higher score, 0 if the lower one, a half for a tie; NaN if a score is missing."""
    return math.nan if math.isnan(better) or math.isnan(worse) else 0.5 * ((better > worse) + (better >= worse))


def accuracy(scored: Scored, tie: float = 0.5) -> float:
    """Share of a set's pairs that are decided right, the mean over the orders shown; NaN if a score is missing or no pair is ordered.

    Args:
        scored: A set with its scores.
        tie: What a tie counts.
    """
    found = [tie if value == 0.5 else value for order in decisions(scored) for value in order]
    return sum(found) / len(found) if found else math.nan


def over_orders(scored: Scored) -> Scored:
    """The same with the mean score over the orders shown, so that a liking for a place cancels out."""
    return replace(scored, orders=(tuple(sum(scores) / len(scores) for scores in zip(*scored.orders, strict=True)),))


def best(scored: Scored) -> float:
    """Quality of the response with the highest score, the mean over tied ones and over the orders shown; NaN if a score is missing."""
    found = []
    for scores in scored.orders:
        if any(map(math.isnan, scores)):
            return math.nan
        top = [quality for quality, score in zip(scored.quality, scores, strict=True) if score == max(scores)]
        found.append(sum(top) / len(top))
    return sum(found) / len(found)


def tabulate(scored: Sequence[Scored], benchmark: Benchmark) -> Table:
    """The table of all rows."""
    rows = [benchmark.numbers(row) for row in scored]
    values = {name: np.array([row[name] for row in rows], dtype=float) for name in rows[0]}
    table = Table(group=np.array([row.group for row in scored]), values=values, names=tuple(sorted({row.group for row in scored})))
    return benchmark.complete(table) if hasattr(benchmark, "complete") else table


def with_intervals(table: Table, report: Callable[[Table], dict[str, float]]) -> dict[str, MeanInterval]:
    """What is reported, each with its 95% bootstrap interval over rows and the number of rows in the table."""
    found = report(table)
    size = len(table.group)
    low, high = bootstrap(lambda rows: list(report(table.on(rows)).values()), size)
    return {
        name: MeanInterval(value, float(start), float(end), size)
        for (name, value), start, end in zip(found.items(), low, high, strict=True)
    }
