"""What a round is logged with, read off its finished record."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lightning_dr.advantages import group_spread
from lightning_dr.gap import pairwise_accuracy, saturation, score_gap
from lightning_dr.records import Evaluation, Round
from lightning_dr.rollout import anchor_ranks
from lightning_dr.scoring import mean_scores


def dead_share(rewards: Tensor, valid: Tensor) -> float:
    """Share of the groups ``[B, N]`` whose valid members (if any) all have the same reward, so that nothing is learned from them."""
    return 1.0 - group_spread(rewards, valid & ~torch.isnan(rewards)).float().mean().item()


def anchor_scores(draw: Evaluation) -> Tensor:
    """Score of each anchor answer, the mean over the readable rubrics ``[B, R]``; NaN where there is none."""
    return mean_scores(draw.anchor_scores_BGR)


def alike(verdicts: Tensor, margin: float = 0.05) -> Tensor:
    """Which items do not tell the responses apart: verdicts within ``margin`` of one another, ``[..., K, M]`` -> boolean ``[..., M]``."""
    missing = torch.isnan(verdicts)
    spread = torch.where(missing, -torch.inf, verdicts).amax(-2) - torch.where(missing, torch.inf, verdicts).amin(-2)
    return (spread <= margin) & ~missing.all(-2)


def policy_metrics(round_: Round) -> dict[str, float]:
    """Scores, dead groups and lengths of the responses."""
    responses = [response for group in round_.responses for response in group]
    scores = round_.scores_BK
    return {
        "policy/score": scores.nanmean().item(),
        "policy/score_saturation": saturation(scores).nanmean().item(),
        "policy/dead_groups": dead_share(round_.policy_rewards_BK, round_.policy_valid_BK),
        "policy/prompts_without_score": torch.isnan(scores).all(-1).float().mean().item(),
        "policy/truncated": sum(not response.finished for response in responses) / len(responses),
        "policy/tokens": sum(len(response.token_ids) for response in responses) / len(responses),
        "policy/distinct": sum(len({r.text for r in group}) / len(group) for group in round_.responses) / len(round_.responses),
    }


def generator_metrics(round_: Round) -> dict[str, float]:
    """Rewards, readability and shape of the live rubrics."""
    live = round_.live
    draws = [draw for group in live.rubrics for draw in group]
    rubrics = [draw.rubric for draw in draws if draw.rubric is not None]
    items = sum(len(rubric.items) for rubric in rubrics)
    return {
        "generator/j_disc": live.disc_BG.nanmean().item(),
        "generator/j_anchor": live.anchor_BG.nanmean().item(),
        "generator/unreadable": 1 - len(rubrics) / len(draws),
        "generator/truncated": sum(not draw.completion.finished for draw in draws) / len(draws),
        "generator/dead_groups": 1.0 - (round_.generator_advantages_BG != 0).any(-1).float().mean().item(),
        "generator/items": items / len(rubrics) if rubrics else math.nan,
        "generator/repeated_items": 1 - live.item_mask_BGM.sum().item() / items if items else math.nan,
        "generator/dead_items": alike(live.verdicts_BGKM)[live.item_mask_BGM].float().mean().item(),
        "generator/tokens": sum(len(draw.completion.token_ids) for draw in draws) / len(draws),
    }


def anchor_metrics(round_: Round) -> dict[str, float]:
    """How the live rubrics order the anchor lists: Δgap and pairwise accuracy against the anchors' ranks."""
    scores = anchor_scores(round_.live)
    quality = -anchor_ranks(round_.batch, scores.shape[-1])
    return {
        "gap/anchor": score_gap(scores, quality).nanmean().item(),
        "anchor/accuracy": pairwise_accuracy(scores, quality).nanmean().item(),
    }


def round_metrics(round_: Round) -> dict[str, float]:
    """All of the above, whether evaluator and live generator are parted, what the verifier did, and the seconds of each stage.

    A metric that does not exist is left out.
    """
    found = {
        **policy_metrics(round_),
        "evaluator/parted": float(round_.parted),
        **{f"seconds/{stage}": seconds for stage, seconds in round_.seconds.items()},
    }
    if round_.live:
        found |= generator_metrics(round_) | anchor_metrics(round_)
    if draw := round_.evaluator or round_.live:
        found |= {"verifier/yes_rate": draw.verdicts_BGKM.nanmean().item(), "verifier/failures": draw.verdict_failures}
    return {name: value for name, value in found.items() if not math.isnan(value)}
