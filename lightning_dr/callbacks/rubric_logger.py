"""Write down what the evaluator asked, what was answered, and what came of it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from lightning import Trainer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor

from ..records import Evaluation, Round
from .base import DRCallback


class RubricLogger(DRCallback):
    """Append every rubric of a round to ``rubrics.jsonl`` in the run folder, and show one prompt's in the console.

    Args:
        every_n_rounds: Rounds between two that are written.
        console_every_n_rounds: Rounds between two tables in the console; 0 for none.
        filename: File in the run folder, one JSON object per prompt and round.
    """

    def __init__(self, every_n_rounds: int = 1, console_every_n_rounds: int = 0, filename: str = "rubrics.jsonl") -> None:
        if every_n_rounds < 1:
            raise ValueError(f"`every_n_rounds` must be at least 1, got {every_n_rounds}. Leave the callback out to write nothing.")
        if console_every_n_rounds < 0:
            raise ValueError(f"`console_every_n_rounds` must be at least 0, got {console_every_n_rounds}.")
        self.every_n_rounds = every_n_rounds
        self.console_every_n_rounds = console_every_n_rounds
        self.filename = filename

    def on_round_end(self, trainer: Trainer, module: Any, round: Round) -> None:
        """Write the round."""
        if round.index % self.every_n_rounds == 0 and trainer.log_dir is not None:
            path = Path(trainer.log_dir) / self.filename
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                for row in range(len(round.batch.prompts)):
                    file.write(json.dumps(prompt_entry(round, row), ensure_ascii=False) + "\n")
        if self.console_every_n_rounds and round.index % self.console_every_n_rounds == 0:
            console = Console()
            console.print()  # leave the line of the progress bar
            console.print(rubric_table(prompt_entry(round, 0)))


def prompt_entry(round: Round, row: int) -> dict[str, Any]:
    """Everything about one prompt of a round, in plain Python; numbers that do not exist are null."""
    scores = round.scores_BK[row]
    entry = {
        "round": round.index,
        "prompt_id": round.batch.prompts[row].id,
        "prompt": [dict(message) for message in round.batch.prompts[row].messages],
        "responses": [response.text for response in round.responses[row]],
        "scores": plain(scores),
        "highest": None,
        "lowest": None,
        "rubrics": rubric_entries(round.live, row) if round.live else [],
    }
    if not bool(torch.isnan(scores).all()):
        entry["highest"] = round.responses[row][int(torch.nan_to_num(scores, nan=-1.0).argmax())].text
        entry["lowest"] = round.responses[row][int(torch.nan_to_num(scores, nan=2.0).argmin())].text
    if round.parted and round.evaluator:
        entry["evaluator_rubrics"] = rubric_entries(round.evaluator, row)
    return entry


def rubric_entries(draw: Evaluation, row: int) -> list[dict[str, Any]]:
    """The rubrics of one prompt: items with their verdicts on C, rewards, or why the text could not be read."""
    entries = []
    for number, rubric in enumerate(draw.rubrics[row]):
        entry: dict[str, Any] = {"text": rubric.completion.text, "error": rubric.error, "items": []}
        for name in ("disc_BG", "anchor_BG"):
            values = getattr(draw, name)
            entry[f"j_{name.removesuffix('_BG')}"] = None if values is None else plain(values[row, number])
        for position, item in enumerate(rubric.rubric.items if rubric.rubric else ()):
            verdicts = plain(draw.verdicts_BGKM[row, number, :, position])
            entry["items"].append({"question": item.question, "weight": item.weight, "verdicts": verdicts})
        entries.append(entry)
    return entries


def plain(values: Tensor) -> Any:
    """A tensor as numbers, rounded to 4 places, null for NaN."""
    if values.dim() == 0:
        number = values.item()
        return None if math.isnan(number) else round(number, 4)
    return [plain(value) for value in values]


def rubric_table(entry: dict[str, Any]) -> Table:
    """One prompt's first readable rubric with its yes-rates, and the highest and lowest response."""
    # Text, not markup: what a model wrote may hold square brackets.
    table = Table("weight", "item", "yes", title=Text(f"round {entry['round']} · {entry['prompt'][-1]['content'][:80]}"))
    readable = next((rubric for rubric in entry["rubrics"] if rubric["items"]), None)
    for item in readable["items"] if readable else ():
        known = [verdict for verdict in item["verdicts"] if verdict is not None]
        share = f"{sum(known) / len(known):.0%}" if known else "–"
        table.add_row(f"{item['weight']:g}", Text(item["question"]), share)
    if readable is None and entry["rubrics"]:
        table.add_row("–", Text(f"no readable rubric: {entry['rubrics'][0]['error']}"), "–")
    table.add_section()
    for name in ("highest", "lowest"):
        table.add_row(name, Text((entry[name] or "–")[:200]), "")
    return table
