"""The generator's rewards, each a term of its own: discriminability, anchor agreement, format."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from lightning_dr.scoring import check_weights, readable

PairWeights = Literal["paper", "uniform"]
Spread = Literal["bernoulli", "between"]


def discriminability(verdicts: Tensor, weights: Tensor, item_mask: Tensor | None = None, spread: Spread = "bernoulli") -> Tensor:
    r"""J_disc: the weighted Bernoulli variance of the verdicts over the response set (Eq. 14).

    .. math:: J_{disc} = \frac{\sum_m w_m p_m (1 - p_m)}{\sum_m w_m}, \qquad p_m = \operatorname{mean}_{y \in C} v_m(y)

    It is blind to direction, truth and repetition: an item and its negation earn the same. With verdicts that are P(yes), Eq. 14 is the
    sum of two parts, the variance of the verdicts between the responses and the verifier's own doubt, the mean of v (1 − v): a verifier
    that says 1/2 to everything would earn the most. ``spread="between"`` counts the first part alone; with yes/no verdicts both are equal.

    Args:
        verdicts: ``[..., K, M]``: 1 yes, 0 no, or P(yes); NaN where it could not be read.
        weights: ``[..., M]``, positive.
        item_mask: ``[..., M]``, False for padded items, or ``[..., K, M]``, False for single verdicts (padded responses).
        spread: ``"bernoulli"``: Eq. 14. ``"between"``: without the verifier's doubt.

    Returns:
        ``[...]`` in [0, 0.25]; higher separates the set better. NaN where no verdict counts.

    Raises:
        ValueError: If shapes do not fit, a counted weight is not positive, a counted verdict is outside [0, 1], or ``spread`` is unknown.

    Example:
        >>> discriminability(torch.tensor([[1.0, 1.0], [0.0, 1.0]]), torch.tensor([3.0, 1.0]))  # p = 1/2, 1
        tensor(0.1875)
    """
    if spread not in get_args(Spread):
        raise ValueError(f"`spread` must be one of {get_args(Spread)}, got {spread!r}.")
    verdicts = verdicts if verdicts.is_floating_point() else verdicts.float()
    mask = readable(verdicts, item_mask)
    check_weights(verdicts, weights, mask)
    count = mask.sum(-2)
    share = torch.where(mask, verdicts, 0.0).sum(-2) / count
    variance = share * (1 - share)
    if spread == "between":
        variance = variance - torch.where(mask, verdicts * (1 - verdicts), 0.0).sum(-2) / count
    counted = mask.any(-2)
    weight = torch.where(counted, weights.to(verdicts.dtype), 0.0)
    return (weight * torch.where(counted, variance, 0.0)).sum(-1) / weight.sum(-1)


def anchor_agreement(scores: Tensor, ranks: Tensor, temperature: float = 1.0, pair_weights: PairWeights = "paper") -> Tensor:
    r"""J_anchor: how well scores order a ranked list (Eq. 16).

    .. math:: J_{anchor} = \sum_{i<j} a_{ij} \log \sigma\!\left(\frac{E(y_i) - E(y_j)}{\tau}\right)

    over the list sorted best first; i and j are 1-based positions in the sorted list (the order among equal ranks is
    the given one), and pairs of equal rank do not count. ``"paper"``: :math:`a_{ij} = 1 / ((j - i)\, 2^{i-1})`, a sum.
    ``"uniform"``: the mean over the pairs. A pair with a missing score counts as the weighted mean of the others, so that a rubric gains
    nothing from answers that were not scored.

    Args:
        scores: ``[..., R]``; NaN where an answer has no score.
        ranks: ``[..., R]``, 1 is best; NaN where an answer has no rank (or is padding), which leaves it out.
        temperature: τ > 0. The paper's form has none (1).
        pair_weights: ``"paper"`` or ``"uniform"``.

    Returns:
        ``[...]``, at most 0, higher agrees better; NaN where no ranked pair has both scores.

    Raises:
        ValueError: If shapes differ, ``temperature`` is not positive, or ``pair_weights`` is unknown.

    Example:
        >>> anchor_agreement(torch.zeros(7), torch.arange(1.0, 8.0))
        tensor(-3.0961)
    """
    if scores.shape != ranks.shape:
        raise ValueError(f"`ranks` must have the shape of `scores`, got {tuple(ranks.shape)} for {tuple(scores.shape)}.")
    if not temperature > 0:
        raise ValueError(f"`temperature` must be positive, got {temperature}.")
    if pair_weights not in get_args(PairWeights):
        raise ValueError(f"`pair_weights` must be one of {get_args(PairWeights)}, got {pair_weights!r}.")
    scores = scores if scores.is_floating_point() else scores.float()
    ranks = ranks.to(scores.dtype)
    missing = torch.isnan(ranks)
    order = torch.where(missing, torch.inf, ranks).argsort(dim=-1, stable=True)
    scores, ranks = scores.gather(-1, order), ranks.gather(-1, order)
    first, second = torch.triu_indices(scores.shape[-1], scores.shape[-1], offset=1, device=scores.device)
    gap = scores[..., first] - scores[..., second]
    ordered = ranks[..., first] < ranks[..., second]
    counted = ordered & ~torch.isnan(gap)
    terms = torch.where(counted, logsigmoid(torch.where(counted, gap, 0.0) / temperature), 0.0)
    weights = 1 / ((second - first) * 2.0**first) if pair_weights == "paper" else torch.ones_like(first, dtype=scores.dtype)
    mean = (weights * terms).sum(-1) / (weights * counted).sum(-1)
    return mean * (weights * ordered).sum(-1) if pair_weights == "paper" else mean


def format_reward(readable_rubric: Tensor) -> Tensor:
    """0 for a rubric that could be read, −1 for one that could not.

    Args:
        readable_rubric: Boolean ``[...]``.

    Example:
        >>> format_reward(torch.tensor([True, False]))
        tensor([ 0., -1.])
    """
    return readable_rubric.float() - 1.0


def with_floor(rewards: Tensor, readable_rubric: Tensor) -> Tensor:
    """Give the unreadable rubrics of a group the lowest reward that a readable one of the group earned.

    Not given in the source. Together with :func:`format_reward` an unreadable rubric is always worse than a readable one,
    whatever the scale of the other rewards.

    Args:
        rewards: ``[..., G]``; NaN where there is no reward.
        readable_rubric: Boolean ``[..., G]``.

    Returns:
        ``[..., G]``; NaN where a readable rubric has no reward (its verdicts are missing: not its fault); 0 for the unreadable
        rubrics of a group in which no readable one has a reward.
    """
    earned = torch.where(readable_rubric, rewards, torch.nan)
    floor = torch.where(torch.isnan(earned), torch.inf, earned).amin(-1, keepdim=True)
    floor = torch.where(torch.isinf(floor), 0.0, floor)
    return torch.where(readable_rubric, earned, floor)
