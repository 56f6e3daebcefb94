"""Save what is trained: megabytes, never the frozen base."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from lightning import Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.utilities.exceptions import SIGTERMException


class AdapterCheckpoint(Checkpoint):
    """Write ``checkpoints/round-00010/`` in the run folder, every some rounds and after the last one of a run that is told to stop.

    It holds ``policy/`` and ``generator/`` in PEFT's format, and ``trainer.ckpt`` with both optimizers, random states, data position and
    callback states: ``--ckpt_path <run>/checkpoints/round-00010/trainer.ckpt`` goes on as if the run had never stopped. The number is that
    of rounds done.

    Args:
        every_n_rounds: Rounds between two checkpoints.
        keep: Newest checkpoints to keep; ``None`` keeps all.
    """

    def __init__(self, every_n_rounds: int = 10, keep: int | None = None) -> None:
        if every_n_rounds < 1:
            raise ValueError(f"`every_n_rounds` must be at least 1, got {every_n_rounds}.")
        if keep is not None and keep < 1:
            raise ValueError(f"`keep` must be at least 1 or null, got {keep}.")
        self.every_n_rounds = every_n_rounds
        self.keep = keep
        self._written: list[Path] = []
        self._saved_round = 0

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """What a resumed run goes on from is saved already."""
        self._saved_round = pl_module.round

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Save when the number of rounds done is due, and when the run ends here: rounds done, told to stop, or out of batches."""
        due = pl_module.round % self.every_n_rounds == 0
        ends = trainer.should_stop or trainer.received_sigterm or batch_idx + 1 >= trainer.num_training_batches
        if (due or ends) and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            self.save(trainer, pl_module)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Save a round that was not yet, when the run was told to stop after it: by a validation, or between two rounds."""
        if pl_module.round > self._saved_round and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            self.save(trainer, pl_module)

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """The same after a SIGTERM, which Lightning answers to between rounds."""
        if isinstance(exception, SIGTERMException):
            self.on_train_epoch_end(trainer, pl_module)

    def save(self, trainer: Trainer, module: Any) -> Path:
        """Write a checkpoint now; a folder is only there once it is complete."""
        folder = Path(trainer.log_dir or trainer.default_root_dir) / "checkpoints" / f"round-{module.round:05d}"
        part = folder.with_name(folder.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for role in module.roles.values():
            role.save_role(part)
        trainer.save_checkpoint(part / "trainer.ckpt")
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
        self._saved_round = module.round
        self._written.append(folder)
        while self.keep is not None and len(self._written) > self.keep:
            shutil.rmtree(self._written.pop(0), ignore_errors=True)
        return folder
