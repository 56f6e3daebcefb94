"""What changed from the first rounds to the last: a file, a table, and a sentence."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning import Trainer
from rich.console import Console
from rich.table import Table

from ..records import Round
from .base import DRCallback

SHOWN = {
    "gap/reference_quality": "true quality of the responses",
    "gap/policy": "Δgap on the responses",
    "gap/accuracy": "responses: pairs ordered right",
    "gap/anchor": "Δgap on the ranked answers",
    "generator/j_disc": "J_disc (at most 0.25)",
    "generator/j_anchor": "J_anchor (at most 0)",
    "policy/score": "score of the policy",
    "generator/unreadable": "unreadable rubrics",
    "seconds/round": "seconds per round",
}
"""Metric -> its name in the table."""


class RunSummary(DRCallback):
    """Write ``summary.json`` into the run folder at the end, and print a table with a sentence under it.

    Args:
        window: Share of the rounds of this run that "start" and "end" each average over.
    """

    def __init__(self, window: float = 0.1) -> None:
        if not 0 < window <= 0.5:
            raise ValueError(f"`window` must be in (0, 0.5], got {window}.")
        self.window = window
        self._history: list[dict[str, float]] = []
        self.validation: dict[str, dict[str, float]] = {}

    def on_round_end(self, trainer: Trainer, module: Any, round: Round) -> None:
        """Remember the metrics."""
        self._history.append(dict(round.metrics))

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Remember validation metrics: the first as ``start``, the latest as ``end``."""
        if trainer.sanity_checking:
            return
        found = {key: value.item() for key, value in trainer.callback_metrics.items() if key.startswith("val/")}
        self.validation["end" if "start" in self.validation else "start"] = found

    def on_fit_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Write ``summary.json`` and print the table."""
        summary = self.write(trainer, pl_module)
        if self._history:
            console = Console()
            console.print(summary_table(summary))
            console.print(summary_sentence(summary), highlight=False)

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """Write down the rounds that were done."""
        if self._history:
            self.write(trainer, pl_module)

    def write(self, trainer: Trainer, module: Any) -> dict[str, Any]:
        """Write ``summary.json``; returns what is in it."""
        summary = self.summarise(module)
        if trainer.log_dir is not None:
            path = Path(trainer.log_dir) / "summary.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
        return summary

    def summarise(self, module: Any) -> dict[str, Any]:
        """Means over the first and the last rounds of this run."""
        size = max(1, round(len(self._history) * self.window))
        return {
            "rounds": module.round,
            "policy_steps": module.steps["policy"],
            "generator_steps": module.steps["generator"],
            "window_rounds": size,
            "start": means(self._history[:size]),
            "end": means(self._history[-size:]),
            "validation": self.validation,
        }

    def state_dict(self) -> dict[str, Any]:
        """The metrics so far, so that a resumed run is summarised as one."""
        return {"history": self._history, "validation": self.validation}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore :meth:`state_dict`."""
        self._history = list(state_dict["history"])
        self.validation = dict(state_dict["validation"])


def means(rows: list[dict[str, float]]) -> dict[str, float]:
    """Mean of each metric over the rounds that have it."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: math.fsum(row[name] for row in rows if name in row) / sum(name in row for row in rows) for name in names}


def summary_table(summary: Mapping[str, Any]) -> Table:
    """Start and end of what matters most."""
    table = Table("metric", title=f"{summary['rounds']} rounds · mean of the first and of the last {summary['window_rounds']}")
    table.add_column("start", justify="right")
    table.add_column("end", justify="right")
    for key, name in SHOWN.items():
        values = [summary[when].get(key) for when in ("start", "end")]
        if any(value is not None for value in values):
            table.add_row(name, *("–" if value is None else f"{value:.3f}" for value in values))
    held_out = [summary["validation"].get(when, {}) for when in ("start", "end")]
    for key, whose in (("val/accuracy", ""), ("val/evaluator_accuracy", ", by the policy's evaluator")):
        if any(key in values for values in held_out):
            table.add_row(f"held-out lists: pairs ordered right{whose}", *(interval(values, key) for values in held_out))
    return table


def interval(values: Mapping[str, float], key: str) -> str:
    """A held-out mean with half its 95% interval (a single list has none), or a dash."""
    if key not in values:
        return "–"
    half = f" ± {values[f'{key}_high'] - values[key]:.3f}" if f"{key}_high" in values else ""
    return f"{values[key]:.3f}{half}"


def summary_sentence(summary: Mapping[str, Any]) -> str:
    """Say in words what moved, whichever way it did."""
    parts = []
    for key, subject in (
        ("gap/reference_quality", "the true quality of the policy's responses"),
        ("gap/policy", "the score gap between better and worse responses"),
        ("generator/j_anchor", "the rubrics' agreement with the ranked answers"),
        ("generator/j_disc", "the rubrics' discriminability"),
    ):
        start, end = summary["start"].get(key), summary["end"].get(key)
        if start is not None and end is not None:
            verb = "rose" if end > start else "fell" if end < start else "stayed"
            parts.append(f"{subject} {verb} from {start:.3f} to {end:.3f}" if verb != "stayed" else f"{subject} stayed at {end:.3f}")
    text = "; ".join(parts)
    return f"In words: {text}." if text else ""
