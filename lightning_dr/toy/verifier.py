"""The exact verifier of the toy world."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lightning_dr.records import Prompt


def mentions(question: re.Match[str], response: str) -> bool:
    """Whether the word stands in the response."""
    return question["word"] in re.findall(r"\w+", response)


TOY_RULES: dict[str, Callable[[re.Match[str], str], bool]] = {
    r"Does the response mention (?P<word>\w+)\?": mentions,
    r"Does the response avoid (?P<word>\w+)\?": lambda question, response: not mentions(question, response),
}
"""Question pattern -> its answer."""


class ToyVerifier:
    """Answers the two kinds of items of the toy world; any other question can't be read."""

    def verify(
        self, prompts: Sequence[Prompt], responses: Sequence[Sequence[str]], questions: Sequence[Sequence[str]]
    ) -> list[Tensor]:
        """See :meth:`lightning_dr.roles.Verifier.verify`."""
        return [
            torch.tensor([[answer(question, text) for question in asked] for text in texts]).view(len(texts), len(asked))
            for texts, asked in zip(responses, questions, strict=True)
        ]


def answer(question: str, response: str) -> float:
    """1 yes, 0 no, NaN where no rule reads the question."""
    for pattern, check in TOY_RULES.items():
        found = re.fullmatch(pattern, question)
        if found is not None:
            return float(check(found, response))
    return float("nan")
