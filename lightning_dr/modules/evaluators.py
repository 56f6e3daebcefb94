"""Evaluators made of the run's own generator and verifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ..evaluation import RubricEvaluator
from ..records import Prompt
from ..roles import RubricWriter, unattached
from ..stored import StoredRubrics
from .role import read_adapter

ADAPTER = "evaluator"


class DynamicRubric:
    """Rubrics that the generator writes for each response set; with a template that shows no responses, for each prompt.

    Args:
        adapter_path: Folder of a saved generator, such as ``<run>/checkpoints/round-00100/generator``. ``None``: the generator of the run
            as it is, which is the untrained one (zero-shot) in a fit, since a generator with another evaluator in its place is not trained.
        num_rubrics: G, the rubrics for each set; the score is their mean.
    """

    def __init__(self, adapter_path: str | None = None, num_rubrics: int = 8) -> None:
        if num_rubrics < 1:
            raise ValueError(f"`num_rubrics` must be at least 1, got {num_rubrics}.")
        self.adapter_path = adapter_path
        self.num_rubrics = num_rubrics
        self._evaluator: RubricEvaluator | None = None

    def attach(self, module: Any) -> None:
        """Take the generator and the verifier of a ``CoEvolutionModule``."""
        self._evaluator = RubricEvaluator(self.writer(module), module.verifier, self.num_rubrics)

    def writer(self, module: Any) -> RubricWriter:
        """Who writes."""
        if self.adapter_path is None:
            return module.generator
        return module.generator.held_writer(ADAPTER, read_adapter(self.adapter_path, "generator"))

    @property
    def evaluator(self) -> RubricEvaluator:
        """What does the work, once the module is known."""
        if self._evaluator is None:
            raise unattached(self)
        return self._evaluator

    def scores(self, prompts: Sequence[Prompt], responses: Sequence[Sequence[str]]) -> list[Tensor]:
        """See :meth:`lightning_dr.roles.Evaluator.scores`."""
        return self.evaluator.scores(prompts, responses)


class StaticRubric(DynamicRubric):
    """Rubrics that are written once per prompt and kept on disk, by this or another model.

    As rewards of a policy they are RaR with explicit aggregation (arXiv 2507.17746): the weighted share of the items that hold. With
    implicit aggregation it is :class:`.judges.ImplicitRubric` with a :class:`lightning_dr.stored.StoredRubrics` as its writer.

    Args:
        path: A file for :class:`lightning_dr.stored.StoredRubrics`. What it lacks is written by the generator.
        adapter_path: See :class:`DynamicRubric`.
        num_rubrics: Rubrics for each prompt.
    """

    def __init__(self, path: str, adapter_path: str | None = None, num_rubrics: int = 8) -> None:
        super().__init__(adapter_path, num_rubrics)
        self.path = path

    def writer(self, module: Any) -> RubricWriter:
        """The file, and behind it the generator."""
        return StoredRubrics(self.path, super().writer(module))
