"""Measure what the policy learns from: the score gap on its own responses."""

from __future__ import annotations

import math
from typing import Any

import torch
from lightning import Trainer

from ..gap import pairwise_accuracy, saturation, score_gap, tie_rate
from ..records import Round
from ..roles import ReferenceRanking
from ..rollout import reference_quality
from .base import DRCallback


class GapMonitor(DRCallback):
    """Add Δgap, pairwise accuracy, ties and saturation of the evaluator to each round's metrics.

    Args:
        reference: The reference ranking of the policy's responses (true quality, verifiable correctness, a stronger evaluator). Without one
            there is no Δgap on the policy's responses, and only what needs no reference is measured.
        saturation_margin: A score this close to 0 or 1 is saturated.
    """

    def __init__(self, reference: ReferenceRanking | None = None, saturation_margin: float = 0.05) -> None:
        if not 0 <= saturation_margin < 0.5:
            raise ValueError(f"`saturation_margin` must be in [0, 0.5), got {saturation_margin}.")
        self.reference = reference
        self.saturation_margin = saturation_margin

    def on_round_end(self, trainer: Trainer, module: Any, round: Round) -> None:
        """Add to the metrics of the round."""
        round.metrics.update(self.measure(round))

    def on_validation_round(self, trainer: Trainer, module: Any, round: Round) -> None:
        """Log the same on held-out prompts."""
        size = len(round.batch.prompts)
        module.log_dict({f"val/{key}": value for key, value in self.measure(round).items()}, on_epoch=True, on_step=False, batch_size=size)

    def measure(self, round: Round) -> dict[str, float]:
        """The metrics of one round; those that do not exist are left out."""
        scores = round.scores_BK
        highest, lowest = scores.nan_to_num(nan=-torch.inf).amax(-1), scores.nan_to_num(nan=torch.inf).amin(-1)
        spread = highest - lowest
        found = {
            "gap/saturation": saturation(scores, self.saturation_margin).nanmean(),
            "gap/score_range": spread[torch.isfinite(spread)].mean(),
        }
        if self.reference is not None:
            quality = reference_quality(self.reference, round)
            found |= {
                "gap/policy": score_gap(scores, quality).nanmean(),
                "gap/accuracy": pairwise_accuracy(scores, quality).nanmean(),
                "gap/ties": tie_rate(scores, quality).nanmean(),
                "gap/reference_quality": quality.nanmean(),
            }
        return {name: value.item() for name, value in found.items() if not math.isnan(value.item())}
