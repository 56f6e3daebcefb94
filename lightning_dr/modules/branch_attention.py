"""Attention over packed branches without the work that the mask would throw away.

A dense mask over a packed row computes every branch against every other one. Here the prefix attends to itself with the causal kernel, and
each branch to a copy of its prefix's keys and its own: two calls of ``scaled_dot_product_attention``, so dropout and gradients are its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from ..branches import Pack

NAME = "branches"


@dataclass(frozen=True)
class Layout:
    """Where the branches of a pack stand in its flattened positions ``[N · T]``; b branches of at most L tokens, prefixes of at most P."""

    prefix: int
    """P."""
    queries: Tensor
    """``[b, L]``; padding repeats the first token."""
    keys: Tensor
    """``[b, P + L]``: the prefix, then the branch."""
    mask: Tensor
    """Boolean ``[b, 1, L, P + L]``: which keys a query sees."""
    valid: Tensor
    """Which of the flattened queries are no padding ``[n]``."""
    places: Tensor
    """Where they stand ``[n]``."""


def layout_of(pack: Pack) -> Layout:
    """The layout of a pack."""
    width, device = pack.input_ids.shape[1], pack.input_ids.device
    lengths = torch.tensor(pack.lengths, device=device)
    rows = pack.ends // width
    prefixes = (pack.segments == 0).sum(1)
    own = prefixes[rows].unsqueeze(1)
    steps, before = torch.arange(int(lengths.max()), device=device), torch.arange(int(prefixes.max()), device=device)
    inside = steps < lengths.unsqueeze(1)
    starts = (pack.ends - lengths + 1).unsqueeze(1)
    queries = torch.where(inside, starts + steps, starts)
    keys = torch.cat([rows.unsqueeze(1) * width + torch.minimum(before.expand(len(rows), -1), own - 1), queries], 1)
    sees_prefix = (before < own).unsqueeze(1).expand(-1, len(steps), -1)
    sees_own = (steps.unsqueeze(0) <= steps.unsqueeze(1)).unsqueeze(0) & inside.unsqueeze(1)
    # A padded query sees its prefix: a row of nothing would be NaN.
    mask = torch.cat([sees_prefix, sees_own], -1).unsqueeze(1)
    valid = inside.flatten().nonzero().squeeze(1)
    return Layout(len(before), queries, keys, mask, valid, queries.flatten()[valid])


def branch_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, layout: Layout | None = None, **kwargs: Any
) -> tuple[Tensor, None]:
    """Attention function of transformers: queries ``[N, H, T, D]`` -> ``[N, T, H, D]``. Without a layout it is ``sdpa``."""
    if layout is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    size, _, width, _ = query.shape
    first = slice(0, layout.prefix)
    kwargs.pop("is_causal", None)
    prefix, _ = sdpa_attention_forward(module, query[:, :, first], key[:, :, first], value[:, :, first], None, is_causal=True, **kwargs)
    branches, _ = sdpa_attention_forward(
        module, pick(query, layout.queries), pick(key, layout.keys), pick(value, layout.keys), layout.mask, **kwargs
    )
    rest = prefix.new_zeros(size, width - layout.prefix, *prefix.shape[2:])
    out = torch.cat([prefix, rest], 1).flatten(0, 1)
    return out.index_copy(0, layout.places, branches.flatten(0, 1)[layout.valid]).unflatten(0, (size, width)), None


def pick(states: Tensor, index: Tensor) -> Tensor:
    """Some flattened positions of every head: ``[N, H, T, D]`` and ``[b, L]`` -> ``[b, H, L, D]``."""
    flat = states.transpose(1, 2).flatten(0, 1)
    return flat.index_select(0, index.flatten()).unflatten(0, index.shape).transpose(1, 2)


AttentionInterface.register(NAME, branch_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
