"""Group-relative advantages over the valid members."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

Scale = Literal["std", "none"]
DEAD_SPREAD = 1e-6
"""A group whose rewards differ by no more than this (relative to the largest) has no spread: it is dead."""


def group_spread(rewards: Tensor, valid: Tensor) -> Tensor:
    """Which groups have at least two valid members with different rewards: ``[..., N]`` -> boolean ``[...]``."""
    low = torch.where(valid, rewards, torch.inf).amin(-1)
    high = torch.where(valid, rewards, -torch.inf).amax(-1)
    return high - low > DEAD_SPREAD * torch.maximum(torch.maximum(low.abs(), high.abs()), torch.ones_like(low))


def group_advantages(rewards: Tensor, valid: Tensor | None = None, scale: Scale = "std") -> Tensor:
    r"""Centre each reward on the mean of the valid members of its group, and scale it.

    .. math:: A_n = \frac{r_n - \bar r}{d}, \qquad \bar r = \operatorname{mean}_{m\ \mathrm{valid}} r_m

    ``scale="std"``: d is the population standard deviation of the valid members, as in GRPO (arXiv:2402.03300); a group of two gives ±1.
    ``scale="none"``: d = 1. There is no epsilon in the denominator: a group without spread gets 0.

    Args:
        rewards: ``[..., N]``; the last dimension is one comparison group.
        valid: Boolean ``[..., N]``; False for members with no trustworthy reward. They get advantage 0 and do not move the mean.
            By default the members whose reward is not NaN.
        scale: The denominator d.

    Returns:
        Advantages ``[..., N]``. They sum to 0 over the valid members. A group with fewer than two valid members, or without
        spread, is all 0.

    Raises:
        ValueError: If the shapes differ, a valid reward is not finite, or ``scale`` is unknown.

    Example:
        >>> group_advantages(torch.tensor([1.0, 0.0, 9.0]), torch.tensor([True, True, False]), scale="none")
        tensor([ 0.5000, -0.5000,  0.0000])
        >>> group_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0]))
        tensor([ 1.7321, -0.5774, -0.5774, -0.5774])
    """
    if scale not in get_args(Scale):
        raise ValueError(f"`scale` must be one of {get_args(Scale)}, got {scale!r}.")
    rewards = rewards if rewards.is_floating_point() else rewards.float()
    valid = ~torch.isnan(rewards) if valid is None else valid.bool()
    if valid.shape != rewards.shape:
        raise ValueError(f"`valid` must have the shape of `rewards`, got {tuple(valid.shape)} for {tuple(rewards.shape)}.")
    if not bool(torch.isfinite(rewards[valid]).all()):
        raise ValueError("`rewards` must be finite where `valid`, got NaN or infinity. Mark the members that have no reward as not valid.")
    alive = (group_spread(rewards, valid) & (valid.sum(-1) >= 2)).unsqueeze(-1)
    count = valid.sum(-1, keepdim=True).clamp(min=1)
    mean = torch.where(valid, rewards, 0.0).sum(-1, keepdim=True) / count
    centred = torch.where(valid & alive, rewards - mean, 0.0)
    if scale == "none":
        return centred
    std = (centred.square().sum(-1, keepdim=True) / count).sqrt()
    return centred / torch.where(alive, std, 1.0)
