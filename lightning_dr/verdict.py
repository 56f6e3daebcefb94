"""A verifier's answer -> verdict."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

WORD = re.compile(r"\b(yes|no)\b", re.IGNORECASE)
ANSWER = re.compile(r"(?:\A(?:```\w*\s)?|\b(?:answer|verdict)\b(?:\s+is\b)?)\W*(?:yes|no)\b(?=[ \t]*(?:[^\w \t]|\Z))", re.IGNORECASE)
"""A yes or no that opens the text or follows "answer" or "verdict", and with which a clause ends."""
AROUND = string.whitespace + string.punctuation + "▁Ġ“”‘’«»"
"""What a token may have around its word."""


class VerdictParseError(ValueError):
    """A verifier's text is neither yes nor no."""


def parse_verdict(text: str) -> bool:
    """Read a verdict from text that opens with it, or that says "answer: …".

    Raises:
        VerdictParseError: If the answer is neither yes nor no, or both words are in the text.

    Example:
        >>> parse_verdict("**Yes.**"), parse_verdict("Answer: no")
        (True, False)
    """
    plain = text.replace("_", " ").strip()
    words = {word.lower() for word in WORD.findall(plain)}
    if len(words) != 1 or ANSWER.search(plain) is None:
        raise VerdictParseError(f"A verdict must say yes or no, got {text[:80]!r}.")
    return words == {"yes"}


def yes_no_token_ids(vocabulary: Mapping[int, str]) -> tuple[list[int], list[int]]:
    """All tokens that mean yes, and all that mean no, whatever their case, blanks, quotes and punctuation.

    Args:
        vocabulary: Token id -> decoded text.

    Raises:
        ValueError: If there is none of either.

    Example:
        >>> yes_no_token_ids({0: " Yes", 1: "no", 2: "NO", 3: "yesterday"})
        ([0], [1, 2])
    """
    found: dict[str, list[int]] = {"yes": [], "no": []}
    for token, text in vocabulary.items():
        word = text.strip(AROUND).lower()
        if word in found:
            found[word].append(token)
    if not found["yes"] or not found["no"]:
        raise ValueError("The verifier's vocabulary must hold single tokens for yes and no. Use another model or a `RuleVerifier`.")
    return found["yes"], found["no"]


def verdict_probabilities(logits: Tensor, yes_ids: Sequence[int], no_ids: Sequence[int]) -> tuple[Tensor, Tensor]:
    """P(yes) among yes and no, and the total probability on both.

    Args:
        logits: Next-token logits ``[..., V]``.
        yes_ids: Tokens that mean yes.
        no_ids: Tokens that mean no.

    Returns:
        Two tensors ``[...]``, float32.

    Example:
        >>> p, mass = verdict_probabilities(torch.tensor([0.6, 0.2, 0.2]).log(), [0], [1])
        >>> round(p.item(), 4), round(mass.item(), 4)
        (0.75, 0.8)
    """
    logprobs = logits.float().log_softmax(-1)
    yes = logprobs[..., list(yes_ids)].logsumexp(-1)
    no = logprobs[..., list(no_ids)].logsumexp(-1)
    return torch.sigmoid(yes - no), yes.exp() + no.exp()
