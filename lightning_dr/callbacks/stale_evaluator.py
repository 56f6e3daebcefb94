"""Score the policy with an evaluator that is not up to date, while the live generator goes on learning."""

from __future__ import annotations

from collections import deque
from typing import Any

from lightning import Trainer
from torch import Tensor

from ..records import Round
from ..roles import RubricWriter
from .base import DRCallback, check_round_ahead
from .checkpoint_swap import CheckpointSwap

ADAPTER = "stale_evaluator"


class StaleEvaluator(DRCallback):
    """The policy's scores come from an old generator: frozen from a round on, or always some rounds behind.

    The live generator still writes, and learns from, its own rubrics. Whatever is held is kept in checkpoints; the live evaluator is back
    after the run.

    Args:
        freeze_at: From this round on the evaluator stays what the generator was at its start (0: untrained).
        lag: The evaluator is the generator as it was this many rounds ago (at the start of the run, the first one).
    """

    def __init__(self, freeze_at: int | None = None, lag: int | None = None) -> None:
        if (freeze_at is None) == (lag is None):
            raise ValueError(f"Exactly one of `freeze_at` and `lag` must be given, got {freeze_at} and {lag}.")
        if freeze_at is not None and freeze_at < 0:
            raise ValueError(f"`freeze_at` must be at least 0, got {freeze_at}.")
        if lag is not None and lag < 1:
            raise ValueError(f"`lag` must be at least 1, got {lag}. Leave the callback out for a live evaluator.")
        self.freeze_at = freeze_at
        self.lag = lag
        self._held: deque[dict[str, Tensor]] = deque(maxlen=1 if lag is None else lag + 1)

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        """Refuse another callback that decides about the evaluator."""
        if any(isinstance(other, CheckpointSwap) and other.role == "evaluator" for other in trainer.callbacks):  # type: ignore[attr-defined]
            raise ValueError("`StaleEvaluator` and a `CheckpointSwap` of the evaluator must not be in one run: leave one of them out.")

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Refuse a round that never comes, and a generator without an adapter: an old copy of a whole model is not held."""
        if pl_module.generator.adapter is None:
            raise ValueError(
                "`StaleEvaluator` must have a generator with a LoRA adapter, got a fully trained one. Set `model.generator.lora`."
            )
        if self.freeze_at is not None and not self._held:
            check_round_ahead("freeze_at", self.freeze_at, pl_module)
        if self.lag is not None and self.lag >= pl_module.num_rounds:
            raise ValueError(
                f"`lag` must be less than the {pl_module.num_rounds} rounds of `model.schedule`, got {self.lag}. For an evaluator that is "
                "never trained use `freeze_at: 0`."
            )

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Remember the generator at the start of the round, and put the old one in the evaluator's place."""
        if self.lag is not None or (pl_module.round >= self.freeze_at and not self._held):
            self._held.append(pl_module.generator.role_state())
        self._install(pl_module)

    def on_validation_start(self, trainer: Trainer, pl_module: Any) -> None:
        """A checkpoint is validated with the evaluator that its run had."""
        self._install(pl_module)

    def on_round_end(self, trainer: Trainer, module: Any, round: Round) -> None:
        """Log how old the evaluator is."""
        if self._held:
            age = len(self._held) - 1 if self.freeze_at is None else round.index - self.freeze_at
            round.metrics["evaluator/rounds_old"] = float(age)

    def teardown(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        """The live generator is the evaluator again."""
        pl_module.evaluator_writer = None

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """The live generator is the evaluator again."""
        pl_module.evaluator_writer = None

    def _install(self, module: Any) -> None:
        if self._held:
            module.evaluator_writer = self.held_evaluator(module)

    def held_evaluator(self, module: Any) -> RubricWriter:
        """The old generator."""
        return module.generator.held_writer(ADAPTER, self._held[0])

    def state_dict(self) -> dict[str, Any]:
        """The old generators, oldest first, and what made them."""
        return {"held": list(self._held), "freeze_at": self.freeze_at, "lag": self.lag}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore :meth:`state_dict`.

        Raises:
            ValueError: If an evaluator is held that other arguments made.
        """
        if state_dict["held"] and (state_dict["freeze_at"], state_dict["lag"]) != (self.freeze_at, self.lag):
            raise ValueError(
                f"`StaleEvaluator` must have the arguments of the run that it goes on with, freeze_at={state_dict['freeze_at']} and "
                f"lag={state_dict['lag']}, got freeze_at={self.freeze_at} and lag={self.lag}. For others start from an earlier checkpoint."
            )
        self._held.clear()
        self._held.extend(state_dict["held"])
