"""Leave rubric items out at random."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from lightning import Trainer

from ..records import UNSET, Evaluation, Round
from .base import DRCallback


class ItemDropout(DRCallback):
    """In training, drop each item of a rubric with some probability before scores and rewards; a rubric keeps at least one.

    The policy can then rely less on any single item, and the generator earns nothing by one that was dropped.

    Args:
        probability: Of an item to be dropped, in [0, 1).
    """

    def __init__(self, probability: float = 0.3) -> None:
        if not 0 <= probability < 1:
            raise ValueError(f"`probability` must be in [0, 1), got {probability}.")
        self.probability = probability

    def on_verdicts(self, trainer: Trainer, module: Any, round: Round) -> Round:
        """Mask items of both draws, the same way where they are the same."""
        live = self.drop(round.live) if round.live else UNSET
        if not round.parted:
            return replace(round, live=live, evaluator=live)
        return replace(round, live=live, evaluator=self.drop(round.evaluator) if round.evaluator else UNSET)

    def drop(self, draw: Evaluation) -> Evaluation:
        """One draw with fewer items."""
        mask = draw.item_mask_BGM
        chance = torch.where(mask, torch.rand(mask.shape), 2.0)
        # The item with the highest number stays in any case.
        last = torch.where(mask, chance, -1.0).argmax(-1, keepdim=True)
        kept = mask & ((chance >= self.probability) | torch.zeros_like(mask).scatter(-1, last, True))
        return replace(draw, item_mask_BGM=kept)
