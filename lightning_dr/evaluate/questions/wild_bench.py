"""WildBench v2 (arXiv 2406.04770)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...datamodules.sources import parse_prompt
from ...records import Prompt
from ..sources import HubData, Row, text_of
from .base import Answer, Judged, Question, write_json


class WildBench(Judged):
    """Rows with ``session_id``, ``conversation_input`` (turns of user and assistant) and ``primary_tag``; all samples go into one file.

    ``<model>.json`` goes into ``result_dirs/wild_bench_v2`` of the official repository. Its ``eval.py`` judges the first sample, and goes
    through the file and the benchmark side by side: all questions must be in it, in order.
    """

    name = "wild_bench"
    title = "WildBench v2"
    hub = {"v2": HubData("allenai/WildBench", "test", "v2")}

    def read(self, row: Row) -> Question:
        """See :meth:`.base.QuestionBenchmark.read`."""
        name = text_of(row, "session_id")
        messages = parse_prompt(row.get("conversation_input"), "conversation_input")
        return Question(id=name, prompt=Prompt(id=name, messages=messages), row=row)

    def write(self, folder: Path, answers: Sequence[Answer], model: str) -> list[Path]:
        """See :meth:`.base.QuestionBenchmark.write`."""
        rows = [
            {
                "session_id": one.question.row["session_id"],
                "primary_tag": one.question.row.get("primary_tag"),
                "chat_history": [message["content"] for message in one.question.prompt.messages],
                "output": list(one.texts),
                "generator": model,
                "dataset": "wild_bench",
            }
            for one in answers
        ]
        return [write_json(folder / self.name / f"{model}.json", rows)]
