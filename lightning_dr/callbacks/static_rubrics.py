"""Score the policy with rubrics that are written once per prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning import Trainer

from ..roles import RubricWriter
from ..stored import StoredRubrics
from .stale_evaluator import StaleEvaluator

FILENAME = "static_rubrics.jsonl"


class StaticRubrics(StaleEvaluator):
    """From a round on, each prompt keeps the rubrics that it was given first: they no longer see the response set.

    The generator as it is at the start of that round writes them, from the set with which the prompt first comes, into
    ``static_rubrics.jsonl`` in the run folder (see :class:`~lightning_dr.stored.StoredRubrics`). The live generator goes on learning.

    Args:
        freeze_at: The first such round; 0: the untrained generator writes.
        path: A file of rubrics to begin with, such as another model's; it is not changed.
    """

    def __init__(self, freeze_at: int = 0, path: str | None = None) -> None:
        super().__init__(freeze_at=freeze_at)
        self._texts = {} if path is None else StoredRubrics(path).texts
        self._store: StoredRubrics | None = None

    def held_evaluator(self, module: Any) -> RubricWriter:
        """The stored rubrics; the old generator writes those that are missing."""
        if self._store is None:
            folder = Path(module.trainer.log_dir or module.trainer.default_root_dir)
            self._store = StoredRubrics(folder / FILENAME, super().held_evaluator(module))
            self._store.add(self._texts)
        return self._store

    def teardown(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        """The live generator is the evaluator again; another run keeps its own file."""
        super().teardown(trainer, pl_module, stage)
        self._texts, self._store = self._stored(), None

    def _stored(self) -> dict[str, list[str]]:
        return dict(self._texts if self._store is None else self._store.texts)

    def state_dict(self) -> dict[str, Any]:
        """The old generator and what it has written."""
        return super().state_dict() | {"texts": self._stored()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore :meth:`state_dict`."""
        super().load_state_dict(state_dict)
        self._texts = dict(state_dict["texts"])
