"""What the algorithm asks of each role: anything with these methods can play it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor

from lightning_dr.records import Prompt, Responses, Rubrics


@runtime_checkable
class Responder(Protocol):
    """Samples response sets: the policy."""

    def respond(self, prompts: Sequence[Prompt], num_responses: int) -> Responses:
        """Sample ``num_responses`` (K) responses to each of B prompts."""
        ...


@runtime_checkable
class RubricWriter(Protocol):
    """Writes rubrics that read the prompt *and* its response set: the generator."""

    def write(self, prompts: Sequence[Prompt], responses: Responses, num_rubrics: int) -> Rubrics:
        """Sample ``num_rubrics`` (G) rubrics for each of B (prompt, response set) pairs."""
        ...


@runtime_checkable
class Verifier(Protocol):
    """Answers yes/no items. Frozen: nothing in training changes it."""

    def verify(self, prompts: Sequence[Prompt], responses: Sequence[Sequence[str]], questions: Sequence[Sequence[str]]) -> list[Tensor]:
        """Answer, for each of B prompts, each of its questions about each of its responses.

        Returns:
            B tensors of verdicts ``[len(responses[b]), len(questions[b])]`` in [0, 1], float32 on the CPU: 1 is yes, 0 is no, a value
            between is P(yes), NaN is an answer that could not be read. A failure of the verifier itself (out of memory,
            a lost connection) must raise instead.
        """
        ...


@runtime_checkable
class Evaluator(Protocol):
    """Scores response sets: whatever can supervise a policy and be compared with others on ranked answers.

    One that scores each response by itself, so that neither the others of the set nor their order matter, says ``reads_set = False``.
    """

    def scores(self, prompts: Sequence[Prompt], responses: Sequence[Sequence[str]]) -> list[Tensor]:
        """Score each response of each of B response sets; the sets may differ in size.

        Returns:
            B tensors ``[len(responses[b])]``, float32 on the CPU: higher is better, NaN is a response that could not be judged. Scores
            are compared within a set only. All evaluators of this package score in [0, 1], so that their score gaps have the
            same unit.
        """
        ...


def attach(part: object, module: object) -> None:
    """Let an evaluator or a reference ranking that has a method ``attach`` take what it needs of a ``CoEvolutionModule``."""
    if hasattr(part, "attach"):
        part.attach(module)


def unattached(part: object) -> RuntimeError:
    """The error of a part that is used before it knows its module."""
    return RuntimeError(f"`{type(part).__name__}` must be attached to a CoEvolutionModule before it scores: call `attach(module)`.")


@runtime_checkable
class ReferenceRanking(Protocol):
    """A reference ranking of a response set, against which the score gap is measured."""

    def quality(self, prompt: Prompt, responses: Sequence[str]) -> Tensor:
        """Quality of each response to one prompt ``[len(responses)]``: higher is better, NaN is unknown."""
        ...
