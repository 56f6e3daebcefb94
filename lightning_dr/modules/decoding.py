"""Continuations of a prefix, token by token: the prefix is computed once, and its cache is held once where the model allows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from .branch_attention import SharedKeys

EVERYBODY, NOBODY, PADDING = -1, -2, -3


class Decoding(Protocol):
    """The state of n continuations of B prefixes; n shrinks as they end."""

    state: Tensor
    """Last hidden state of each ``[n, H]``."""

    def __init__(self, decoder: PreTrainedModel, prefixes: Sequence[Sequence[int]], num: int, room: int) -> None:
        """Compute the prefixes; ``num`` continuations of at most ``room`` tokens follow each."""

    def keep(self, index: Tensor) -> None:
        """Go on with some of the continuations ``[m]``."""

    def step(self, token: Tensor) -> None:
        """Append a token to each ``[n]``."""


class CopiedPrefix:
    """Each continuation has a copy of its prefix's cache: what any model of transformers takes."""

    def __init__(self, decoder: PreTrainedModel, prefixes: Sequence[Sequence[int]], num: int, room: int) -> None:
        self.decoder = decoder
        self.cache, self.mask, self.position, self.state = prefill(decoder, prefixes, num)
        self.cache.batch_repeat_interleave(num)
        self.mask = self.mask.repeat_interleave(num, dim=0)

    def keep(self, index: Tensor) -> None:
        """See :class:`Decoding`."""
        self.cache.batch_select_indices(index)
        self.mask, self.position = self.mask[index], self.position[index]

    def step(self, token: Tensor) -> None:
        """See :class:`Decoding`."""
        self.mask = nn.functional.pad(self.mask, (0, 1), value=1)
        self.position = self.position + 1
        inputs: dict[str, Any] = {"attention_mask": self.mask, "position_ids": self.position, "cache": self.cache, "use_cache": True}
        self.state = self.decoder(input_ids=token.unsqueeze(1), **inputs).last_hidden_state[:, -1]


class SharedPrefix:
    """The keys of a prefix are held once, and followed by those of its continuations in the order of time.

    For models whose attention is ``branches``. Reading the prefix's keys once for all of its continuations, and never copying them to
    make room for the next token, is what makes it fast.
    """

    def __init__(self, decoder: PreTrainedModel, prefixes: Sequence[Sequence[int]], num: int, room: int) -> None:
        self.decoder = decoder
        cache, mask, self.position, self.state = prefill(decoder, prefixes, num)
        self.cache = SharedCache(cache, num * room)
        size, self.used = mask.shape
        self.prefix = torch.arange(size, device=mask.device).repeat_interleave(num)
        self.place = torch.arange(num, device=mask.device).repeat(size)
        self.name = self.place
        # Who sees a key: everybody of its prefix, or the continuation of that number.
        self.owner = torch.full((size, self.used + num * room), NOBODY, device=mask.device)
        self.owner[:, : self.used] = torch.where(mask.bool(), EVERYBODY, NOBODY)
        self.everybody = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=mask.device)

    def keep(self, index: Tensor) -> None:
        """See :class:`Decoding`. The others' keys stay, unseen; those that go on move together, so that a step has no gaps."""
        self.prefix, self.name, self.position = self.prefix[index], self.name[index], self.position[index]
        same = self.prefix.unsqueeze(0) == self.prefix.unsqueeze(1)
        self.place = same.tril(-1).sum(1)

    def step(self, token: Tensor) -> None:
        """See :class:`Decoding`."""
        width = int(self.place.max()) + 1
        asking = torch.full((len(self.owner), width), PADDING, device=token.device)
        asking[self.prefix, self.place] = self.name
        self.owner[self.prefix, self.used + self.place] = self.name
        keys = self.owner[:, : self.used + width].unsqueeze(1)
        mask = (keys == asking.unsqueeze(2)) | (keys == EVERYBODY)
        shared = SharedKeys(mask=mask, prefix=self.prefix, place=self.place)
        self.cache.put = (self.prefix, self.used + self.place, self.used + width)
        self.used += width
        self.position = self.position + 1
        # The shared keys stand for the mask; any mask of four dimensions keeps transformers from making its own.
        inputs: dict[str, Any] = {"attention_mask": self.everybody, "position_ids": self.position, "cache": self.cache, "use_cache": True}
        self.state = self.decoder(input_ids=token.unsqueeze(1), shared=shared, **inputs).last_hidden_state[:, -1]


class SharedCache(Cache):
    """Keys and values ``[B, H, P + room, D]`` of every layer, allocated once: a new token is written, nothing is moved."""

    def __init__(self, prefix: DynamicCache, room: int) -> None:
        super().__init__(layers=[])
        layers = cast(list[DynamicLayer], prefix.layers)
        self.keys = [nn.functional.pad(cast(Tensor, layer.keys), (0, 0, 0, room)) for layer in layers]
        self.values = [nn.functional.pad(cast(Tensor, layer.values), (0, 0, 0, room)) for layer in layers]
        self.put: tuple[Tensor, Tensor, int]
        """Where the step writes, ``[n]`` and ``[n]``, and how many keys there are then."""

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write ``[n, H, 1, D]``; returns all keys and values ``[B, H, T, D]``, for :func:`.branch_attention.branch_attention`."""
        row, at, end = self.put
        keys, values = self.keys[layer_idx], self.values[layer_idx]
        keys[row, :, at] = key_states[:, :, 0]
        values[row, :, at] = value_states[:, :, 0]
        return keys[:, :, :end], values[:, :, :end]


def prefill(decoder: PreTrainedModel, prefixes: Sequence[Sequence[int]], num: int) -> tuple[DynamicCache, Tensor, Tensor, Tensor]:
    """Compute B prefixes, to be continued ``num`` times each.

    Returns:
        Their cache, their mask ``[B, T]``, and the position ``[B · num, 1]`` and the last state ``[B · num, H]`` of every continuation.
    """
    ids, mask = left_pad(prefixes, next(decoder.parameters()).device)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    cache = DynamicCache(config=decoder.config)
    hidden = decoder(input_ids=ids, attention_mask=mask, position_ids=positions, cache=cache, use_cache=True).last_hidden_state
    return cache, mask, positions[:, -1:].repeat_interleave(num, dim=0), hidden[:, -1].repeat_interleave(num, dim=0)


def left_pad(sequences: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Token ids and attention mask ``[B, T]``; the mask comes from lengths, never from token values."""
    width = max(map(len, sequences))
    ids = torch.zeros(len(sequences), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        ids[row, width - len(sequence) :] = torch.tensor(sequence)
        mask[row, width - len(sequence) :] = 1
    return ids.to(device), mask.to(device)
