"""Attention over packed branches without the work that the mask would throw away.

A dense mask over a packed row computes every branch against every other one. Here the prefix attends to itself with the causal kernel, and
each branch to a copy of its prefix's keys and its own: two calls of ``scaled_dot_product_attention``, so dropout and gradients are its own.
CPUs do without the copies (:mod:`.merged_attention`). While sampling, one token of every continuation attends to keys of which its
prefix's are there once (:class:`SharedKeys`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from ..branches import Pack
from .merged_attention import MergedAttention, gather

NAME = "branches"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Which keys the queries of a call see."""

    mask: Tensor
    """Boolean ``[b, L, T]``; no row is empty, those of padding neither."""
    made: dict[tuple[int, torch.dtype], Tensor] = field(default_factory=dict)
    """What :meth:`bias` has made: the layers of a model ask for the same."""

    def bias(self, groups: int, dtype: torch.dtype) -> Tensor:
        """0 where the mask allows, −∞ elsewhere, repeated for the heads that share keys: ``[b, 1, groups · L, T]``."""
        if (groups, dtype) not in self.made:
            self.made[groups, dtype] = additive(self.mask, dtype).repeat(1, groups, 1).unsqueeze(1)
        return self.made[groups, dtype]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where the b branches of a pack stand in its flattened positions ``[N · T]``."""

    prefixes: Tensor
    """Tokens of the prefix of each row ``[N]``."""
    prefix: int
    """The most of them, P."""
    even: bool
    """All rows have that many."""
    width: int
    """T."""
    rows: Tensor
    """The row of each branch ``[b]``."""
    queries: Tensor
    """Its tokens, at most L ``[b, L]``; padding repeats the first one."""
    inside: Tensor
    """Which of them are no padding ``[b, L]``."""
    valid: Tensor
    """The same as numbers in the flattened queries ``[n]``."""
    places: Tensor
    """Where those stand ``[n]``."""
    made: dict[torch.dtype, Tensor] = field(default_factory=dict)
    """What :meth:`prefix_bias` has made."""

    @cached_property
    def keys(self) -> Tensor:
        """The prefix of each branch and the branch ``[b, P + L]``."""
        before = torch.arange(self.prefix, device=self.rows.device)
        of_prefix = self.rows.unsqueeze(1) * self.width + torch.minimum(before, self.prefixes[self.rows].unsqueeze(1) - 1)
        return torch.cat([of_prefix, self.queries], 1)

    @cached_property
    def seen(self) -> Seen:
        """Which of those keys each query sees. A padded query sees its prefix: a row of nothing would be NaN."""
        before, steps = (torch.arange(count, device=self.rows.device) for count in (self.prefix, self.queries.shape[1]))
        of_prefix = (before < self.prefixes[self.rows].unsqueeze(1)).unsqueeze(1).expand(-1, len(steps), -1)
        of_own = (steps.unsqueeze(0) <= steps.unsqueeze(1)).unsqueeze(0) & self.inside.unsqueeze(1)
        return Seen(mask=torch.cat([of_prefix, of_own], -1))

    def prefix_bias(self, dtype: torch.dtype) -> Tensor | None:
        """0 where a token of a row sees one of its prefix, −∞ elsewhere ``[N, 1, T, P]``; ``None``: the causal kernel does the same."""
        if self.even:
            return None
        if dtype not in self.made:
            before, at = (torch.arange(count, device=self.rows.device) for count in (self.prefix, self.width))
            mask = (before < self.prefixes.unsqueeze(1)).unsqueeze(1) & (before <= at.unsqueeze(1))
            self.made[dtype] = additive(mask, dtype).unsqueeze(1)
        return self.made[dtype]


@dataclass(frozen=True, kw_only=True)
class SharedKeys(Seen):
    """Where n continuations of b prefixes stand in one step: at most L of a prefix, and T keys of all of them and of the prefix."""

    prefix: Tensor
    """Which prefix each continues ``[n]``."""
    place: Tensor
    """Its number among those of its prefix ``[n]``, less than L."""


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask to add to scores: 0 where it allows, −∞ elsewhere."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, -torch.inf)


def layout_of(pack: Pack) -> Layout:
    """The layout of a pack."""
    width, device = pack.input_ids.shape[1], pack.input_ids.device
    lengths = torch.tensor(pack.lengths, device=device)
    prefixes = (pack.segments == 0).sum(1)
    steps = torch.arange(int(lengths.max()), device=device)
    inside = steps < lengths.unsqueeze(1)
    starts = (pack.ends - lengths + 1).unsqueeze(1)
    queries = torch.where(inside, starts + steps, starts)
    valid = inside.flatten().nonzero().squeeze(1)
    longest = int(prefixes.max())
    return Layout(
        prefixes=prefixes,
        prefix=longest,
        even=bool((prefixes == longest).all()),
        width=width,
        rows=pack.ends // width,
        queries=queries,
        inside=inside,
        valid=valid,
        places=queries.flatten()[valid],
    )


def branch_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    layout: Layout | None = None,
    shared: SharedKeys | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention function of transformers: queries ``[N, H, T, D]`` -> ``[N, T, H, D]``. Without a layout or shared keys it is ``sdpa``."""
    if shared is not None:
        return shared_attention(query, key, value, shared, **kwargs), None
    if layout is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    if query.device.type == "cpu" and not kwargs.get("dropout"):
        return MergedAttention.apply(query, key, value, layout, kwargs["scaling"]).transpose(1, 2), None
    return copied_attention(module, query, key, value, layout, **kwargs), None


def copied_attention(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, layout: Layout, **kwargs: Any) -> Tensor:
    """Queries ``[N, H, T, D]`` -> ``[N, T, H, D]``: the prefix with the causal kernel, and each branch over copies of the keys it sees."""
    first = slice(0, layout.prefix)
    kwargs.pop("is_causal", None)
    prefix, _ = sdpa_attention_forward(module, query[:, :, first], key[:, :, first], value[:, :, first], None, is_causal=True, **kwargs)
    branches = folded(gather(query, layout.queries), gather(key, layout.keys), gather(value, layout.keys), layout.seen, **kwargs)
    rest = prefix.new_zeros(len(prefix), layout.width - layout.prefix, *prefix.shape[2:])
    out = torch.cat([prefix, rest], 1).flatten(0, 1)
    return out.index_copy(0, layout.places, branches.flatten(0, 1)[layout.valid]).unflatten(0, (len(prefix), layout.width))


def shared_attention(query: Tensor, key: Tensor, value: Tensor, shared: SharedKeys, **kwargs: Any) -> Tensor:
    """One token of n continuations ``[n, H, 1, D]`` over the keys of their prefixes and themselves ``[b, H', T, D]`` -> ``[n, 1, H, D]``.

    All continuations of a prefix are the queries of one call: its keys are read once.
    """
    asked = query.new_zeros(*shared.mask.shape[:2], *query.shape[1::2])
    asked[shared.prefix, shared.place] = query[:, :, 0]
    return folded(asked.transpose(1, 2), key, value, shared, **kwargs)[shared.prefix, shared.place].unsqueeze(1)


def folded(
    query: Tensor, key: Tensor, value: Tensor, seen: Seen, scaling: float | None = None, dropout: float = 0.0, **kwargs: Any
) -> Tensor:
    """Queries ``[b, H, L, D]`` over keys ``[b, H', T, D]`` -> ``[b, L, H, D]``.

    The H / H' heads that share keys become more queries of one head, so that the keys are not copied for each.
    """
    few, length = key.shape[1], query.shape[2]
    groups = query.shape[1] // few
    asked = query.unflatten(1, (few, groups)).flatten(2, 3)
    out = nn.functional.scaled_dot_product_attention(
        asked, key, value, attn_mask=seen.bias(groups, query.dtype), dropout_p=dropout, scale=scaling
    )
    return out.unflatten(2, (groups, length)).flatten(1, 2).transpose(1, 2)


AttentionInterface.register(NAME, branch_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
