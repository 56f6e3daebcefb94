"""Put a saved adapter in a role's place."""

from __future__ import annotations

from typing import Any, Literal

from lightning import Trainer
from torch import Tensor

from ..modules.role import read_adapter
from .base import DRCallback, check_round_ahead


class CheckpointSwap(DRCallback):
    """Swap a saved adapter in, at a round or for validation.

    ``role: evaluator`` scores the policy with the saved generator, and leaves the live one to learn from its own rubrics. Swapped into
    ``policy`` or ``generator`` at a round, the adapter is what that role goes on training from (its optimizer keeps its state).

    Args:
        role: Whose place it takes.
        path: Folder of the saved adapter, such as ``<run>/checkpoints/round-00010/generator``.
        at_round: Swap at the start of this round, for good. Of several evaluators the one with the latest round that has come scores the
            policy.
        validation: Swap for each validation only, and back after it.
    """

    def __init__(
        self, role: Literal["policy", "generator", "evaluator"], path: str, at_round: int | None = None, validation: bool = False
    ) -> None:
        if role not in ("policy", "generator", "evaluator"):
            raise ValueError(f"`role` must be 'policy', 'generator' or 'evaluator', got {role!r}.")
        if (at_round is None) == (not validation):
            raise ValueError(f"Exactly one of `at_round` and `validation` must be set, got {at_round} and {validation}.")
        self.role = role
        self.path = path
        self.at_round = at_round
        self.validation = validation
        self._saved = read_adapter(path, "policy" if role == "policy" else "generator")
        self._before: dict[str, Tensor] | None = None
        self._writer_before: Any = None
        self._swapped = False

    @property
    def state_key(self) -> str:
        """Several swaps in one run keep their states apart."""
        return self._generate_state_key(role=self.role, path=self.path, at_round=self.at_round, validation=self.validation)

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        """Refuse a role without an adapter."""
        owner = pl_module.roles["policy" if self.role == "policy" else "generator"]
        if owner.lora is None:
            raise ValueError(f"`CheckpointSwap` must have a {owner.role} with a LoRA adapter. Set `model.{owner.role}.lora`.")

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Refuse a round that never comes. An evaluator may be swapped in by a run that goes on from a later round."""
        if self.at_round is not None and not self._swapped:
            check_round_ahead("at_round", self.at_round, pl_module, past=self.role == "evaluator")

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Swap at the start of the round; an evaluator is put back in place in a resumed run."""
        if self.at_round is None or pl_module.round < self.at_round:
            return
        if self.role == "evaluator":
            self._install(trainer, pl_module, pl_module.round)
        elif not self._swapped:
            self._swap(pl_module)
            self._swapped = True

    def on_validation_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Swap for validation; a checkpoint is validated with the evaluator that its last round had."""
        if self.validation:
            self._swap(pl_module)
        elif self.role == "evaluator":
            self._install(trainer, pl_module, pl_module.round - 1)

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Swap back after validation."""
        if self.validation:
            self._restore(pl_module)

    def teardown(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        """The live generator is the evaluator again."""
        if self.role == "evaluator":
            pl_module.evaluator_writer = None

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """Leave nothing swapped in that was meant for a while."""
        if self.validation:
            self._restore(pl_module)
        self.teardown(trainer, pl_module, "exception")

    def _install(self, trainer: Trainer, module: Any, round_index: int) -> None:
        """Put the evaluator in place, if no other one was to come in after it by this round."""
        swaps = [other for other in trainer.callbacks if isinstance(other, CheckpointSwap) and other.role == "evaluator"]  # type: ignore[attr-defined]
        due = [other for other in swaps if other.at_round is not None and other.at_round <= round_index]
        if due and max(due, key=lambda other: other.at_round or 0) is self and not self._swapped_in(module):
            self._swap(module)

    @property
    def _adapter(self) -> str:
        """The frozen adapter that holds an evaluator: one for each swap."""
        return f"swapped_evaluator_{'validation' if self.at_round is None else self.at_round}"

    def _swapped_in(self, module: Any) -> bool:
        return getattr(module.evaluator_writer, "adapter", None) == self._adapter

    def _swap(self, module: Any) -> None:
        if self.role == "evaluator":
            self._writer_before = module.evaluator_writer
            module.evaluator_writer = module.generator.held_writer(self._adapter, self._saved)
            return
        role = module.roles[self.role]
        self._before = role.role_state()
        role.load_role_state(self._saved)

    def _restore(self, module: Any) -> None:
        if self.role == "evaluator":
            if self._swapped_in(module):
                module.evaluator_writer = self._writer_before
        elif self._before is not None:
            module.roles[self.role].load_role_state(self._before)
        self._before = None

    def state_dict(self) -> dict[str, Any]:
        """Whether the swap of a role has been done."""
        return {"swapped": self._swapped}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore :meth:`state_dict`."""
        self._swapped = state_dict["swapped"]
