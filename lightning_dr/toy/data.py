"""Prompts and ranked anchor answers of the toy world."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from lightning_dr.datamodules.stream import RoundDataModule
from lightning_dr.records import AnchorList, Batch
from lightning_dr.toy.world import ToyWorld


class ToyDataModule(RoundDataModule):
    """Every topic with many anchor lists.

    Args:
        num_topics: Topics of the world.
        lists_per_topic: Different anchor lists for each topic.
        world_seed: Draws the hidden worths.
        batch_size: Prompts per round.
        seed: Order of the rows, and which are held out.
        num_val: Rows held out for validation.
    """

    def __init__(
        self, num_topics: int = 8, lists_per_topic: int = 64, world_seed: int = 0, batch_size: int = 8, seed: int = 0, num_val: int = 64
    ) -> None:
        super().__init__(batch_size=batch_size, seed=seed, num_val=num_val)
        self.world_seed = world_seed
        self.world = ToyWorld(num_topics, world_seed)
        rng = random.Random(world_seed)
        self.rows = [(topic, self.world.anchors(topic, rng)) for topic in self.world.topics for _ in range(lists_per_topic)]

    def setup(self, stage: str) -> None:
        """Hold rows out."""
        self.hold_out(self.rows)

    def make_batch(self, index: int, rows: Sequence[tuple[str, AnchorList]]) -> Batch:
        """Prompts with their lists."""
        return Batch(index=index, prompts=tuple(self.world.prompt(topic) for topic, _ in rows), anchors=tuple(lists for _, lists in rows))

    def identity(self) -> dict[str, Any]:
        """What must be the same for a position to mean the same batch."""
        return super().identity() | {"world_seed": self.world_seed}
