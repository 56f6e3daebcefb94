"""Does a model take packed branches and shared keys? A numeric check, once, before the first pass; no list of architectures."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..branches import Pack, Tree, make_packs
from .sampling import Sample, SamplingConfig

SHORT = 48
"""Tokens of the prefix of the first comparison."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PackingCheck:
    """What the check found."""

    max_shared_row: int | None
    """The longest row that may hold several branches: ``None`` any, 0 none."""
    difference: float
    """Mean absolute difference of token log-probabilities, packed against one row per branch (nats)."""
    leak: float
    """How much a branch changes when another one does (nats); exactly 0 behind a mask that is kept."""


def check_packing(
    logprobs: Callable[[Pack], Tensor], vocabulary: int, precision: float, window: int | None, max_tokens: int
) -> PackingCheck:
    """Compare packed branches with one row per branch, on a short prefix and, where the model has a window, on one that is longer.

    Args:
        logprobs: Token log-probabilities ``[n]`` of a pack, without gradient.
        vocabulary: Number of tokens.
        precision: Machine epsilon of the type that the model computes in.
        window: Tokens of the model's sliding window that its config names.
        max_tokens: Budget of a pass; a window that is longer is not tried, and rows of several branches end there.

    Returns:
        Rows of several branches are off (0) if a branch sees another one, or if the numbers differ by more than rounding explains. They end
        at the window if only those of long rows do.
    """
    try:
        difference, leak, scale = compare(logprobs, vocabulary, SHORT)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever a model says that can't take the mask
        log.warning("The model takes no mask for packed branches (%s): one row per branch, which is slower.", error)
        return PackingCheck(0, float("nan"), float("nan"))
    if not (difference <= rounding(precision, scale) and leak <= precision):
        log.warning(
            "The model gives other numbers for packed branches (mean difference %.2g nats, leak %.2g): "
            "one row per branch, which is slower.",
            difference,
            leak,
        )
        return PackingCheck(0, difference, leak)
    if window is not None:
        tried = window + SHORT <= max_tokens
        if not (tried and compare(logprobs, vocabulary, window + SHORT)[0] <= max(1e-4, 3 * difference)):
            log.warning(
                "The model's sliding window of %d tokens does not hold in packed branches: one row per branch where a row is longer.",
                window,
            )
            return PackingCheck(window, difference, leak)
    log.info("Packed branches give the numbers of single rows: mean difference %.2g nats.", difference)
    return PackingCheck(None, difference, leak)


def check_sharing(
    draw: Callable[[tuple[int, ...], int, SamplingConfig], list[Sample]],
    logprobs: Callable[[Pack], Tensor],
    vocabulary: int,
    precision: float,
) -> bool:
    """Whether continuations that were sampled from shared keys have the log-probabilities that rows of their own give them.

    Args:
        draw: Samples some continuations of a prefix from shared keys.
        logprobs: Token log-probabilities ``[n]`` of a pack, without gradient.
        vocabulary: Number of tokens.
        precision: Machine epsilon of the type that the model computes in.
    """
    prefix = walk(vocabulary, SHORT)
    try:
        drawn = draw(prefix, 3, SamplingConfig(max_new_tokens=8))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever a model says that can't take them
        log.warning("The model takes no shared keys (%s): each continuation has a copy of its prefix's, which is slower.", error)
        return False
    rows = joined(logprobs, make_packs([Tree(prefix, tuple(sample.token_ids for sample in drawn))], 10**9, 0))
    difference = (torch.tensor([value for sample in drawn for value in sample.logprobs]) - rows).abs().mean().item()
    if difference <= rounding(precision, rows.abs().mean().item()):
        return True
    log.warning("The model samples otherwise from shared keys (mean difference %.2g nats): copies, which is slower.", difference)
    return False


def rounding(precision: float, scale: float) -> float:
    """The mean difference (nats) that rounding explains, of log-probabilities of a mean size ``scale``."""
    return max(1e-4, 4 * precision * scale)


def walk(vocabulary: int, length: int) -> tuple[int, ...]:
    """Tokens from all over the vocabulary, without touching the random state of training."""
    return tuple((7 + 7919 * number) % vocabulary for number in range(length))


def compare(logprobs: Callable[[Pack], Tensor], vocabulary: int, length: int) -> tuple[float, float, float]:
    """Difference and leak of a prefix of ``length`` tokens, and the mean size of the log-probabilities.

    The last branch repeats the first one: a model that sees both would copy.
    """
    tokens = walk(vocabulary, length + 24)
    prefix, one, other = tokens[:length], tokens[length : length + 12], tokens[length + 12 :]
    tree = Tree(prefix, (one, other[:5], one))
    packed, changed, rows = (
        joined(logprobs, make_packs([which], 10**9, limit))
        for which, limit in ((tree, None), (Tree(prefix, (other, one[:5], one)), None), (tree, 0))
    )
    difference = (packed - rows).abs().mean().item()
    leak = (packed[-len(one) :] - changed[-len(one) :]).abs().max().item()
    return difference, leak, rows.abs().mean().item()


def joined(logprobs: Callable[[Pack], Tensor], packs: list[Pack]) -> Tensor:
    """Log-probabilities of all branches in order, in float32 on the CPU."""
    found: dict[int, Tensor] = {}
    for pack in packs:
        found.update(pack.split(logprobs(pack).float().cpu()))
    return torch.cat([found[owner] for owner in sorted(found)])
