"""One update of one role over a draw: trees, fixed weights, and a loss per pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..branches import Pack, Tree
from ..objectives import ObjectiveConfig, clipped_surrogate, token_weights
from ..records import Completion
from .backbone import Backbone
from .random_state import seeded


@dataclass(kw_only=True)
class Draw:
    """The sequences of one role in one round, S in all, with what the loss needs of each."""

    trees: list[Tree]
    advantages: Tensor
    """``[S]``."""
    weights: Tensor
    """Weight of each token of a sequence ``[S]``, fixed before any backward pass."""
    sampled: list[Tensor]
    """Log-probabilities as the sampler saw them, per sequence."""
    old: dict[int, Tensor] = field(default_factory=dict)
    """Log-probabilities at the first update, per sequence; filled by it."""
    reference: dict[int, Tensor] = field(default_factory=dict)
    """Log-probabilities under the reference role, per sequence."""
    dropout_seed: int | None = None
    """Every update of the draw has the dropout masks of this seed: a ratio compares the same masks, or it would not be 1 at first."""


def make_draw(groups: Sequence[Sequence[Completion]], advantages: Tensor, valid: Tensor, config: ObjectiveConfig) -> Draw:
    """Choose the sequences that take part in an update.

    Args:
        groups: B groups of N sampled continuations; those of a group share their prefix.
        advantages: ``[B, N]``.
        valid: ``[B, N]``: False leaves a member out of the update and its denominators.
        config: Aggregation, KL weight, dead groups.

    Returns:
        The draw. Members whose advantage is 0 are left out of the passes when there is no KL term (they have no gradient), but they
        still count in the denominators.
    """
    if config.dead_groups == "drop":
        valid = valid & (advantages != 0).any(-1, keepdim=True)
    lengths = torch.tensor([[len(member.token_ids) for member in group] for group in groups])
    weights = token_weights(lengths.flatten(), valid.flatten(), config.aggregation).view_as(advantages)
    wanted = valid & (lengths > 0)
    if config.kl_weight == 0:
        wanted &= advantages != 0
    trees, sampled = [], []
    for group, row in zip(groups, wanted.tolist(), strict=True):
        members = [member for member, take in zip(group, row, strict=True) if take]
        if members:
            trees.append(Tree(members[0].prefix_ids, tuple(member.token_ids for member in members)))
            sampled += [torch.tensor(member.logprobs) for member in members]
    return Draw(trees=trees, advantages=advantages[wanted], weights=weights[wanted], sampled=sampled)


@torch.no_grad()
def fill_reference(draw: Draw, backbone: Backbone, adapter: str | None, temperature: float) -> None:
    """Log-probabilities of the draw under the reference role."""
    with backbone.active(adapter):
        for pack in backbone.packs(draw.trees):
            draw.reference.update(pack.split(backbone.token_logprobs(pack, temperature)))


def losses(draw: Draw, backbone: Backbone, temperature: float, config: ObjectiveConfig) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
    """The loss of each pass; their sum is the loss of the draw, however it is cut.

    The caller runs the backward pass of each before it asks for the next, with the role's adapter active.
    """
    first = not draw.old
    for number, pack in enumerate(backbone.packs(draw.trees)):
        with seeded(None if draw.dropout_seed is None else draw.dropout_seed + number, backbone.device):
            logprobs = backbone.token_logprobs(pack, temperature)
        metrics: dict[str, Tensor] = {}
        if first:
            draw.old.update(pack.split(logprobs.detach()))
            metrics["sampler_logprob_diff"] = (logprobs.detach() - _gather(draw.sampled, pack, logprobs)).abs().max()
        repeats = torch.tensor(pack.lengths)
        owners = torch.tensor(pack.owners)
        loss, more = clipped_surrogate(
            logprobs,
            _gather(draw.old, pack, logprobs),
            draw.advantages[owners].repeat_interleave(repeats).to(logprobs),
            draw.weights[owners].repeat_interleave(repeats).to(logprobs),
            config,
            _gather(draw.reference, pack, logprobs) if draw.reference else None,
        )
        yield loss, metrics | more


def _gather(values: dict[int, Tensor] | list[Tensor], pack: Pack, like: Tensor) -> Tensor:
    """Per-sequence values as one flat tensor in the pack's order."""
    return torch.cat([values[owner] for owner in pack.owners]).to(like)
