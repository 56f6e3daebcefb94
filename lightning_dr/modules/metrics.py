"""What is measured on response sets, as torchmetrics classes: right when a dataset is split over processes.

Each takes whole sets (one prompt a row) and computes the mean over prompts with its 95% interval, on top of the pure functions of
:mod:`lightning_dr.gap` and :mod:`lightning_dr.rewards`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from ..advantages import group_spread
from ..gap import MeanInterval, mean_interval, pairwise_accuracy, saturation, score_gap, tie_rate
from ..rewards import PairWeights, Spread, anchor_agreement, discriminability


class IntervalMetric(Metric):
    """Collects one value per prompt; computes :func:`lightning_dr.gap.mean_interval`."""

    full_state_update = False
    values: list[Tensor]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("values", default=[], dist_reduce_fx="cat")

    def update(self, values: Tensor) -> None:
        """Add values ``[n]``; NaN does not count."""
        self.values.append(values.flatten())

    def compute(self) -> MeanInterval:
        """Mean, 95% interval and number of values."""
        # After a synchronisation the values are one tensor.
        return mean_interval(dim_zero_cat(self.values) if isinstance(self.values, Tensor) or self.values else torch.empty(0))


class ScoreGap(IntervalMetric):
    """Δgap (Eq. 2): see :func:`lightning_dr.gap.score_gap`."""

    def update(self, scores: Tensor, reference: Tensor) -> None:  # type: ignore[override]
        """Add sets: scores and reference quality ``[B, K]``."""
        super().update(score_gap(scores, reference))


class PairwiseAccuracy(IntervalMetric):
    """Share of the pairs ordered right, a tie half: see :func:`lightning_dr.gap.pairwise_accuracy`."""

    def update(self, scores: Tensor, reference: Tensor) -> None:  # type: ignore[override]
        """Add sets: scores and reference quality ``[B, K]``."""
        super().update(pairwise_accuracy(scores, reference))


class TieRate(IntervalMetric):
    """Share of the pairs that are not told apart: see :func:`lightning_dr.gap.tie_rate`."""

    def update(self, scores: Tensor, reference: Tensor) -> None:  # type: ignore[override]
        """Add sets: scores and reference quality ``[B, K]``."""
        super().update(tie_rate(scores, reference))


class Saturation(IntervalMetric):
    """Share of the scores near 0 or 1: see :func:`lightning_dr.gap.saturation`.

    Args:
        margin: How near.
    """

    def __init__(self, margin: float = 0.05, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.margin = margin

    def update(self, scores: Tensor) -> None:
        """Add sets: scores ``[B, K]``."""
        super().update(saturation(scores, self.margin))


class DeadGroups(IntervalMetric):
    """Share of the sets in which all rewards are the same, so that nothing is learned from them."""

    def update(self, rewards: Tensor) -> None:
        """Add sets: rewards ``[B, K]``, NaN where there is none."""
        super().update(1.0 - group_spread(rewards, ~torch.isnan(rewards)).float())


class Discriminability(IntervalMetric):
    """J_disc (Eq. 14): see :func:`lightning_dr.rewards.discriminability`.

    Args:
        spread: ``"bernoulli"`` or ``"between"``.
    """

    def __init__(self, spread: Spread = "bernoulli", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spread: Spread = spread

    def update(self, verdicts: Tensor, weights: Tensor, item_mask: Tensor | None = None) -> None:  # type: ignore[override]
        """Add rubrics: verdicts ``[..., K, M]``, weights ``[..., M]`` and mask; every rubric is one value."""
        super().update(discriminability(verdicts, weights, item_mask, self.spread))


class AnchorAgreement(IntervalMetric):
    """J_anchor (Eq. 16): see :func:`lightning_dr.rewards.anchor_agreement`.

    Args:
        temperature: τ.
        pair_weights: ``"paper"`` or ``"uniform"``.
    """

    def __init__(self, temperature: float = 1.0, pair_weights: PairWeights = "paper", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.temperature = temperature
        self.pair_weights: PairWeights = pair_weights

    def update(self, scores: Tensor, ranks: Tensor) -> None:  # type: ignore[override]
        """Add lists: scores and ranks ``[..., R]``."""
        super().update(anchor_agreement(scores, ranks, self.temperature, self.pair_weights))
