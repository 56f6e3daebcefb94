"""IFEval (arXiv 2311.07911), checked by lm-evaluation-harness."""

from __future__ import annotations

import contextlib
import io
import logging
import math
import string
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ...datamodules.sources import RowProblem, parse_prompt
from ...records import Prompt
from ..sets import Table
from ..sources import HubData, Row, text_of
from .base import Answer, Question, write_lines

HELP = "Install it with `pip install 'lightning-dr[ifeval]'` and `python -m nltk.downloader punkt_tab`"
LEVELS = ("strict", "loose")

log = logging.getLogger(__name__)


class IFEval:
    """Rows with ``key``, ``prompt``, ``instruction_id_list`` and ``kwargs``; answers go into ``input_response_data_<model>.jsonl``."""

    name = "ifeval"
    title = "IFEval"
    hub = {"train": HubData("google/IFEval", "train")}

    def read(self, row: Row) -> Question:
        """See :meth:`.base.QuestionBenchmark.read`."""
        names, kwargs = row.get("instruction_id_list"), row.get("kwargs")
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise RowProblem(f"`instruction_id_list` must be a list of names, got {str(names)[:40]!r}")
        if not isinstance(kwargs, list) or len(kwargs) != len(names) or not all(isinstance(given, dict) for given in kwargs):
            raise RowProblem(f"`kwargs` must be a list of one object for each instruction, got {str(kwargs)[:40]!r}")
        name = str(row.get("key", ""))
        return Question(id=name, prompt=Prompt(id=name, messages=parse_prompt(text_of(row, "prompt"))), row=row)

    def ready(self) -> None:
        """See :func:`checker`."""
        checker()

    def write(self, folder: Path, answers: Sequence[Answer], model: str) -> list[Path]:
        """See :meth:`.base.QuestionBenchmark.write`."""
        rows = ({"prompt": one.question.row["prompt"], "response": one.texts[0]} for one in answers)
        return [write_lines(folder / self.name / f"input_response_data_{model}.jsonl", rows)]

    def numbers(self, answer: Answer) -> dict[str, float]:
        """Means over the samples: whether all instructions are followed, how many are, and how many could be checked or not."""
        row, samples = answer.question.row, len(answer.texts)
        found: dict[str, float] = {}
        for level in LEVELS:
            followed = [check(row, text, level) for text in answer.texts]
            known = [value for sample in followed for value in sample if not math.isnan(value)]
            found[f"{level}: all"] = sum(map(all_followed, followed)) / samples
            found[f"{level}: followed"] = sum(known) / samples
            found["checked"] = len(known) / samples
        return found | {"unchecked": len(row["instruction_id_list"]) - found["checked"]}

    def report(self, table: Table) -> dict[str, float]:
        """Accuracy by prompt and by instruction, and the shares of either that could not be checked and are left out."""
        found = {f"prompts, {level}": table.mean(f"{level}: all") for level in LEVELS}
        total = {name: float(value.sum()) for name, value in table.values.items()}
        for level in LEVELS:
            found[f"instructions, {level}"] = total[f"{level}: followed"] / total["checked"] if total["checked"] else math.nan
        found["prompts not checked"] = float(np.isnan(table.values["strict: all"]).mean())
        return found | {"instructions not checked": total["unchecked"] / (total["checked"] + total["unchecked"])}


def all_followed(followed: Sequence[float]) -> float:
    """1 if every instruction is followed, 0 if not.

    NaN if one could not be checked, even where another one is not followed: else only failures of such a prompt would count.
    """
    return math.nan if any(map(math.isnan, followed)) else float(all(followed))


def check(row: Row, response: str, level: str) -> list[float]:
    """Whether each instruction of a prompt is followed: 1 or 0, NaN where its check lacks data or can't read it.

    Args:
        row: An official row.
        response: The answer.
        level: ``strict``: as it is; ``loose``: or without its first line, its last one, or its asterisks.

    Raises:
        ImportError: If the checker is not installed.
    """
    library = checker()
    follows = getattr(library, f"test_instruction_following_{level}")
    found = []
    for name, kwargs in zip(row["instruction_id_list"], row["kwargs"], strict=True):
        given = {key: value for key, value in kwargs.items() if value is not None}
        if given.get("letter", "a") not in set(string.ascii_letters):
            found.append(math.nan)  # the checker would take a random letter for it
            continue
        try:
            one = library.InputExample(key=0, instruction_id_list=[name], prompt=row["prompt"], kwargs=[given])
            found.append(float(follows(one, response).follow_all_instructions))
        except LookupError as error:
            if type(error) is not LookupError:  # nltk's own, for data that is not there, is none of its subclasses
                raise
            found.append(math.nan)
    return found


@cache
def checker() -> Any:
    """The checks of lm-evaluation-harness, which would else download data and write to the terminal when it is imported.

    Raises:
        ImportError: If it is not installed; the message says what to do.
    """
    try:
        import nltk
        from langdetect import DetectorFactory

        DetectorFactory.seed = 0
        download, nltk.download = nltk.download, lambda *args, **kwargs: False
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                from lm_eval.tasks.ifeval import utils
        finally:
            nltk.download = download
    except ImportError as error:
        raise ImportError(f"IFEval is checked by lm-evaluation-harness, which is not here ({error}). {HELP}.") from error
    try:
        nltk.data.find("tokenizers/punkt_tab")
    except LookupError:
        log.warning("Instructions about sentences and capital words can't be checked without the data punkt_tab. %s.", HELP)
    return utils
