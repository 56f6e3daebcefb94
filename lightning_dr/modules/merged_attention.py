"""Branches over their prefix and over themselves, merged: for CPUs, whose kernel hands out what the merging takes.

All tokens of a row, its branches too, attend to the keys of its prefix in one call, and each branch attends to itself in another. Softmax
over the union of two sets of keys is the average of both results by their sums of exponentials, of which the kernel returns the logarithm.
Its backward pass reads nothing but the output and that logarithm, so it is exact for either set once it is given the merged ones. So no key
is copied to where it is read, and the calls are as large as they can be.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

forward_kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
backward_kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class MergedAttention(torch.autograd.Function):
    """Queries ``[N, H, T, D]``, keys and values ``[N, H', T, D]`` -> ``[N, H, T, D]``. Padding of a row gets numbers without meaning."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, layout: Any, scaling: float) -> Tensor:
        """See the class; ``layout`` is a :class:`.branch_attention.Layout`."""
        groups = query.shape[1] // key.shape[1]
        options = {"attn_mask": layout.prefix_bias(query.dtype), "scale": scaling}
        keys, values = (repeat(states, groups) for states in (key[:, :, : layout.prefix], value[:, :, : layout.prefix]))
        out, lse = forward_kernel(query, keys, values, 0.0, layout.even, **options)
        own = [gather(states, layout.queries) for states in (query, repeat(key, groups), repeat(value, groups))]
        own_out, own_lse = forward_kernel(*own, 0.0, True, scale=scaling)

        flat_out, flat_lse = flatten(out), flatten(lse)
        of_prefix, of_own = flat_lse[layout.places], flatten(own_lse)[layout.valid]
        both = torch.logaddexp(of_prefix, of_own)
        share = (of_prefix - both).exp().unsqueeze(-1)
        merged = flat_out[layout.places] * share + flatten(own_out)[layout.valid] * (1 - share)
        out = unflatten(flat_out.index_copy(0, layout.places, merged.to(out.dtype)), out)
        lse = unflatten(flat_lse.index_copy(0, layout.places, both), lse)
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.layout, ctx.scaling = layout, scaling
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of queries, keys and values."""
        query, key, value, out, lse = ctx.saved_tensors
        layout, groups = ctx.layout, query.shape[1] // key.shape[1]
        options = {"attn_mask": layout.prefix_bias(query.dtype), "scale": ctx.scaling}
        keys, values = repeat(key, groups), repeat(value, groups)
        first = slice(0, layout.prefix)
        found = backward_kernel(gradient, query, keys[:, :, first], values[:, :, first], out, lse, 0.0, layout.even, **options)
        inside = layout.inside[:, None, :, None]
        own = [gather(states, layout.queries) for states in (gradient, query, keys, values, out, lse)]
        own_found = backward_kernel(own[0] * inside, *own[1:], 0.0, True, scale=ctx.scaling)

        gradients = []
        for whole, part, like in zip(found, own_found, (query, key, value), strict=True):
            total = whole.new_zeros(*query.shape[:1], whole.shape[1], *query.shape[2:])
            total[:, :, : whole.shape[2]] = whole
            total = unflatten(flatten(total).index_add(0, layout.places, flatten(part)[layout.valid]), total)
            gradients.append(total.unflatten(1, (like.shape[1], -1)).sum(2) if total.shape != like.shape else total)
        return *gradients, None, None


def repeat(states: Tensor, groups: int) -> Tensor:
    """Keys for each head of those that share them: ``[N, H', T, D]`` -> ``[N, H, T, D]``."""
    return states if groups == 1 else states.repeat_interleave(groups, dim=1)


def flatten(states: Tensor) -> Tensor:
    """``[N, H, T, …]`` -> ``[N · T, H, …]``."""
    return states.transpose(1, 2).flatten(0, 1)


def unflatten(flat: Tensor, like: Tensor) -> Tensor:
    """The inverse of :func:`flatten`."""
    return flat.unflatten(0, (like.shape[0], like.shape[2])).transpose(1, 2)


def gather(states: Tensor, index: Tensor) -> Tensor:
    """Some flattened positions of every head: ``[N, H, T, …]`` and ``[b, L]`` -> ``[b, H, L, …]``."""
    return flatten(states).index_select(0, index.flatten()).unflatten(0, index.shape).transpose(1, 2)
