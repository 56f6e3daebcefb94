"""A progress bar in rounds."""

from __future__ import annotations

import sys
from typing import Any

from lightning import Trainer
from lightning.pytorch.callbacks import ProgressBar
from tqdm import tqdm

SHOWN = {
    "gap/policy": "gap",
    "gap/anchor": "anchor gap",
    "generator/j_disc": "J_disc",
    "generator/j_anchor": "J_anchor",
    "policy/score": "score",
    "generator/unreadable": "unreadable",
    "seconds/round": "s/round",
}
"""Metric -> its name in the bar."""


class RoundProgress(ProgressBar):
    """Shows the round, the score gap, J_disc, J_anchor, the policy's score and the seconds per round."""

    def __init__(self) -> None:
        super().__init__()
        self._bar: Any = None
        self._validation: Any = None
        self._enabled = True

    def disable(self) -> None:
        """Show nothing."""
        self._enabled = False

    def enable(self) -> None:
        """Show the bar."""
        self._enabled = True

    def _open(self, total: float, start: int, name: str) -> Any:
        return tqdm(
            total=None if total == float("inf") else int(total),
            initial=start,
            desc=name,
            file=sys.stdout,
            disable=not self._enabled,
            dynamic_ncols=True,
            mininterval=0.5 if sys.stdout.isatty() else 15.0,
        )

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Open the bar at the round that the run (re)starts from."""
        self._bar = self._open(pl_module.num_rounds, pl_module.round, "round")

    def on_validation_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Open a bar for a validation."""
        self._validation = self._open(sum(trainer.num_val_batches), 0, "validation")

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Advance by a batch."""
        self._validation.update(1)

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Close the bar of the validation."""
        self._validation.close()

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Advance by a round."""
        shown = {name: trainer.callback_metrics[key].item() for key, name in SHOWN.items() if key in trainer.callback_metrics}
        self._bar.set_description(f"{pl_module.phase.name}, round", refresh=False)
        self._bar.set_postfix({name: f"{value:.3g}" for name, value in shown.items()}, refresh=False)
        self._bar.update(1)

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Close the bar."""
        self._close()

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """Close the bar."""
        self._close()

    def _close(self) -> None:
        for bar in (self._bar, self._validation):
            if bar is not None:
                bar.close()
        self._bar = self._validation = None
