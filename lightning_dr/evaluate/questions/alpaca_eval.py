"""AlpacaEval 2 (arXiv 2404.04475)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from ...datamodules.sources import parse_prompt
from ...records import Prompt
from ..sources import JsonAddress, Row, text_of
from .base import Answer, Judged, Question, write_json


class AlpacaEval(Judged):
    """Rows with ``instruction`` and ``dataset``; answers go into ``model_outputs.json`` for ``alpaca_eval --model_outputs``."""

    name = "alpaca_eval"
    title = "AlpacaEval 2"
    hub = {"eval": JsonAddress("https://huggingface.co/datasets/tatsu-lab/alpaca_eval/resolve/main/alpaca_eval.json")}

    def read(self, row: Row) -> Question:
        """See :meth:`.base.QuestionBenchmark.read`."""
        instruction = text_of(row, "instruction")
        name = hashlib.sha256(instruction.encode()).hexdigest()[:12]
        return Question(id=name, prompt=Prompt(id=name, messages=parse_prompt(instruction, "instruction")), row=row)

    def write(self, folder: Path, answers: Sequence[Answer], model: str) -> list[Path]:
        """See :meth:`.base.QuestionBenchmark.write`."""
        rows = [
            {
                "dataset": one.question.row.get("dataset", ""),
                "instruction": one.question.row["instruction"],
                "output": one.texts[0],
                "generator": model,
            }
            for one in answers
        ]
        return [write_json(folder / self.name / "model_outputs.json", rows)]
