"""Sample continuations: the prefix is computed once and its cache is shared by its continuations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel


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
            raise ValueError(f"`temperature` must be positive, got {self.temperature}. For near-greedy sampling use a small one such as 0.01.")
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


def left_pad(sequences: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Token ids and attention mask ``[B, T]``; the mask comes from lengths, never from token values."""
    width = max(map(len, sequences))
    ids = torch.zeros(len(sequences), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        ids[row, width - len(sequence) :] = torch.tensor(sequence)
        mask[row, width - len(sequence) :] = 1
    return ids.to(device), mask.to(device)


@torch.no_grad()
def sample(
    decoder: PreTrainedModel,
    head: Callable[[Tensor], Tensor],
    prefixes: Sequence[Sequence[int]],
    num: int,
    config: SamplingConfig,
    eos_ids: Sequence[int],
    newline_ids: Sequence[int] = (),
) -> list[list[Sample]]:
    """Sample ``num`` continuations of each prefix from the global random state of torch.

    Rows that have ended leave the batch and its cache. The caller puts the model into evaluation mode.

    Args:
        decoder: The transformer without its head.
        head: Hidden states ``[n, H]`` -> logits ``[n, V]``.
        prefixes: B token sequences.
        num: Continuations per prefix.
        config: Temperature and length limit.
        eos_ids: Every token that ends a continuation.
        newline_ids: Every token that ends a line.

    Returns:
        ``num`` samples for each of B prefixes.
    """
    device = next(decoder.parameters()).device
    ids, mask = left_pad(prefixes, device)
    cache = DynamicCache(config=decoder.config)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    hidden = decoder(input_ids=ids, attention_mask=mask, position_ids=positions, cache=cache, use_cache=True).last_hidden_state
    cache.batch_repeat_interleave(num)
    state = hidden[:, -1].repeat_interleave(num, dim=0)
    mask = mask.repeat_interleave(num, dim=0)
    position = positions[:, -1:].repeat_interleave(num, dim=0)

    rows = len(prefixes) * num
    alive = torch.arange(rows, device=device)
    tokens = torch.zeros(rows, config.max_new_tokens, dtype=torch.long, device=device)
    logprobs = torch.zeros(rows, config.max_new_tokens, device=device)
    lengths = torch.full((rows,), config.max_new_tokens, device=device)
    finished = torch.zeros(rows, dtype=torch.bool, device=device)
    lines = torch.zeros(rows, dtype=torch.long, device=device)
    stop, newline = (torch.tensor(list(ids), device=device) for ids in (eos_ids, newline_ids))
    for step in range(config.max_new_tokens):
        logits = head(state).float() / config.temperature
        distribution = logits.log_softmax(-1)
        token = torch.multinomial(distribution.exp(), 1)
        tokens[alive, step] = token.squeeze(-1)
        logprobs[alive, step] = distribution.gather(-1, token).squeeze(-1)
        ended = torch.isin(token.squeeze(-1), stop)
        if config.max_lines is not None:
            lines[alive] += torch.isin(token.squeeze(-1), newline)
            ended |= lines[alive] >= config.max_lines
        lengths[alive[ended]] = step + 1
        finished[alive[ended]] = True
        if bool(ended.any()):
            keep = (~ended).nonzero().squeeze(-1)
            alive, token, mask, position = alive[keep], token[keep], mask[keep], position[keep]
            if len(alive) == 0:
                break
            cache.batch_select_indices(keep)
        if step + 1 == config.max_new_tokens:
            break
        mask = nn.functional.pad(mask, (0, 1), value=1)
        position = position + 1
        out = decoder(input_ids=token, attention_mask=mask, position_ids=position, cache=cache, use_cache=True)
        state = out.last_hidden_state[:, -1]

    flat = [
        Sample(tuple(t[:n]), tuple(p[:n]), f)
        for t, p, n, f in zip(tokens.tolist(), logprobs.tolist(), lengths.tolist(), finished.tolist(), strict=True)
    ]
    return [flat[start : start + num] for start in range(0, rows, num)]
