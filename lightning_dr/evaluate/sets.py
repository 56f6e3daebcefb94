"""What a benchmark of evaluators is: response sets with a reference order, and the numbers that its authors report."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from ..experiments.statistics import Values, bootstrap
from ..gap import MeanInterval, pairwise_accuracy
from ..records import Prompt
from .sources import Row


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What an evaluator gave to a response set."""

    id: str
    group: str
    quality: tuple[float, ...]
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


class Benchmark(Protocol):
    """Turns official rows into response sets, and scores into what the authors report."""

    name: str
    """As on the command line."""
    title: str
    path: str
    """On the Hub."""
    splits: tuple[str, ...]
    """On the Hub; all of them are read."""
    both_orders: bool
    """Whether its authors show each pair in both orders. Else the order is shuffled by the id of the row."""

    def read(self, row: Row, source: str) -> ResponseSet:
        """The response set of a row.

        Args:
            row: As in the official file.
            source: The split, or the name of the local file without its ending.

        Raises:
            RowProblem: If the row is bad; the message names the column.
        """
        ...

    def numbers(self, scored: Scored) -> dict[str, float]:
        """What a row adds to the table; NaN where it could not be judged."""
        ...

    def report(self, table: Table) -> dict[str, float]:
        """What is reported, by name, in order: the same names for every table with the same ``names``."""
        ...


def accuracy(scored: Scored) -> float:
    """Share of a set's ordered pairs that the scores order right, ties counted half, the mean over the orders shown.

    NaN where a response of an ordered pair has no score in one of them.
    """
    quality = torch.tensor(scored.quality)
    found = []
    for scores in map(torch.tensor, scored.orders):
        known = ~torch.isnan(quality)
        if torch.isnan(scores[known]).any():
            return math.nan
        found.append(pairwise_accuracy(scores, quality).item())
    return sum(found) / len(found)


def tabulate(scored: Sequence[Scored], numbers: Callable[[Scored], dict[str, float]]) -> Table:
    """The table of all rows."""
    rows = [numbers(row) for row in scored]
    values = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return Table(group=np.array([row.group for row in scored]), values=values, names=tuple(sorted({row.group for row in scored})))


def with_intervals(table: Table, report: Callable[[Table], dict[str, float]]) -> dict[str, MeanInterval]:
    """What is reported, each with its 95% bootstrap interval over rows and the number of rows in the table."""
    found = report(table)
    size = len(table.group)
    low, high = bootstrap(lambda rows: list(report(table.on(rows)).values()), size)
    return {
        name: MeanInterval(value, float(start), float(end), size)
        for (name, value), start, end in zip(found.items(), low, high, strict=True)
    }
