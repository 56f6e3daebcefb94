"""The exact verifier of the toy world."""

from __future__ import annotations

import re

from lightning_dr.rules import Check, RuleVerifier


def mentions(question: re.Match[str], response: str) -> bool:
    """Whether the word stands in the response."""
    return question["word"].lower() in response.split()


TOY_RULES: dict[str, Check] = {
    r"Does the response mention (?P<word>\w+)\?": mentions,
    r"Does the response avoid (?P<word>\w+)\?": lambda question, response: not mentions(question, response),
}
"""Question pattern -> its answer."""


class ToyVerifier(RuleVerifier):
    """A :class:`~lightning_dr.rules.RuleVerifier` that knows the two kinds of items of the toy world and no other."""

    def __init__(self) -> None:
        super().__init__(TOY_RULES)
