"""GSM8K (arXiv 2110.14168)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

from ...datamodules.sources import RowProblem, parse_prompt
from ...records import Prompt
from ..sets import Table
from ..sources import HubData, Row, text_of
from .base import Answer, Question, write_lines

MARKED = re.compile(r"#### (-?\d[\d,]*(?:\.\d+)?)")
"""The final number as it stands in the official answers."""
NUMBER = re.compile(r"-?\$?\d[\d,]*(?:\.\d+)?")


class GSM8K:
    """Rows with ``question`` and ``answer``, which ends with ``#### <number>``. No form of answers is official."""

    name = "gsm8k"
    title = "GSM8K"
    hub = {"test": HubData("openai/gsm8k", "test", "main")}

    def read(self, row: Row) -> Question:
        """See :meth:`.base.QuestionBenchmark.read`."""
        question, answer = text_of(row, "question"), text_of(row, "answer")
        if marked_number(answer) is None:
            raise RowProblem(f"`answer` must end with #### and a number, got {answer[-20:]!r}")
        name = hashlib.sha256(question.encode()).hexdigest()[:12]
        return Question(id=name, prompt=Prompt(id=name, messages=parse_prompt(question, "question")), row=row)

    def write(self, folder: Path, answers: Sequence[Answer], model: str) -> list[Path]:
        """The answers with the last number of each."""
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
        """Shares of the samples whose last number is right, whose number after ``####`` is, and that hold a number at all.

        The first two are lm-evaluation-harness's ``flexible-extract`` and ``strict-match``, with numbers compared by value.
        """
        target = marked_number(answer.question.row["answer"])
        last, marked = ([read(text) for text in answer.texts] for read in (final_number, marked_number))
        return {
            "final number is right": last.count(target) / len(last),
            "number after #### is right": marked.count(target) / len(marked),
            "has a number": 1 - last.count(None) / len(last),
        }

    def report(self, table: Table) -> dict[str, float]:
        """Means over questions."""
        return {name: table.mean(name) for name in table.values}


def marked_number(text: str) -> Decimal | None:
    """The first number that stands after ``####``; ``None`` if there is none.

    Example:
        >>> marked_number("so 3 + 4 = 7 #### 1,007"), marked_number("7")
        (Decimal('1007'), None)
    """
    found = MARKED.search(text)
    return Decimal(found[1].replace(",", "")) if found else None


def final_number(text: str) -> Decimal | None:
    """The last number; ``None`` if there is none.

    Example:
        >>> final_number("3 + 4 = 7, so $1,007.50."), final_number("none")
        (Decimal('1007.50'), None)
    """
    found = NUMBER.findall(text)
    return Decimal(re.sub(r"[$,]", "", found[-1])) if found else None
