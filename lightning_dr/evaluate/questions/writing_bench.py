"""WritingBench (arXiv 2503.05244)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...datamodules.sources import RowProblem, parse_prompt
from ...records import Prompt
from ..sources import JsonAddress, Row, text_of
from .base import Answer, Judged, Question, write_lines


class WritingBench(Judged):
    """Rows with ``index``, ``query`` and ``checklist``; answers go into ``<model>.jsonl`` for ``evaluate_benchmark.py --input_file``."""

    name = "writing_bench"
    title = "WritingBench"
    hub = {"benchmark_all": JsonAddress("https://raw.githubusercontent.com/X-PLUG/WritingBench/main/benchmark_query/benchmark_all.jsonl")}

    def read(self, row: Row) -> Question:
        """See :meth:`.base.QuestionBenchmark.read`."""
        if not isinstance(row.get("index"), int):
            raise RowProblem(f"`index` must be a whole number, got {row.get('index')!r}")
        name = str(row["index"])
        return Question(id=name, prompt=Prompt(id=name, messages=parse_prompt(text_of(row, "query"), "query")), row=row)

    def write(self, folder: Path, answers: Sequence[Answer], model: str) -> list[Path]:
        """See :meth:`.base.QuestionBenchmark.write`."""
        rows = ({"index": one.question.row["index"], "response": one.texts[0]} for one in answers)
        return [write_lines(folder / self.name / f"{model}.jsonl", rows)]
