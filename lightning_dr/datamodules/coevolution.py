"""One data module out of two: prompts with anchor lists, and prompts without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..records import Batch
from .nectar import NectarAnchorDataModule
from .prompts import PromptDataModule
from .stream import RoundDataModule


class CoEvolutionDataModule(RoundDataModule):
    """A round's batch is the anchors' batch followed by the prompts' batch; prompts without a list give the generator no J_anchor.

    Args:
        anchors: Prompts with ranked answers.
        prompts: More prompts for the policy.
    """

    def __init__(self, anchors: NectarAnchorDataModule | None = None, prompts: PromptDataModule | None = None) -> None:
        self.parts: list[RoundDataModule] = [part for part in (anchors, prompts) if part is not None]
        if not self.parts:
            raise ValueError("At least one of `anchors` and `prompts` must be given, got none.")
        super().__init__(batch_size=sum(part.batch_size for part in self.parts))

    def setup(self, stage: str) -> None:
        """Set both up."""
        for part in self.parts:
            part.setup(stage)

    @property
    def is_set_up(self) -> bool:
        """Whether the rows of both are known."""
        return all(part.is_set_up for part in self.parts)

    @property
    def num_held_out(self) -> int:
        """Prompts that validation sees."""
        return sum(part.num_val for part in self.parts)

    @property
    def num_val_batches(self) -> int:
        """Batches of one validation: as many as the longer part needs."""
        return max(part.num_val_batches for part in self.parts)

    def batch(self, index: int) -> Batch:
        """Training batch ``index``: those of the parts, one after another."""
        return join(index, [part.batch(index) for part in self.parts])

    def val_batch(self, index: int) -> Batch:
        """Validation batch ``index``; a part that has run out adds nothing."""
        return join(index, [part.val_batch(index) for part in self.parts if index < part.num_val_batches])

    def identity(self) -> dict[str, Any]:
        """What must be the same for a position to mean the same batch."""
        return {type(part).__name__: part.identity() for part in self.parts}


def join(index: int, batches: Sequence[Batch]) -> Batch:
    """Batches one after another."""
    return Batch(
        index=index,
        prompts=tuple(prompt for batch in batches for prompt in batch.prompts),
        anchors=tuple(ranked for batch in batches for ranked in batch.anchors),
    )
