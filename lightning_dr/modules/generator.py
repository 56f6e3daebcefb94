"""The rubric generator: reads a prompt and its response set, and writes weighted yes/no items."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from lightning.pytorch.cli import OptimizerCallable
from torch import Tensor

from ..objectives import ObjectiveConfig
from ..prompts import Template, load_template, render_conversation, render_responses
from ..records import Completion, Prompt, Responses, RubricDraw, Rubrics
from ..rubric import RubricParseError, normalise_question, parse_rubric
from .role import RoleModule
from .sampling import SamplingConfig


class GeneratorModule(RoleModule):
    """The role that writes rubrics.

    Args:
        lora: See :class:`RoleModule`, as for the arguments that are not listed here.
        optimizer: See :class:`RoleModule`.
        sampling: See :class:`RoleModule`.
        objective: See :class:`RoleModule`.
        max_grad_norm: See :class:`RoleModule`.
        adapter_path: See :class:`RoleModule`.
        template: The prompt of the generator: a bundled name or a path.
        max_items: A rubric with more items is unreadable. Not given in the source.
        duplicate_items: ``"reject"``: a rubric that repeats an item is unreadable. ``"mask"``: the repeated item earns and scores nothing.
        question_pattern: A regular expression; a rubric with a question that does not match it is unreadable. For verifiers that
            only know some kinds of questions.
    """

    role = "generator"

    def __init__(
        self,
        lora: dict[str, Any] | None = None,
        optimizer: OptimizerCallable = lambda params: torch.optim.AdamW(params, lr=5e-6, weight_decay=0.0),
        sampling: SamplingConfig = SamplingConfig(),  # noqa: B008
        objective: ObjectiveConfig = ObjectiveConfig(),  # noqa: B008
        max_grad_norm: float | None = 1.0,
        adapter_path: str | None = None,
        template: str = "generator",
        max_items: int = 8,
        duplicate_items: Literal["reject", "mask"] = "reject",
        question_pattern: str | None = None,
    ) -> None:
        super().__init__(lora, optimizer, sampling, objective, max_grad_norm, adapter_path)
        if max_items < 1:
            raise ValueError(f"`max_items` must be at least 1, got {max_items}.")
        self.template = load_template(template, needed=["prompt"], usual=["responses"], optional=["max_items"])
        self.example_questions = example_questions(self.template)
        self.max_items = max_items
        if duplicate_items not in ("reject", "mask"):
            raise ValueError(f"`duplicate_items` must be 'reject' or 'mask', got {duplicate_items!r}.")
        self.duplicate_items = duplicate_items
        self.question_pattern = None if question_pattern is None else re.compile(question_pattern)

    def write(self, prompts: Sequence[Prompt], responses: Responses, num_rubrics: int, adapter: str | None = None) -> Rubrics:
        """Sample G rubrics for each prompt and its response set, with the live adapter unless another is named."""
        prefixes = [self.prefix(prompt, group) for prompt, group in zip(prompts, responses, strict=True)]
        drawn = self.draw_completions(prefixes, num_rubrics, adapter)
        return tuple(tuple(self.read(completion) for completion in group) for group in drawn)

    def prefix(self, prompt: Prompt, responses: Sequence[Completion]) -> tuple[int, ...]:
        """The tokens that a rubric continues: x and C in the generator's template."""
        return self.backbone.encode(
            self.template.render(
                prompt=render_conversation(prompt.messages),
                responses=render_responses([response.text for response in responses]),
                max_items=str(self.max_items),
            )
        )

    def read(self, completion: Completion) -> RubricDraw:
        """Parse one sampled text. What can't be read costs the generator.

        Neither can a text that was cut, nor an item copied from the template's example: copying it is the cheapest way to
        write something readable, and then the rubric has nothing to do with the prompt.
        """
        if not completion.finished:
            return RubricDraw(completion=completion, error="cut at the length limit")
        duplicates: Literal["reject", "keep"] = "reject" if self.duplicate_items == "reject" else "keep"
        try:
            rubric = parse_rubric(self.template.prefill + completion.text, max_items=self.max_items, duplicates=duplicates)
        except RubricParseError as error:
            return RubricDraw(completion=completion, error=str(error))
        for question in rubric.questions:
            if normalise_question(question) in self.example_questions:
                return RubricDraw(completion=completion, error=f"copied from the example in the template: {question!r}")
            if self.question_pattern is not None and self.question_pattern.fullmatch(question) is None:
                return RubricDraw(completion=completion, error=f"a question of another kind: {question!r}")
        return RubricDraw(completion=completion, rubric=rubric)

    def writer(self, adapter: str) -> AdapterWriter:
        """A rubric writer that uses another adapter of the generator's backbone."""
        return AdapterWriter(self, adapter)

    def held_writer(self, adapter: str, state: Mapping[str, Tensor]) -> AdapterWriter:
        """A rubric writer with saved tensors in the frozen ``adapter``: a stale or swapped evaluator."""
        self.backbone.hold_adapter(adapter, self.role, state)
        return self.writer(adapter)


def example_questions(template: Template) -> set[str]:
    """The questions, normalised, of the rubrics that the assistant writes in a template's examples.

    Raises:
        ValueError: If an example is no rubric: the generator would be shown a form that is not read.
    """
    found: set[str] = set()
    for role, text in template.sections[:-1]:
        if role == "assistant":
            try:
                found |= {normalise_question(question) for question in parse_rubric(text).questions}
            except RubricParseError as error:
                raise ValueError(
                    f"Template {template.name!r}: an assistant section must be a rubric, or the prefill at the end. {error}"
                ) from error
    return found


class AdapterWriter:
    """A :class:`~lightning_dr.roles.RubricWriter` that writes with a named adapter of the generator's backbone."""

    def __init__(self, generator: GeneratorModule, adapter: str) -> None:
        self.generator = generator
        self.adapter = adapter

    def write(self, prompts: Sequence[Prompt], responses: Responses, num_rubrics: int) -> Rubrics:
        """Sample G rubrics for each prompt and its response set."""
        return self.generator.write(prompts, responses, num_rubrics, self.adapter)
