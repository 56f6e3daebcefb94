"""Evaluators and reference rankings that need no model of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lightning_dr.ifeval import question_for
from lightning_dr.jsonl import read_lines
from lightning_dr.prompts import render_conversation
from lightning_dr.records import Prompt
from lightning_dr.roles import Evaluator, attach
from lightning_dr.rules import RuleVerifier


class LengthEvaluator:
    """The longer, the better: what any evaluator should beat.

    Args:
        half: Characters at which the score is 1/2; the score is n / (n + half).
    """

    reads_set = False

    def __init__(self, half: float = 500.0) -> None:
        if not half > 0:
            raise ValueError(f"`half` must be positive, got {half}.")
        self.half = half

    def scores(self, prompts: Sequence[Prompt], responses: Sequence[Sequence[str]]) -> list[Tensor]:
        """See :meth:`lightning_dr.roles.Evaluator.scores`."""
        lengths = [torch.tensor([float(len(text)) for text in texts]) for texts in responses]
        return [length / (length + self.half) for length in lengths]


class EvaluatorRanking:
    """A reference ranking by an evaluator, such as a stronger one than that which is being measured.

    Args:
        evaluator: Its scores are the quality.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator

    def attach(self, module: Any) -> None:
        """Hand the module on to the evaluator."""
        attach(self.evaluator, module)

    def quality(self, prompt: Prompt, responses: Sequence[str]) -> Tensor:
        """See :meth:`lightning_dr.roles.ReferenceRanking.quality`."""
        return self.evaluator.scores([prompt], [responses])[0]


class VerifiableCorrectness:
    """A reference ranking by what a program can check: the share of a prompt's constraints that a response satisfies.

    Args:
        path: A .jsonl file in IFEval's format: ``prompt``, ``instruction_id_list`` and ``kwargs`` a row.

    Raises:
        ValueError: If a row is not as above; the message names file and line.
    """

    def __init__(self, path: str) -> None:
        self.verifier = RuleVerifier()
        self.questions: dict[str, list[str]] = {}
        for where, row in read_lines(path, "a row of IFEval"):
            try:
                pairs = zip(row["instruction_id_list"], row["kwargs"], strict=True)
                found = [question_for(name, kwargs) for name, kwargs in pairs]
                self.questions[row["prompt"]] = [question for question in found if question is not None]
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{where}: must be a row of IFEval, but {error!r}.") from error

    def quality(self, prompt: Prompt, responses: Sequence[str]) -> Tensor:
        """Share of the constraints; NaN for a prompt that has none that a rule can read."""
        questions = self.questions.get(render_conversation(prompt.messages), [])
        if not questions:
            return torch.full((len(responses),), torch.nan)
        return self.verifier.verify([prompt], [responses], [questions])[0].nanmean(-1)
