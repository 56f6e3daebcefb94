"""The steps of a round, done by the engine and done row by row in plain transformers, on the same weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from lightning_dr.branches import Tree
from lightning_dr.modules import Backbone, BackboneConfig, SamplingConfig

LORA: dict[str, Any] = {"r": 16, "alpha": 32, "target_modules": ["q_proj", "v_proj"]}
ROWS_AT_A_TIME = 4
"""Rows of a plain update that are held at once: all eight of 1,100 tokens and their logits do not fit everywhere."""


@dataclass(frozen=True)
class Step:
    """One step: both ways to do it, and how much work it is."""

    name: str
    ours: Callable[[], object]
    """Returns what it has computed; sampling does not, being random."""
    rows: Callable[[], object]
    """Returns the same."""
    tokens: int
    """Tokens that go through the model our way, a token with gradients counting as two (a frozen base needs no weight gradients)."""
    row_tokens: int
    """The same, row by row."""


def load(model: str, roles: Sequence[str] = ("policy", "generator"), **kwargs: object) -> Backbone:
    """The base with the adapters of some roles."""
    backbone = Backbone(BackboneConfig(name_or_path=model, **kwargs))  # type: ignore[arg-type]
    for role in roles:
        backbone.add_adapter(role, LORA)
    unbounded(backbone)
    if torch.cuda.is_available():
        backbone.cuda()
    return backbone


def unbounded(backbone: Backbone) -> None:
    """Sampling never ends early, so that all ways sample as many tokens; and no context ends, as speed does not depend on positions."""
    backbone.eos_ids = ()
    backbone.base.config.get_text_config().max_position_embeddings = 1_000_000


def tokens(backbone: Backbone, count: int, seed: int) -> tuple[int, ...]:
    """Some token ids; speed does not depend on which."""
    return tuple(torch.randint(5, backbone.vocabulary, (count,), generator=torch.Generator().manual_seed(seed)).tolist())


def tree(backbone: Backbone, prefix: int, branches: int, length: int, seed: int = 0) -> Tree:
    """A prefix with branches of one length."""
    return Tree(tokens(backbone, prefix, seed), tuple(tokens(backbone, length, seed + 1 + number) for number in range(branches)))


def work(trees: Sequence[Tree], passes: int = 1) -> tuple[int, int]:
    """Tokens our way and row by row."""
    ours = sum(len(tree.prefix) + sum(map(len, tree.branches)) for tree in trees)
    rows = sum(len(tree.prefix) + len(branch) for tree in trees for branch in tree.branches)
    return passes * ours, passes * rows


def padded(backbone: Backbone, trees: Sequence[Tree]) -> tuple[Tensor, Tensor]:
    """One row per branch ``[n, T]``, all of one length here, and its mask."""
    ids = torch.tensor([tree.prefix + branch for tree in trees for branch in tree.branches], device=backbone.device)
    return ids, torch.ones_like(ids)


def verify(backbone: Backbone, prefix: int = 300, items: int = 20, length: int = 16, responses: int = 2) -> Step:
    """The questions of all rubrics about each response: x + y is the prefix."""
    trees = [tree(backbone, prefix, items, length, seed) for seed in range(responses)]

    @torch.no_grad()
    def ours() -> Tensor:
        found: dict[int, Tensor] = {}
        with backbone.active(None):
            for pack in backbone.packs(trees):
                found.update(zip(pack.owners, backbone.map_end_logits(pack, lambda logits: logits[:, :2]), strict=True))
        return torch.stack([found[owner] for owner in sorted(found)])

    @torch.no_grad()
    def rows() -> Tensor:
        found = []
        with backbone.active(None) as model:
            for one in trees:
                ids, mask = padded(backbone, [one])
                size = max(1, backbone.config.max_tokens_per_pass // ids.shape[1])
                for chunk, kept in zip(ids.split(size), mask.split(size), strict=True):
                    found.append(model(input_ids=chunk, attention_mask=kept, use_cache=False, logits_to_keep=1).logits[:, -1, :2].float())
        return torch.cat(found)

    return Step(f"verify: {responses} responses, prefix {prefix}, {items} items of {length} tokens", ours, rows, *work(trees))


def update(backbone: Backbone, role: str, prefix: int, branches: int, length: int) -> Step:
    """Forward and backward pass of a role's sequences, without the optimizer."""
    trees = [tree(backbone, prefix, branches, length)]
    parameters = list(backbone.adapter_parameters(role).values())

    def ours() -> Tensor:
        with backbone.active(role, train=True):
            for pack in backbone.packs(trees):
                backbone.token_logprobs(pack).sum().backward()
        return take(parameters)

    def rows() -> Tensor:
        ids, mask = padded(backbone, trees)
        with backbone.active(role, train=True) as model:
            for chunk, kept in zip(ids.split(ROWS_AT_A_TIME), mask.split(ROWS_AT_A_TIME), strict=True):
                logits = model(input_ids=chunk, attention_mask=kept, use_cache=False, logits_to_keep=length + 1).logits[:, :-1].float()
                (-cross_entropy(logits.flatten(0, 1), chunk[:, -length:].flatten(), reduction="sum")).backward()
        return take(parameters)

    return Step(f"{role} update: prefix {prefix}, {branches} × {length} tokens", ours, rows, *work(trees, passes=2))


def take(parameters: Sequence[torch.nn.Parameter]) -> Tensor:
    """The gradients in one piece; they are forgotten."""
    gradients = torch.cat([cast(Tensor, parameter.grad).flatten() for parameter in parameters])
    for parameter in parameters:
        parameter.grad = None
    return gradients


def sampling(backbone: Backbone, role: str, prefix: int, num: int, length: int) -> Step:
    """Sample continuations of one prefix."""
    start = tokens(backbone, prefix, 0)
    config = SamplingConfig(max_new_tokens=length)

    def ours() -> None:
        backbone.sample([start], num, config, role)

    @torch.no_grad()
    def rows() -> None:
        ids = torch.tensor([start], device=backbone.device)
        with backbone.active(role) as model:
            model.generate(  # type: ignore[operator]
                ids, attention_mask=torch.ones_like(ids), do_sample=True, top_k=0, num_return_sequences=num,
                max_new_tokens=length, min_new_tokens=length, pad_token_id=0,
            )  # fmt: skip

    return Step(f"sample: prefix {prefix}, {num} × {length} tokens", ours, rows, prefix + num * length, num * (prefix + length))


def reference(backbone: Backbone, prefix: int, branches: int, length: int) -> Step:
    """Log-probabilities under the base, for the KL."""
    trees = [tree(backbone, prefix, branches, length)]

    @torch.no_grad()
    def ours() -> Tensor:
        found: dict[int, Tensor] = {}
        with backbone.active(None):
            for pack in backbone.packs(trees):
                found.update(pack.split(backbone.token_logprobs(pack)))
        return torch.cat([found[owner] for owner in sorted(found)])

    @torch.no_grad()
    def rows() -> Tensor:
        ids, mask = padded(backbone, trees)
        with backbone.active(None) as model:
            logits = model(input_ids=ids, attention_mask=mask, use_cache=False, logits_to_keep=length + 1).logits[:, :-1].float()
            return -cross_entropy(logits.flatten(0, 1), ids[:, -length:].flatten(), reduction="none")

    return Step(f"reference: prefix {prefix}, {branches} × {length} tokens", ours, rows, *work(trees))
