"""What a benchmark of policies is: questions, official answer files, and what can be checked without a judge."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ...records import Prompt
from ..sets import Table
from ..sources import Named, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question and the official row that it came from."""

    id: str
    prompt: Prompt
    row: Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A policy's answers to a question."""

    question: Question
    texts: tuple[str, ...]
    """n ≥ 1 samples. A file that has room for one takes the first."""


class QuestionBenchmark(Named, Protocol):
    """Turns official rows into questions, and answers into official files.

    One that needs something to check answers has a method ``ready()``, which says before the first answer if that is not there.
    """

    def read(self, row: Row) -> Question:
        """The question of a row.

        Raises:
            RowProblem: If the row is bad; the message names the column.
        """
        ...

    def write(self, folder: Path, answers: Sequence[Answer], model: str) -> list[Path]:
        """Write what the official judge reads.

        Args:
            folder: Where to.
            answers: In the order of the questions.
            model: What the files call the policy.

        Returns:
            The files.
        """
        ...

    def numbers(self, answer: Answer) -> dict[str, float]:
        """What a program can check of the answers to a question, the mean over the samples; the same names for every question."""
        ...

    def report(self, table: Table) -> dict[str, float]:
        """What is reported of those numbers, by name, in order."""
        ...


class Judged:
    """A benchmark of which nothing can be checked without its judge."""

    def numbers(self, answer: Answer) -> dict[str, float]:
        """Nothing."""
        return {}

    def report(self, table: Table) -> dict[str, float]:
        """Nothing."""
        return {}


def write_json(path: Path, value: Any) -> Path:
    """Write a JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    return path


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write a file of JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path
