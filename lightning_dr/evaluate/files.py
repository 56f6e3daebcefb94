"""Which benchmarks, from which files."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..datamodules.sources import RowFiltered, RowProblem
from .sources import Named, Row, read_rows

log = logging.getLogger(__name__)

B = TypeVar("B", bound=Named)
T = TypeVar("T")


def check_counts(**options: int | None) -> None:
    """Refuse options that must be at least 1 where they are given.

    Raises:
        ValueError: With the name of the option.
    """
    for name, value in options.items():
        if value is not None and value < 1:
            raise ValueError(f"`{name}` must be at least 1, got {value}.")


def choose(wanted: Sequence[str], known: Mapping[str, B]) -> list[tuple[B, list[str]]]:
    """The benchmarks that are named, each with its local files; none: from the Hub.

    Args:
        wanted: ``<name>`` or ``<name>=<file>``; a name that comes again adds a file to the same benchmark.
        known: By name.

    Raises:
        ValueError: If nothing is named, a name is unknown, or one comes again without a file.
        FileNotFoundError: If a file is not there.
    """
    found: dict[str, list[str]] = {}
    for entry in wanted:
        name, _, path = entry.partition("=")
        if name not in known:
            raise ValueError(f"`benchmarks` must be among {list(known)}, as <name> or <name>=<file>, got {entry!r}.")
        if path and not Path(path).exists():
            raise FileNotFoundError(f"`benchmarks`: {entry!r} names a file that is not there.")
        if name in found and (not path or not found[name] or path in found[name]):
            raise ValueError(f"`benchmarks` must name {name!r} once for the Hub, or once for each of its files, got {list(wanted)}.")
        found.setdefault(name, []).extend([path] if path else [])
    if not found:
        raise ValueError(f"`benchmarks` must name some of {list(known)}, got none.")
    return [(known[name], paths) for name, paths in found.items()]


def parse_files(benchmark: Named, paths: Sequence[str], parse: Callable[[Row, str], T], max_rows: int | None) -> Iterator[tuple[int, T]]:
    """What is in the rows of a benchmark, with their numbers.

    Args:
        benchmark: Says what to load from the Hub.
        paths: Local files; none: the Hub.
        parse: Takes a row, and its split or the name of its file without ending; raises ``RowProblem``.
        max_rows: Stop after so many.

    Raises:
        ValueError: If a row is bad; the message names file and row.
    """
    places = [(Path(path).stem, read_rows(path)) for path in paths] or [(name, data.rows()) for name, data in benchmark.hub.items()]
    number, left_out = 0, Counter[str]()
    for source, rows in places:
        for where, row in rows:
            if max_rows is not None and number >= max_rows:
                break
            try:
                yield number, parse(row, source)
            except RowFiltered as filtered:
                left_out[str(filtered)] += 1
            except RowProblem as problem:
                raise ValueError(f"{where}: {problem}. Mend the row: it must be one of {benchmark.title}.") from problem
            number += 1
    for reason, count in left_out.items():
        log.warning("%s: %d rows left out: %s.", benchmark.title, count, reason)


def identify(benchmark: Named, paths: Sequence[str]) -> dict[str, Any]:
    """What identifies the rows: the contents of local files, or the dataset's name."""
    hashes = [hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in paths]
    return {"benchmark": benchmark.name, "files": hashes or [str(data) for data in benchmark.hub.values()]}
