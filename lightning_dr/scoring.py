"""Verdicts and weights -> scores."""

from __future__ import annotations

import torch
from torch import Tensor


def readable(verdicts: Tensor, item_mask: Tensor | None) -> Tensor:
    """Which verdicts count: readable (not NaN) and not masked out.

    Args:
        verdicts: ``[..., K, M]`` in [0, 1], NaN where a verdict could not be read.
        item_mask: ``[..., M]`` (False: a padded item) or ``[..., K, M]`` (False: this verdict does not count).

    Returns:
        Boolean ``[..., K, M]``.

    Raises:
        ValueError: If the mask has another shape.
    """
    mask = ~torch.isnan(verdicts)
    if item_mask is None:
        return mask
    if item_mask.shape == verdicts.shape:
        return mask & item_mask.bool()
    if item_mask.shape == verdicts.shape[:-2] + verdicts.shape[-1:]:
        return mask & item_mask.bool().unsqueeze(-2)
    raise ValueError(
        f"`item_mask` must have shape [..., M] or [..., K, M], got {tuple(item_mask.shape)} for verdicts "
        f"{tuple(verdicts.shape)}. Give one entry per item or one per verdict."
    )


def check_weights(verdicts: Tensor, weights: Tensor, mask: Tensor) -> None:
    """Raise ValueError unless the weights are ``[..., M]`` and positive and the verdicts are in [0, 1] where they count."""
    if weights.shape != verdicts.shape[:-2] + verdicts.shape[-1:]:
        raise ValueError(
            f"`weights` must have shape [..., M], got {tuple(weights.shape)} for verdicts {tuple(verdicts.shape)}. "
            "Give one weight per item."
        )
    counted = weights[mask.any(dim=-2)]
    if not bool((torch.isfinite(counted) & (counted > 0)).all()):
        raise ValueError("`weights` must be finite and positive where an item counts. Mask the items that do not.")
    values = verdicts[mask]
    if not bool(((values >= 0) & (values <= 1)).all()):
        raise ValueError("`verdicts` must lie in [0, 1] where they count. Give yes as 1, no as 0 or P(yes).")


def weighted_scores(verdicts: Tensor, weights: Tensor, item_mask: Tensor | None = None) -> Tensor:
    r"""The score E of each response: the weighted share of items answered yes.

    .. math:: E(x, y \mid C) = \frac{\sum_m w_m v_m(y)}{\sum_m w_m}

    A verdict that is NaN or masked out leaves both sums of its response.

    Args:
        verdicts: ``[..., K, M]``: 1 yes, 0 no, or P(yes); NaN where it could not be read.
        weights: ``[..., M]``, positive.
        item_mask: ``[..., M]``, False for padded items, or ``[..., K, M]``, False for single verdicts.

    Returns:
        Scores ``[..., K]`` in [0, 1]; NaN for a response with no verdict that counts (never 0).

    Raises:
        ValueError: If shapes do not fit, a counted weight is not positive, or a counted verdict is outside [0, 1].

    Example:
        >>> weighted_scores(torch.tensor([[1.0, 0.0], [1.0, 1.0]]), torch.tensor([3.0, 1.0]))
        tensor([0.7500, 1.0000])
    """
    verdicts = verdicts if verdicts.is_floating_point() else verdicts.float()
    mask = readable(verdicts, item_mask)
    check_weights(verdicts, weights, mask)
    weight = torch.where(mask, weights.unsqueeze(-2).to(verdicts.dtype), 0.0)
    return (weight * torch.where(mask, verdicts, 0.0)).sum(-1) / weight.sum(-1)


def fill_missing(values: Tensor, dim: int) -> Tensor:
    """Put the mean of the values that exist in the place of those that do not, so that nobody gains or loses by them.

    Args:
        values: Any shape; NaN where there is no value.
        dim: The dimension to average over.

    Returns:
        The same shape; NaN only where all along ``dim`` are missing.

    Example:
        >>> fill_missing(torch.tensor([1.0, torch.nan, 0.0]), 0)
        tensor([1.0000, 0.5000, 0.0000])
    """
    return torch.where(torch.isnan(values), values.nanmean(dim, keepdim=True), values)


def set_scores(verdicts: Tensor, weights: Tensor, item_mask: Tensor | None = None) -> Tensor:
    """:func:`weighted_scores` of a set whose scores are compared: all over the same items.

    Were a missing verdict just left out, a response that was not asked a hard item would beat its equals. So it counts as the item's mean
    over the set, where the response has another verdict that could be read.

    Args:
        verdicts: See :func:`weighted_scores`.
        weights: See :func:`weighted_scores`.
        item_mask: See :func:`weighted_scores`.

    Returns:
        Scores ``[..., K]``; NaN for a response with no verdict that counts.

    Example:
        >>> set_scores(torch.tensor([[1.0, 0.0], [1.0, torch.nan]]), torch.ones(2))
        tensor([0.5000, 0.5000])
    """
    scores = weighted_scores(verdicts, weights, item_mask)
    masked = torch.where(readable(verdicts, item_mask), verdicts, torch.nan)
    filled = weighted_scores(fill_missing(masked, -2), weights, item_mask)
    return torch.where(torch.isnan(scores), scores, filled)


def mean_scores(scores: Tensor) -> Tensor:
    """Mean over the rubrics, ``[..., G, K]`` -> ``[..., K]``, of responses that are compared.

    Where a rubric has no score for a response, the rubric's mean over the set stands in: were it left out, a response that a strict
    rubric did not score would beat its equals. NaN where no rubric scores the response.

    Example:
        >>> mean_scores(torch.tensor([[1.0, 1.0], [0.0, torch.nan]]))
        tensor([0.5000, 0.5000])
    """
    missing = torch.isnan(scores).all(-2)
    return torch.where(missing, torch.nan, fill_missing(scores, -1).nanmean(-2))
