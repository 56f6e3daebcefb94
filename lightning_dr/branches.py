"""One prefix, many branches: packing, attention mask, token log-probabilities.

Every expensive step of a round has the same form: many short branches that share one long prefix. A :class:`Tree` is packed into one row
``[prefix | branch 1 | branch 2 | …]`` in which positions restart at the end of the prefix and a branch attends to the prefix and to
itself. It gives the same numbers as one row per branch, but the prefix is computed once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

MAX_LOGITS = 2**24
"""Logits are computed in chunks of at most this many numbers (64 MiB in float32)."""

Head = Callable[[Tensor], Tensor]
"""Hidden states ``[n, H]`` -> logits ``[n, V]``."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A prefix and the branches that continue it, as token ids; neither may be empty."""

    prefix: tuple[int, ...]
    branches: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if not self.prefix or not self.branches or not all(self.branches):
            raise ValueError("A `Tree` must have a prefix, and branches of at least one token each.")


@dataclass(frozen=True, slots=True)
class Row:
    """Part of a pack: some branches of one tree. ``owners`` are their numbers among all branches of the call."""

    prefix: tuple[int, ...]
    branches: tuple[tuple[int, ...], ...]
    owners: tuple[int, ...]

    @property
    def length(self) -> int:
        """Tokens of the row."""
        return len(self.prefix) + sum(map(len, self.branches))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """Rows that go through the model together."""

    input_ids: Tensor
    """``[N, T]``."""
    position_ids: Tensor
    """``[N, T]``."""
    segments: Tensor
    """``[N, T]``: 0 in the prefix, 1, 2, … in its branches, −1 in padding."""
    targets: Tensor
    """Branch tokens ``[n]``, branch after branch."""
    sources: Tensor
    """Where in the flattened ``[N * T]`` positions each of them is predicted ``[n]``."""
    ends: Tensor
    """Where in the flattened positions the last token of each branch stands ``[branches]``."""
    owners: tuple[int, ...]
    """The number of each branch among all branches of the call."""
    lengths: tuple[int, ...]
    """Tokens of each branch."""
    plain: bool = False
    """Every row holds a single branch, and the model is to make its own causal mask."""

    def attention_mask(self, dtype: torch.dtype) -> Tensor:
        """Additive mask ``[N, 1, T, T]``: 0 where a query may look, the lowest number elsewhere.

        For plain rows the integer mask ``[N, T]`` of what is not padding.
        """
        if self.plain:
            return (self.segments >= 0).long()
        query, key = self.segments.unsqueeze(-1), self.segments.unsqueeze(-2)
        causal = torch.ones(key.shape[-1], key.shape[-1], dtype=torch.bool, device=key.device).tril()
        allowed = causal & ((key == 0) | (key == query))
        return torch.zeros_like(allowed, dtype=dtype).masked_fill_(~allowed, torch.finfo(dtype).min).unsqueeze(1)

    def to(self, device: torch.device) -> Pack:
        """The same pack on another device."""
        tensors = ("input_ids", "position_ids", "segments", "targets", "sources", "ends")
        return replace(self, **{name: getattr(self, name).to(device) for name in tensors})

    def split(self, values: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Cut values of branch tokens ``[n]`` into (owner, values of that branch)."""
        yield from zip(self.owners, values.split(self.lengths), strict=True)


def split_rows(trees: Sequence[Tree], max_tokens: int, max_shared_row: int | None = None) -> list[Row]:
    """Rows of at most ``max_tokens`` tokens; a tree that is longer repeats its prefix. One branch always fits.

    No row with several branches is longer than ``max_shared_row``.
    """
    rows, owner = [], 0
    max_tokens = max_tokens if max_shared_row is None else min(max_tokens, max_shared_row)
    for tree in trees:
        branches: list[tuple[int, ...]] = []
        for branch in tree.branches:
            used = len(tree.prefix) + sum(map(len, branches))
            if branches and used + len(branch) > max_tokens:
                rows.append(Row(tree.prefix, tuple(branches), tuple(range(owner - len(branches), owner))))
                branches = []
            branches.append(branch)
            owner += 1
        rows.append(Row(tree.prefix, tuple(branches), tuple(range(owner - len(branches), owner))))
    return rows


def make_pack(rows: Sequence[Row], plain: bool = False) -> Pack:
    """Pad rows on the right to one length."""
    width = max(row.length for row in rows)
    input_ids = torch.zeros(len(rows), width, dtype=torch.long)
    position_ids = torch.zeros_like(input_ids)
    segments = torch.full_like(input_ids, -1)
    targets: list[int] = []
    sources: list[Tensor] = []
    ends: list[int] = []
    for index, row in enumerate(rows):
        start = len(row.prefix)
        input_ids[index, :start] = torch.tensor(row.prefix)
        position_ids[index, :start] = torch.arange(start)
        segments[index, :start] = 0
        at = start
        for number, branch in enumerate(row.branches, start=1):
            stop = at + len(branch)
            input_ids[index, at:stop] = torch.tensor(branch)
            position_ids[index, at:stop] = torch.arange(start, start + len(branch))
            segments[index, at:stop] = number
            source = torch.arange(at - 1, stop - 1) + index * width
            source[0] = index * width + start - 1
            sources.append(source)
            targets.extend(branch)
            ends.append(index * width + stop - 1)
            at = stop
    return Pack(
        input_ids=input_ids,
        position_ids=position_ids,
        segments=segments,
        targets=torch.tensor(targets),
        sources=torch.cat(sources),
        ends=torch.tensor(ends),
        owners=tuple(owner for row in rows for owner in row.owners),
        lengths=tuple(len(branch) for row in rows for branch in row.branches),
        plain=plain,
    )


def make_packs(trees: Sequence[Tree], max_tokens: int, max_shared_row: int | None = None) -> list[Pack]:
    """Pack trees into passes of at most ``max_tokens`` tokens, padding included, longest rows first.

    Args:
        trees: The prefixes with their branches. Branches are numbered 0, 1, … through all trees in order.
        max_tokens: Token budget of one pass; a single prefix with one branch may exceed it.
        max_shared_row: The longest row that may hold several branches, for models that do not take the mask of longer ones; 0: one row
            per branch. Longer rows go into plain packs.

    Example:
        >>> pack, = make_packs([Tree((5, 6), ((7, 8), (9,)))], max_tokens=100)
        >>> pack.input_ids.tolist(), pack.position_ids.tolist(), pack.sources.tolist()
        ([[5, 6, 7, 8, 9]], [[0, 1, 2, 3, 2]], [1, 2, 1])
    """
    if max_tokens < 1:
        raise ValueError(f"`max_tokens` must be at least 1, got {max_tokens}.")
    rows = sorted(split_rows(trees, max_tokens, max_shared_row), key=lambda row: row.length, reverse=True)
    limit = math.inf if max_shared_row is None else max_shared_row
    plain = [make_pack(group, plain=True) for group in within_budget([row for row in rows if row.length > limit], max_tokens)]
    return plain + [make_pack(group) for group in within_budget([row for row in rows if row.length <= limit], max_tokens)]


def within_budget(rows: Sequence[Row], max_tokens: int) -> Iterator[list[Row]]:
    """Groups of rows, longest first, of at most ``max_tokens`` tokens with padding; a single row may exceed it."""
    group: list[Row] = []
    for row in rows:
        if group and group[0].length * (len(group) + 1) > max_tokens:
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def map_logits(hidden: Tensor, index: Tensor, head: Head, function: Callable[[Tensor, Tensor], Tensor], vocabulary: int) -> Tensor:
    """Apply a function to the logits at some positions, without ever holding all of them.

    Args:
        hidden: Hidden states ``[N, T, H]``.
        index: Flattened positions ``[n]``.
        head: Hidden states to logits.
        function: Logits ``[c, V]`` in float32 and the numbers of those positions ``[c]`` -> ``[c, …]``.
        vocabulary: V.

    Returns:
        The results, ``[n, …]``.
    """

    def run(chunk: Tensor, numbers: Tensor) -> Tensor:
        return function(head(chunk).float(), numbers)

    results = []
    for chunk, number in chunks(hidden.flatten(0, 1)[index], vocabulary):
        # Recompute a chunk's logits in the backward pass instead of keeping them.
        results.append(checkpoint(run, chunk, number, use_reentrant=False) if torch.is_grad_enabled() else run(chunk, number))
    return torch.cat(results)


def chunks(states: Tensor, vocabulary: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Cut states ``[n, H]`` so that the logits of a part fit ``MAX_LOGITS``; with the numbers of its positions."""
    size = max(1, MAX_LOGITS // vocabulary)
    yield from zip(states.split(size), torch.arange(len(states), device=states.device).split(size), strict=True)


def token_logprobs(hidden: Tensor, pack: Pack, head: Head, vocabulary: int, temperature: float = 1.0, head_learns: bool = False) -> Tensor:
    """Log-probability of every branch token under softmax(logits / temperature) ``[n]`` (nats, float32).

    Where the head does not learn, logits are computed once, forward and backward together, and only ``[n, H]`` is kept. Where it does, they
    are computed again in the backward pass.
    """

    def pick(logits: Tensor, numbers: Tensor) -> Tensor:
        scaled = logits if temperature == 1 else logits / temperature
        return -cross_entropy(scaled, pack.targets[numbers], reduction="none")

    if head_learns or not torch.is_grad_enabled():
        return map_logits(hidden, pack.sources, head, pick, vocabulary)
    return OneByOne.apply(hidden.flatten(0, 1)[pack.sources], lambda states, numbers: pick(head(states).float(), numbers), vocabulary)


class OneByOne(torch.autograd.Function):
    """A function of states ``[n, H]`` whose results ``[n]`` depend on one state each, its gradient computed in the forward pass.

    The gradient of result i is then the one vector d result i / d state i, which the backward pass only scales. So nothing as wide as
    the vocabulary outlives its chunk, and nothing is computed twice.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, function: Callable[[Tensor, Tensor], Tensor], vocabulary: int) -> Tensor:
        """Results ``[n]``."""
        results, gradients = [], []
        for chunk, numbers in chunks(states.detach(), vocabulary):
            with torch.enable_grad():
                leaf = chunk.requires_grad_()
                result = function(leaf, numbers)
                gradients.append(torch.autograd.grad(result.sum(), leaf)[0])
            results.append(result.detach())
        ctx.save_for_backward(torch.cat(gradients))
        return torch.cat(results)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        """Gradient of the states ``[n, H]``."""
        (gradients,) = ctx.saved_tensors
        return (upstream.unsqueeze(-1) * gradients).to(gradients.dtype), None, None
