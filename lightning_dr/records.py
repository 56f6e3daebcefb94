"""The records of one round: what each stage reads and what it hands on.

Tensor names end in a shape suffix:

=====  ============================================
``B``  prompts of the round
``K``  responses per prompt (the response set C)
``G``  rubrics per prompt
``M``  items per rubric, padded to the longest rubric
``R``  ranked anchor answers, padded to the longest list
``N``  sequences
``T``  tokens
=====  ============================================

A number that does not exist is NaN everywhere: a verdict that could not be read, the score of a padded answer, the
discriminability of an unreadable rubric. It is never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from lightning_dr.rubric import Rubric

UNSET: Any = None
"""A field whose stage has not run yet."""

Message = Mapping[str, str]
"""One chat message: ``{"role": "user" | "assistant" | "system", "content": text}``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt x: chat messages that ask for something; the last one is the user's."""

    id: str
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorList:
    """A prompt's ranked answers; rank 1 is best, ties share a rank, NaN marks a missing rank."""

    answers: tuple[str, ...]
    ranks: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.answers) != len(self.ranks):
            raise ValueError(f"`ranks` must have one rank per answer, got {len(self.ranks)} for {len(self.answers)} answers.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The prompts of one round, each with its anchor list, or ``None`` where it has none."""

    index: int
    """Position in the stream of batches: batch ``index`` is a pure function of the data seed and this number."""
    prompts: tuple[Prompt, ...]
    anchors: tuple[AnchorList | None, ...]

    def __post_init__(self) -> None:
        if len(self.prompts) != len(self.anchors):
            raise ValueError(f"`anchors` must have one entry per prompt, got {len(self.anchors)} for {len(self.prompts)} prompts.")

    def to(self, *args: Any, **kwargs: Any) -> Batch:
        """The batch itself, which is text: a Trainer asks for it on a device."""
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One sampled continuation: a response of the policy, or the text of a rubric."""

    text: str
    token_ids: tuple[int, ...] = ()
    """The sampled tokens, the end-of-sequence token included when ``finished``."""
    logprobs: tuple[float, ...] = ()
    """Log-probability of each token under the distribution it was sampled from (nats); empty when not sampled by us."""
    prefix_ids: tuple[int, ...] = ()
    """The tokens that the continuation was sampled after."""
    finished: bool = True
    """False when the length limit cut it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RubricDraw:
    """One sampled rubric: its text, and what could be read from it (``rubric`` or else ``error``)."""

    completion: Completion
    rubric: Rubric | None = None
    error: str | None = None

    def __post_init__(self) -> None:
        if (self.rubric is None) == (self.error is None):
            raise ValueError("A `RubricDraw` must have either a `rubric` or an `error`.")


Responses = tuple[tuple[Completion, ...], ...]
"""B response sets of K responses."""
Rubrics = tuple[tuple[RubricDraw, ...], ...]
"""B groups of G rubrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One draw of rubrics, and what came of it stage by stage."""

    rubrics: Rubrics
    weights_BGM: Tensor = UNSET
    item_mask_BGM: Tensor = UNSET
    """False for padding, for the items of unreadable rubrics, and for repeated items."""
    verdicts_BGKM: Tensor = UNSET
    anchor_verdicts_BGRM: Tensor = UNSET
    """R is 0 where the anchor lists were not verified."""
    verdict_failures: float = 0.0
    """Share of the answers that could not be read."""
    scores_BGK: Tensor = UNSET
    anchor_scores_BGR: Tensor = UNSET
    disc_BG: Tensor = UNSET
    anchor_BG: Tensor = UNSET
    format_BG: Tensor = UNSET
    gap_BG: Tensor = UNSET
    """Set where the score gap is a reward."""

    def __post_init__(self) -> None:
        if not self.rubrics or len({len(group) for group in self.rubrics}) != 1:
            raise ValueError("`rubrics` must be B groups of the same size G.")
        check_shapes(self, {"B": len(self.rubrics), "G": len(self.rubrics[0])})

    @property
    def readable_BG(self) -> Tensor:  # noqa: N802
        """Which rubrics could be read ``[B, G]``."""
        return torch.tensor([[draw.rubric is not None for draw in group] for group in self.rubrics])


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The record of a round. Stages and hooks replace it, never change it; every field checks its own shape."""

    index: int
    batch: Batch
    responses: Responses = ()
    live: Evaluation = UNSET
    """The live generator's rubrics, which earn it its reward; unset in a round in which it does not write."""
    evaluator: Evaluation = UNSET
    """The rubrics that score the policy: the same object as ``live`` unless the two are parted; unset where no rubrics score it."""
    scores_BK: Tensor = UNSET
    """E of each response: the mean over the evaluator's readable rubrics, NaN where there is none."""
    anchor_scores_BR: Tensor = UNSET
    """The same for the anchor lists; unset where they were not scored by what scores the policy."""
    policy_rewards_BK: Tensor = UNSET
    policy_valid_BK: Tensor = UNSET
    policy_advantages_BK: Tensor = UNSET
    generator_advantages_BG: Tensor = UNSET
    generator_valid_BG: Tensor = UNSET
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall-clock seconds of each stage."""
    metrics: dict[str, float] = field(default_factory=dict)
    """What the round is logged with; hooks may add to it."""

    def __post_init__(self) -> None:
        sizes = {"B": len(self.batch.prompts)}
        if self.responses:
            if len(self.responses) != sizes["B"] or len({len(group) for group in self.responses}) != 1:
                raise ValueError(
                    f"`responses` must be {sizes['B']} groups of the same size K, got sizes {[len(g) for g in self.responses]}."
                )
            sizes["K"] = len(self.responses[0])
        for name in ("live", "evaluator"):
            draw = getattr(self, name)
            if draw is not None:
                check_shapes(draw, sizes | {"G": len(draw.rubrics[0])}, f"{name}.")
                if len(draw.rubrics) != sizes["B"]:
                    raise ValueError(f"`{name}.rubrics` must have {sizes['B']} groups, got {len(draw.rubrics)}.")
        check_shapes(self, sizes | ({"G": len(self.live.rubrics[0])} if self.live else {}))

    @property
    def parted(self) -> bool:
        """Whether the policy is scored by other rubrics than the live generator's, or by none."""
        return self.evaluator is not self.live or self.evaluator is None


def check_shapes(record: object, sizes: Mapping[str, int], where: str = "") -> None:
    """Compare each tensor field with the shape that its name ends in.

    Raises:
        ValueError: Naming the field, the shape it must have and the one it has.
    """
    for item in fields(record):  # type: ignore[arg-type]
        value = getattr(record, item.name)
        if not isinstance(value, Tensor):
            continue
        letters = item.name.rpartition("_")[2]
        expected = [sizes.get(letter) for letter in letters]
        fits = value.dim() == len(letters) and all(size in (None, have) for size, have in zip(expected, value.shape, strict=False))
        if not fits:
            wanted = ", ".join(letter if size is None else f"{letter}={size}" for letter, size in zip(letters, expected, strict=True))
            raise ValueError(f"`{where}{item.name}` must have shape [{wanted}], got {list(value.shape)}.")
