"""What validation measures: one value per held-out prompt, and their mean with its confidence interval."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from ..diagnostics import anchor_scores
from ..gap import MeanInterval, mean_interval, pairwise_accuracy, score_gap
from ..records import Round
from ..rollout import anchor_ranks


class IntervalMetric(Metric):
    """Collects one value per prompt; computes :func:`lightning_dr.gap.mean_interval`."""

    full_state_update = False
    values: list[Tensor]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("values", default=[], dist_reduce_fx="cat")

    def update(self, values: Tensor) -> None:
        """Add values ``[n]``; NaN does not count."""
        self.values.append(values)

    def compute(self) -> MeanInterval:
        """Mean, 95% interval and number of values."""
        return mean_interval(dim_zero_cat(self.values))


VALIDATION_METRICS = ("accuracy", "length_accuracy", "gap_anchor", "j_disc", "j_anchor", "covered", "unreadable", "score")


def validation_values(round_: Round) -> dict[str, Tensor]:
    """One value per held-out prompt ``[B]``, for each of ``VALIDATION_METRICS``.

    A list for which no rubric could be read has all its answers tied: it counts as accuracy 0.5 and gap 0 and is not ``covered``.
    ``length_accuracy`` is what preferring the longer answer would get.
    """
    scores = anchor_scores(round_)
    quality = -anchor_ranks(round_.batch, scores.shape[-1])
    lengths = torch.full_like(scores, torch.nan)
    for row, ranked in enumerate(round_.batch.anchors):
        if ranked is not None:
            lengths[row, : len(ranked.answers)] = torch.tensor([float(len(answer)) for answer in ranked.answers])
    listed = ~torch.isnan(quality)
    tied = torch.where(listed & torch.isnan(scores), 0.0, scores)
    return {
        "accuracy": pairwise_accuracy(tied, quality),
        "length_accuracy": pairwise_accuracy(lengths, quality),
        "gap_anchor": score_gap(tied, quality),
        "j_disc": round_.live.disc_BG.nanmean(-1),
        "j_anchor": round_.live.anchor_BG.nanmean(-1),
        "covered": round_.live.readable_BG.any(-1).float(),
        "unreadable": 1 - round_.live.readable_BG.float().mean(-1),
        "score": round_.scores_BK.nanmean(-1),
    }
