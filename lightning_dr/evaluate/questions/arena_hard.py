"""Arena-Hard v2 (arXiv 2406.11939)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from ...datamodules.sources import parse_prompt
from ...records import Prompt
from ..sources import JsonAddress, Row, text_of
from .base import Answer, Judged, Question, write_lines


class ArenaHard(Judged):
    """Rows with ``uid``, ``category``, ``subcategory`` and ``prompt``; answers go into ``model_answer/<model>.jsonl``.

    That folder goes into ``data/arena-hard-v2.0`` of the official repository, whose ``utils/add_markdown_info.py`` adds the counts that its
    style control needs.
    """

    name = "arena_hard"
    title = "Arena-Hard v2"
    hub = {
        "question": JsonAddress(
            "https://huggingface.co/datasets/lmarena-ai/arena-hard-auto/resolve/main/data/arena-hard-v2.0/question.jsonl"
        )
    }

    def read(self, row: Row) -> Question:
        """See :meth:`.base.QuestionBenchmark.read`."""
        name = text_of(row, "uid")
        return Question(id=name, prompt=Prompt(id=name, messages=parse_prompt(text_of(row, "prompt"))), row=row)

    def write(self, folder: Path, answers: Sequence[Answer], model: str) -> list[Path]:
        """See :meth:`.base.QuestionBenchmark.write`."""
        rows = [
            {
                "uid": one.question.row["uid"],
                "ans_id": uuid.uuid5(uuid.NAMESPACE_OID, f"{model}:{one.question.row['uid']}").hex,
                "model": model,
                "messages": [
                    {"role": "user", "content": one.question.row["prompt"]},
                    {"role": "assistant", "content": {"answer": one.texts[0]}},
                ],
                "tstamp": time.time(),
                "metadata": {},
            }
            for one in answers
        ]
        return [write_lines(folder / self.name / "model_answer" / f"{model}.jsonl", rows)]
