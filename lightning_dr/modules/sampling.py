"""Sample continuations of prefixes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from .decoding import CopiedPrefix, Decoding


@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """How a role samples. Values are not given in the source."""

    temperature: float = 1.0
    """Softmax temperature; the update uses the same one, so that the ratio is 1 before the first step."""
    max_new_tokens: int = 256
    """A continuation that has not ended by then is cut and counted."""
    max_lines: int | None = None
    """End a continuation once it holds this many lines (it then counts as finished): keeps a small model from rambling on."""

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(
                f"`temperature` must be positive, got {self.temperature}. For near-greedy sampling use a small one such as 0.01."
            )
        if self.max_new_tokens < 1:
            raise ValueError(f"`max_new_tokens` must be at least 1, got {self.max_new_tokens}.")
        if self.max_lines is not None and self.max_lines < 1:
            raise ValueError(f"`max_lines` must be at least 1 or null, got {self.max_lines}.")


@dataclass(frozen=True, slots=True)
class Sample:
    """One continuation: its tokens (EOS included), their log-probabilities, and whether it ended before the length limit."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finished: bool


@torch.no_grad()
def sample(
    decoder: PreTrainedModel,
    head: Callable[[Tensor], Tensor],
    prefixes: Sequence[Sequence[int]],
    num: int,
    config: SamplingConfig,
    eos_ids: Sequence[int],
    newline_ids: Sequence[int] = (),
    kind: type[Decoding] = CopiedPrefix,
) -> list[list[Sample]]:
    """Sample ``num`` continuations of each prefix from the global random state of torch.

    Continuations that have ended leave the batch. The caller puts the model into evaluation mode.

    Args:
        decoder: The transformer without its head.
        head: Hidden states ``[n, H]`` -> logits ``[n, V]``.
        prefixes: B token sequences.
        num: Continuations per prefix.
        config: Temperature and length limit.
        eos_ids: Every token that ends a continuation.
        newline_ids: Every token that ends a line.
        kind: How the prefix's cache is held.

    Returns:
        ``num`` samples for each of B prefixes.
    """
    decoding = kind(decoder, prefixes, num, config.max_new_tokens)
    device = decoding.state.device
    rows = len(prefixes) * num
    alive = torch.arange(rows, device=device)
    tokens = torch.zeros(rows, config.max_new_tokens, dtype=torch.long, device=device)
    logprobs = torch.zeros(rows, config.max_new_tokens, device=device)
    lengths = torch.full((rows,), config.max_new_tokens, device=device)
    finished = torch.zeros(rows, dtype=torch.bool, device=device)
    lines = torch.zeros(rows, dtype=torch.long, device=device)
    stop, newline = (torch.tensor(list(ids), device=device) for ids in (eos_ids, newline_ids))
    for step in range(config.max_new_tokens):
        logits = head(decoding.state).float() / config.temperature
        distribution = logits.log_softmax(-1)
        token = pick(distribution)
        tokens[alive, step] = token
        logprobs[alive, step] = distribution.gather(-1, token.unsqueeze(-1)).squeeze(-1)
        ended = torch.isin(token, stop)
        if config.max_lines is not None:
            lines[alive] += torch.isin(token, newline)
            ended |= lines[alive] >= config.max_lines
        lengths[alive[ended]] = step + 1
        finished[alive[ended]] = True
        if bool(ended.any()):
            keep = (~ended).nonzero().squeeze(-1)
            alive, token = alive[keep], token[keep]
            if len(alive) == 0:
                break
            decoding.keep(keep)
        if step + 1 < config.max_new_tokens:
            decoding.step(token)

    flat = [
        Sample(tuple(t[:n]), tuple(p[:n]), f)
        for t, p, n, f in zip(tokens.tolist(), logprobs.tolist(), lengths.tolist(), finished.tolist(), strict=True)
    ]
    return [flat[start : start + num] for start in range(0, rows, num)]


def pick(logprobs: Tensor) -> Tensor:
    """A token of each row ``[n, V]`` by its probability ``[n]``.

    By inversion: one random number a row, where ``torch.multinomial`` draws one a token. A token of probability 0 is never picked.
    """
    cumulated = logprobs.double().exp().cumsum(-1)
    mark = torch.rand(len(logprobs), 1, dtype=torch.float64, device=logprobs.device) * cumulated[:, -1:]
    return torch.searchsorted(cumulated, mark, right=True).squeeze(-1).clamp(max=logprobs.shape[-1] - 1)
