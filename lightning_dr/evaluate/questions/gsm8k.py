"""GSM8K (arXiv 2110.14168)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path

from ...datamodules.sources import RowProblem, parse_prompt
from ...records import Prompt
from ..sets import Table
from ..sources import HubData, Row, text_of
from .base import Answer, Question, write_lines

MARK = "####"
"""Stands before the final number in the official answers."""
NUMBER = re.compile(r"-?\$?\d[\d,]*(?:\.\d+)?")


class GSM8K:
    """Rows with ``question`` and ``answer``, which ends with ``#### <number>``. No form of answers is official."""

    name = "gsm8k"
    title = "GSM8K"
    hub = {"test": HubData("openai/gsm8k", "test", "main")}

    def read(self, row: Row) -> Question:
        """See :meth:`.base.QuestionBenchmark.read`."""
        question, answer = text_of(row, "question"), text_of(row, "answer")
        if MARK not in answer or final_number(answer) is None:
            raise RowProblem(f"`answer` must end with {MARK} and a number, got {answer[-20:]!r}")
        name = hashlib.sha256(question.encode()).hexdigest()[:12]
        return Question(id=name, prompt=Prompt(id=name, messages=parse_prompt(question, "question")), row=row)

    def write(self, folder: Path, answers: Sequence[Answer], model: str) -> list[Path]:
        """The answers with the number that was read from each."""
        rows = (
            {
                "question": one.question.row["question"],
                "answer": one.question.row["answer"],
                "model": model,
                "responses": list(one.texts),
                "numbers": [None if (number := final_number(text)) is None else str(number) for text in one.texts],
            }
            for one in answers
        )
        return [write_lines(folder / self.name / f"{model}.jsonl", rows)]

    def numbers(self, answer: Answer) -> dict[str, float]:
        """Share of the samples whose final number is right, and of those that hold a number at all."""
        target = final_number(answer.question.row["answer"])
        found = [final_number(text) for text in answer.texts]
        right, known = sum(number == target for number in found), sum(number is not None for number in found)
        return {"final number is right": right / len(found), "has a number": known / len(found)}

    def report(self, table: Table) -> dict[str, float]:
        """Means over questions."""
        return {name: table.mean(name) for name in table.values}


def final_number(text: str) -> Decimal | None:
    """The first number after the last ``####``, or without that mark the last number; ``None`` if there is none.

    Example:
        >>> final_number("3 + 4 = 7, so $1,007.50."), final_number("#### 12 of 30"), final_number("none")
        (Decimal('1007.50'), Decimal('12'), None)
    """
    _, mark, end = text.rpartition(MARK)
    found = NUMBER.findall(end)
    if not found:
        return None
    try:
        return Decimal(re.sub(r"[$,]", "", found[0] if mark else found[-1]))
    except InvalidOperation:
        return None
