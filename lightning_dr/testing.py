"""Scripted roles: a round without a model, for tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lightning_dr.records import AnchorList, Batch, Completion, Prompt, Responses, RubricDraw, Rubrics
from lightning_dr.rubric import RubricParseError, parse_rubric


def scripted_batch(num_prompts: int = 1, answers: Sequence[str] | None = None, ranks: Sequence[float] | None = None) -> Batch:
    """Prompts ``p0``, ``p1``, …, each with the same anchor list, or with none."""
    ranked = None if answers is None else AnchorList(answers=tuple(answers), ranks=tuple(ranks or range(1, len(answers) + 1)))
    prompts = tuple(Prompt(id=f"p{n}", messages=({"role": "user", "content": f"Prompt {n}"},)) for n in range(num_prompts))
    return Batch(index=0, prompts=prompts, anchors=(ranked,) * num_prompts)


class ScriptedResponder:
    """Answers every prompt with the same texts; a text that ends in ``…`` counts as cut."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts

    def respond(self, prompts: Sequence[Prompt], num_responses: int) -> Responses:
        """The first ``num_responses`` texts, for each prompt."""
        group = tuple(Completion(text=text, finished=not text.endswith("…")) for text in self.texts[:num_responses])
        return (group,) * len(prompts)


class ScriptedWriter:
    """Writes the same texts for every prompt, and parses them as a generator does."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts

    def write(self, prompts: Sequence[Prompt], responses: Responses, num_rubrics: int) -> Rubrics:
        """The first ``num_rubrics`` texts, for each prompt."""
        return (tuple(self.draw(text) for text in self.texts[:num_rubrics]),) * len(prompts)

    @staticmethod
    def draw(text: str) -> RubricDraw:
        """One text as a draw."""
        completion = Completion(text=text)
        try:
            return RubricDraw(completion=completion, rubric=parse_rubric(text, duplicates="keep"))
        except RubricParseError as error:
            return RubricDraw(completion=completion, error=str(error))


class ScriptedVerifier:
    """Answers by a function of (question, response); ``None`` is an answer that can't be read. Remembers what it was asked."""

    def __init__(self, answer: Callable[[str, str], bool | float | None]) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str]] = []

    def verify(self, prompts: Sequence[Prompt], responses: Sequence[Sequence[str]], questions: Sequence[Sequence[str]]) -> list[Tensor]:
        """See :meth:`lightning_dr.roles.Verifier.verify`."""
        out = []
        for texts, asked in zip(responses, questions, strict=True):
            self.asked += [(question, text) for text in texts for question in asked]
            rows = [[self.answer(question, text) for question in asked] for text in texts]
            numbers = [[float("nan") if value is None else float(value) for value in row] for row in rows]
            out.append(torch.tensor(numbers).view(len(texts), len(asked)))
        return out
