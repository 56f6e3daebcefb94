"""How far an evaluator separates better from worse: Δgap, pairwise accuracy, saturation.

The pair distribution P(·|x, C), which the paper leaves open, is explicit: uniform over the ordered pairs (y+, y−) of a set that a
*reference ranking* orders strictly.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


def ordered_pairs(scores: Tensor, reference: Tensor) -> tuple[Tensor, Tensor]:
    """Score differences E(y+) − E(y−) of all ordered pairs, and which of them count.

    Args:
        scores: ``[..., K]``; NaN where a response has no score.
        reference: ``[..., K]``, higher is better; NaN where unknown.

    Returns:
        Differences ``[..., P]`` over the P = K(K−1)/2 pairs, signed so that the better one comes first (0 where a pair does not
        count), and a boolean ``[..., P]``: the reference orders the pair strictly and both scores exist.

    Raises:
        ValueError: If the shapes differ.
    """
    if scores.shape != reference.shape:
        raise ValueError(f"`reference` must have the shape of `scores`, got {tuple(reference.shape)} for {tuple(scores.shape)}.")
    scores = scores if scores.is_floating_point() else scores.float()
    first, second = torch.triu_indices(scores.shape[-1], scores.shape[-1], offset=1, device=scores.device)
    better = torch.sign(reference[..., first] - reference[..., second]).to(scores.dtype)
    difference = (scores[..., first] - scores[..., second]) * better
    counted = ~torch.isnan(difference) & (better != 0)
    return torch.where(counted, difference, 0.0), counted


def score_gap(scores: Tensor, reference: Tensor) -> Tensor:
    r"""Δgap of each set: the mean score difference between the better and the worse response of an ordered pair (Eq. 2).

    .. math:: \Delta_{gap} = \mathbb{E}_{(y^+, y^-) \sim P(\cdot \mid x, C)} [E(x, y^+ \mid C) - E(x, y^- \mid C)]

    Args:
        scores: ``[..., K]``; NaN where a response has no score.
        reference: ``[..., K]`` reference quality, higher is better (for ranks, pass ``-ranks``); NaN where unknown.

    Returns:
        ``[...]`` in [−1, 1]; positive: the evaluator agrees with the reference. NaN where no pair is strictly ordered.

    Raises:
        ValueError: If the shapes differ.

    Example:
        >>> score_gap(torch.tensor([1.0, 0.5, 0.0]), torch.tensor([3.0, 1.0, 1.0]))  # pairs (0,1) and (0,2)
        tensor(0.7500)
    """
    difference, counted = ordered_pairs(scores, reference)
    return difference.sum(-1) / counted.sum(-1)


def pairwise_accuracy(scores: Tensor, reference: Tensor) -> Tensor:
    """Share of the ordered pairs that the scores order like the reference; a tie of scores counts one half.

    Args:
        scores: ``[..., K]``; NaN where a response has no score.
        reference: ``[..., K]``, higher is better; NaN where unknown.

    Returns:
        ``[...]`` in [0, 1]; 0.5 is chance. NaN where no pair is strictly ordered.

    Example:
        >>> pairwise_accuracy(torch.tensor([1.0, 1.0, 0.0]), torch.tensor([3.0, 2.0, 1.0]))  # a tie and two right
        tensor(0.8333)
    """
    difference, counted = ordered_pairs(scores, reference)
    right = (torch.sign(difference) + 1) / 2
    return torch.where(counted, right, 0.0).sum(-1) / counted.sum(-1)


def tie_rate(scores: Tensor, reference: Tensor) -> Tensor:
    """Share of the ordered pairs that the scores do not tell apart: ``[..., K]`` -> ``[...]``, NaN where no pair is ordered."""
    difference, counted = ordered_pairs(scores, reference)
    return (counted & (difference == 0)).sum(-1) / counted.sum(-1)


def saturation(scores: Tensor, margin: float = 0.05) -> Tensor:
    """Share of the scores within ``margin`` of 0 or 1, where an evaluator has no room left: ``[..., K]`` -> ``[...]``."""
    known = ~torch.isnan(scores)
    return (known & ((scores <= margin) | (scores >= 1 - margin))).sum(-1) / known.sum(-1)


class MeanInterval(NamedTuple):
    """A mean, its 95% confidence interval, and the number of values behind it."""

    mean: float
    low: float
    high: float
    size: int


def mean_interval(values: Tensor) -> MeanInterval:
    """Mean of the values that exist, with a normal 95% interval (mean ± 1.96 s/√n; s has n−1 in its denominator).

    Args:
        values: One value per independent unit (per prompt, not per pair) ``[n]``; NaN is left out.

    Returns:
        The interval is infinite for a single value, and all is NaN for none.

    Example:
        >>> interval = mean_interval(torch.tensor([0.0, 1.0, 0.0, 1.0]))  # s = 0.577, 1.96 * s / 2 = 0.566
        >>> interval.mean, round(interval.low, 3), round(interval.high, 3), interval.size
        (0.5, -0.066, 1.066, 4)
    """
    values = values[~torch.isnan(values)].double()
    count = values.numel()
    if count == 0:
        return MeanInterval(math.nan, math.nan, math.nan, 0)
    mean = values.mean().item()
    half = 1.96 * values.std().item() / math.sqrt(count) if count > 1 else math.inf
    return MeanInterval(mean, mean - half, mean + half, count)
