"""What validation measures: one value per held-out prompt, and their mean with its confidence interval."""

from __future__ import annotations

import torch
from torch import Tensor

from ..diagnostics import anchor_scores
from ..gap import pairwise_accuracy, score_gap
from ..records import Batch, Evaluation, Round
from ..rollout import anchor_ranks


def validation_values(round_: Round) -> dict[str, Tensor]:
    """One value per held-out prompt ``[B]`` for each metric.

    ``score`` is the policy's, ``length_accuracy`` what preferring the longer answer would get, and the rest is about the live generator's
    rubrics. Where the policy is scored by something else, the same follows about that, as ``evaluator_…``. It must have scored the anchor
    lists (``evaluator_anchors``).
    """
    width = max((len(ranked.answers) for ranked in round_.batch.anchors if ranked is not None), default=0)
    lengths = torch.full((len(round_.batch.anchors), width), torch.nan)
    for row, ranked in enumerate(round_.batch.anchors):
        if ranked is not None:
            lengths[row, : len(ranked.answers)] = torch.tensor([float(len(answer)) for answer in ranked.answers])
    values = {
        "length_accuracy": pairwise_accuracy(lengths, -anchor_ranks(round_.batch, width)),
        "score": round_.scores_BK.nanmean(-1),
    }
    if round_.live:
        values |= rubric_values(round_.live, round_.batch)
    if round_.parted:
        if round_.evaluator:
            of_evaluator = rubric_values(round_.evaluator, round_.batch)
        else:
            of_evaluator = list_values(round_.anchor_scores_BR, round_.batch) if round_.anchor_scores_BR is not None else {}
        values |= {f"evaluator_{name}": found for name, found in of_evaluator.items()}
    return values


def list_values(scores: Tensor, batch: Batch) -> dict[str, Tensor]:
    """How well scores of the anchor lists ``[B, R]`` order them, ``[B]`` each; answers without a score are tied."""
    quality = -anchor_ranks(batch, scores.shape[-1])
    tied = torch.where(~torch.isnan(quality) & torch.isnan(scores), 0.0, scores)
    return {"accuracy": pairwise_accuracy(tied, quality), "gap_anchor": score_gap(tied, quality)}


def rubric_values(draw: Evaluation, batch: Batch) -> dict[str, Tensor]:
    """How good the rubrics of each prompt are ``[B]``.

    A list for which no rubric could be read has all its answers tied: it counts as accuracy 0.5 and gap 0 and is not ``covered``.
    """
    return {
        **list_values(anchor_scores(draw), batch),
        "j_disc": draw.disc_BG.nanmean(-1),
        "j_anchor": draw.anchor_BG.nanmean(-1),
        "covered": draw.readable_BG.any(-1).float(),
        "unreadable": 1 - draw.readable_BG.float().mean(-1),
    }
