"""The rows of a benchmark's official file, each with the place that a message can name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import datasets

from ..datamodules.sources import FORMATS, RowProblem, check_unicode, load_rows, parse_array
from ..jsonl import read_lines, read_text

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class HubData:
    """Where rows lie on the Hub."""

    dataset: str
    split: str
    config: str | None = None

    def rows(self) -> Iterator[tuple[str, Row]]:
        """See :func:`read_rows`."""
        rows = load_rows(self.dataset, self.split, config=self.config)
        return objects(self.dataset, numbered(f"{self.dataset}, {self.split}", rows))


@dataclass(frozen=True, slots=True)
class JsonAddress:
    """A JSON file on the net, where no dataset's settings lead to it."""

    url: str

    def rows(self) -> Iterator[tuple[str, Row]]:
        """See :func:`read_rows`."""
        try:
            rows = datasets.load_dataset("json", data_files=self.url, split="train")
        except Exception as error:
            raise ValueError(f"{self.url} can't be loaded: {error}. Name a local file, as <name>=<file>.") from error
        return objects(self.url, numbered(self.url, rows))


class Named(Protocol):
    """What the benchmarks of evaluators and of policies have in common."""

    @property
    def name(self) -> str:
        """As on the command line."""
        ...

    @property
    def title(self) -> str:
        """As in a heading."""
        ...

    @property
    def hub(self) -> Mapping[str, HubData | JsonAddress]:
        """On the Hub: what stands for the name of a file -> where the rows are; all of them are read."""
        ...


def read_rows(path: str) -> Iterator[tuple[str, Row]]:
    """Each row of a local file with where it stands, ``<path>, row <n>``; JSON is read as it is written, not in columns of one type.

    Args:
        path: A .json (an array), .jsonl or .parquet file. A byte-order mark and CRLF do no harm.

    Raises:
        FileNotFoundError: If ``path`` names a file that is not there.
        ValueError: If the file is of another kind, can't be read or holds no rows, or a row is no JSON object; the message names file
            and row.
    """
    file = Path(path)
    found: Iterator[tuple[str, Any]]
    if file.is_file() and file.suffix == ".jsonl":
        found = read_lines(file, "a JSON object")
    elif file.is_file() and file.suffix == ".json":
        found = numbered(path, parse_array(read_text(file), file))
    elif file.suffix in FORMATS:
        found = numbered(path, load_rows(path))
    else:
        raise ValueError(f"{path} must be a {', '.join(FORMATS)} file. Convert it, for example with `datasets`.")
    return objects(path, found)


def objects(path: str, found: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Row]]:
    """Rows that are JSON objects.

    Raises:
        ValueError: If one is not, or there is none.
    """
    empty = True
    for where, row in found:
        if not isinstance(row, Mapping):
            raise ValueError(f"{where}: must be a JSON object, got {str(row)[:60]!r}.")
        empty = False
        yield where, row
    if empty:
        raise ValueError(f"{path} holds no rows.")


def numbered(path: str, rows: Any) -> Iterator[tuple[str, Any]]:
    """Rows with where they stand."""
    return ((f"{path}, row {number}", row) for number, row in enumerate(rows, start=1))


def id_of(row: Row, column: str, prompt: str) -> str:
    """The id that a row has in a column, else a short hash of its prompt."""
    value = row.get(column)
    return hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()[:12] if value in (None, "") else str(value)


def text_of(row: Row, column: str) -> str:
    """A cell that must be text which is not blank.

    Raises:
        RowProblem: If it is missing, of another type, blank, or no whole text.
    """
    if column not in row:
        raise RowProblem(f"`{column}` is missing; the columns are {sorted(row)}")
    value = row[column]
    if not isinstance(value, str):
        raise RowProblem(f"`{column}` must be text, got {type(value).__name__}")
    if not value.strip():
        raise RowProblem(f"`{column}` is empty")
    return check_unicode(value, column)


def texts_of(row: Row, column: str, count: int | None = None) -> list[str]:
    """A cell that must be a list of texts, none of them blank.

    Args:
        row: The row.
        column: Its column.
        count: How many there must be; ``None``: at least one.

    Raises:
        RowProblem: If it is missing or something else.
    """
    value = row.get(column)
    if not isinstance(value, list) or not value or (count is not None and len(value) != count):
        raise RowProblem(f"`{column}` must be a list of {count or 'some'} texts, got {str(value)[:40]!r}")
    return [text_of({f"{column}[{number}]": text}, f"{column}[{number}]") for number, text in enumerate(value, start=1)]
