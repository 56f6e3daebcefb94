"""The update of a role: clipped surrogate, KL to the reference, aggregation. Tensors in, (loss, metrics) out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

Aggregation = Literal["token", "sequence"]
DeadGroups = Literal["keep", "drop"]


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """How a role turns advantages into a loss."""

    clip_low: float = 0.2
    """The ratio is clipped below at ``1 - clip_low``."""
    clip_high: float = 0.2
    """The ratio is clipped above at ``1 + clip_high``."""
    kl_weight: float = 0.0
    """Weight of the KL to the reference role; with 0 no reference log-probabilities are computed."""
    aggregation: Aggregation = "token"
    """``"token"``: every token of the round weighs the same. ``"sequence"``: every sequence weighs the same. Not given in the source."""
    dead_groups: DeadGroups = "keep"
    """Groups without spread: ``"keep"`` counts their tokens in the denominator (and in the KL), ``"drop"`` leaves them out of both."""

    def __post_init__(self) -> None:
        if not 0 <= self.clip_low <= 1:
            raise ValueError(f"`clip_low` must be in [0, 1], got {self.clip_low}.")
        if not self.clip_high >= 0:
            raise ValueError(f"`clip_high` must be at least 0, got {self.clip_high}.")
        if not self.kl_weight >= 0:
            raise ValueError(f"`kl_weight` must be at least 0, got {self.kl_weight}.")
        for name, allowed in (("aggregation", get_args(Aggregation)), ("dead_groups", get_args(DeadGroups))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"`{name}` must be one of {allowed}, got {getattr(self, name)!r}.")


def token_weights(lengths: Tensor, valid: Tensor, aggregation: Aggregation) -> Tensor:
    """Weight of every token of each sequence, fixed for a whole round before any backward pass.

    Because the weights do not depend on how the work is cut into passes, neither does the gradient.

    Args:
        lengths: Tokens of each sequence ``[N]``.
        valid: Boolean ``[N]``: the sequences that take part in the update.
        aggregation: ``"token"`` or ``"sequence"``.

    Returns:
        ``[N]``; the weights of all valid tokens sum to 1 (all 0 when nothing is valid).

    Example:
        >>> token_weights(torch.tensor([1, 3, 5]), torch.tensor([True, True, False]), "sequence")
        tensor([0.5000, 0.1667, 0.0000])
    """
    counted = torch.where(valid, lengths, 0)
    if aggregation == "token":
        weight = torch.where(counted > 0, 1.0 / counted.sum().clamp(min=1), 0.0)
    else:
        weight = torch.where(counted > 0, 1.0 / (counted.clamp(min=1) * (counted > 0).sum().clamp(min=1)), 0.0)
    return weight


def kl_estimate(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """Per-token KL(role ‖ reference), the non-negative low-variance estimator r − 1 − log r with r = reference / role.

    Example:
        >>> kl_estimate(torch.tensor([-1.0]), torch.tensor([-1.0]))
        tensor([0.])
    """
    log_ratio = reference_logprobs - logprobs
    return log_ratio.exp() - 1 - log_ratio


def clipped_surrogate(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    weights: Tensor,
    config: ObjectiveConfig,
    reference_logprobs: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    r"""Loss of some tokens of a round: the clipped surrogate of PPO (arXiv:1707.06347) and the KL term.

    .. math:: L = -\sum_t u_t \left[\min(\rho_t A_t, \operatorname{clip}(\rho_t, 1 - l, 1 + h) A_t) - \beta\,\mathrm{KL}_t\right],
              \qquad \rho_t = e^{\log \pi(y_t) - \log \pi_{old}(y_t)}

    The sum over the passes of a round is the loss of the round, since the weights u were fixed beforehand.

    Args:
        logprobs: Log-probability of each token ``[T]``, with gradient (nats).
        old_logprobs: The same at the time of sampling ``[T]``, without gradient.
        advantages: The advantage of each token's sequence ``[T]``.
        weights: u from :func:`token_weights`, one per token ``[T]``.
        config: Clip bounds and KL weight.
        reference_logprobs: Under the reference role ``[T]``; required when ``config.kl_weight > 0``.

    Returns:
        The loss (a scalar) and weighted sums over the tokens of ``kl`` (if computed), ``clip_fraction`` and ``ratio``; adding the passes
        of a round up gives the round's means.

    Raises:
        ValueError: If a tensor has another shape than ``logprobs``, or the reference is missing.
    """
    for name, tensor in {"old_logprobs": old_logprobs, "advantages": advantages, "weights": weights}.items():
        if tensor.shape != logprobs.shape:
            raise ValueError(f"`{name}` must have the shape of `logprobs`, got {tuple(tensor.shape)} for {tuple(logprobs.shape)}.")
    ratio = (logprobs - old_logprobs).exp()
    clipped = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    loss = -(weights * torch.minimum(ratio * advantages, clipped * advantages)).sum()
    with torch.no_grad():
        active = clipped * advantages < ratio * advantages
        metrics = {"clip_fraction": (weights * active).sum(), "ratio": (weights * ratio).sum()}
    if config.kl_weight > 0:
        if reference_logprobs is None or reference_logprobs.shape != logprobs.shape:
            raise ValueError("`reference_logprobs` must be given, one per token, when `kl_weight` is above 0.")
        kl = (weights * kl_estimate(logprobs, reference_logprobs)).sum()
        loss = loss + config.kl_weight * kl
        metrics["kl"] = kl.detach()
    return loss, metrics
