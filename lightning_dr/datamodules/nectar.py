"""Ranked answer lists in the schema of Nectar (berkeley-nest/Nectar)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ..records import AnchorList, Batch, Message
from .prompts import RowsDataModule
from .sources import BadRows, RowFiltered, RowProblem, check_unicode

REFUSAL = "I apologize, but I can't assist with that request."


class NectarAnchorDataModule(RowsDataModule):
    """Prompts with their ranked answers (the anchor lists).

    A row has ``prompt`` and ``answers``, a list of ``{answer, rank}`` in any order; other columns do not matter. Equal ranks are ties; a
    missing rank leaves its answer unranked.

    Args:
        path: A .parquet, .json or .jsonl file, or the name of a dataset on the Hub.
        split: Split of a Hub dataset.
        revision: Commit or tag of a Hub dataset.
        prompt_column: See :class:`RowsDataModule`.
        max_prompt_chars: Longer prompts are left out and counted.
        max_answer_chars: Lists with a longer answer are left out and counted.
        min_answers: Lists with fewer answers (after cleaning) are left out and counted.
        repeated_answers: ``"drop"`` keeps only the best-ranked copy of an answer that is in a list more than once.
        refusals: ``"drop"`` takes the fixed refusal of the dataset out of the lists.
        max_rows: Only look at this many rows.
        bad_rows: ``"error"`` stops at a bad row and names it; ``"skip"`` leaves bad rows out and counts them.
        batch_size: Prompts per round.
        seed: Order of the rows, and which are held out.
        num_val: Prompts held out for validation.
    """

    def __init__(
        self,
        path: str = "berkeley-nest/Nectar",
        split: str = "train",
        revision: str | None = None,
        prompt_column: str = "prompt",
        max_prompt_chars: int | None = None,
        max_answer_chars: int | None = None,
        min_answers: int = 2,
        repeated_answers: Literal["drop", "keep"] = "drop",
        refusals: Literal["drop", "keep"] = "keep",
        max_rows: int | None = None,
        bad_rows: BadRows = "error",
        batch_size: int = 8,
        seed: int = 0,
        num_val: int = 0,
    ) -> None:
        super().__init__(path, split, revision, prompt_column, max_prompt_chars, max_rows, bad_rows, batch_size, seed, num_val)
        if min_answers < 2:
            raise ValueError(f"`min_answers` must be at least 2, got {min_answers}: a ranking needs a pair.")
        for name, value in (("repeated_answers", repeated_answers), ("refusals", refusals)):
            if value not in ("drop", "keep"):
                raise ValueError(f"`{name}` must be 'drop' or 'keep', got {value!r}.")
        self.max_answer_chars = max_answer_chars
        self.min_answers = min_answers
        self.repeated_answers = repeated_answers
        self.refusals = refusals

    def parse(self, row: Any) -> tuple[tuple[Message, ...], AnchorList]:
        """The prompt and the cleaned list of a row."""
        messages = self.parse_messages(row)
        pairs = self._clean(parse_answers(row.get("answers")))
        if self.max_answer_chars is not None and any(len(answer) > self.max_answer_chars for answer, _ in pairs):
            raise RowFiltered(f"an answer longer than max_answer_chars = {self.max_answer_chars}")
        if len(pairs) < self.min_answers:
            raise RowFiltered(f"fewer than min_answers = {self.min_answers} different answers")
        if len({rank for _, rank in pairs if not math.isnan(rank)}) < 2:
            raise RowProblem("`answers` has no two answers of different rank")
        return messages, AnchorList(answers=tuple(answer for answer, _ in pairs), ranks=tuple(rank for _, rank in pairs))

    def _clean(self, pairs: list[tuple[str, float]]) -> list[tuple[str, float]]:
        if self.refusals == "drop":
            pairs = [(answer, rank) for answer, rank in pairs if answer.replace("’", "'").strip() != REFUSAL]
        if self.repeated_answers == "keep":
            return pairs
        best: dict[str, float] = {}
        for answer, rank in pairs:
            best[answer] = min(best.get(answer, math.inf), math.inf if math.isnan(rank) else rank)
        return [(answer, math.nan if math.isinf(rank) else rank) for answer, rank in best.items()]

    def make_batch(self, index: int, rows: Sequence[int]) -> Batch:
        """The prompts of some rows with their lists."""
        parsed = [(number, *self.parse(self.rows[number])) for number in rows]
        return Batch(
            index=index,
            prompts=tuple(self.prompt(number, messages) for number, messages, _ in parsed),
            anchors=tuple(ranked for _, _, ranked in parsed),
        )


def parse_answers(answers: Any) -> list[tuple[str, float]]:
    """(answer, rank) pairs of a row, NaN for a missing rank.

    Raises:
        RowProblem: Naming the answer and the field that is wrong.
    """
    if isinstance(answers, Mapping):  # a list of structs, as older versions of `datasets` hand it out
        try:
            answers = [dict(zip(answers, values, strict=True)) for values in zip(*answers.values(), strict=True)]
        except (TypeError, ValueError) as error:
            raise RowProblem("`answers` has columns that are not lists of the same length") from error
    if not isinstance(answers, Sequence) or isinstance(answers, str) or not answers:
        raise RowProblem("`answers` is not a list with entries")
    pairs = []
    for number, entry in enumerate(answers, start=1):
        if not isinstance(entry, Mapping) or not isinstance(entry.get("answer"), str) or not entry["answer"].strip():
            raise RowProblem(f"`answers[{number}].answer` is not text")
        check_unicode(entry["answer"], f"answers[{number}].answer")
        rank = entry.get("rank")
        if rank is not None and (isinstance(rank, bool) or not isinstance(rank, int | float) or math.isinf(rank)):
            raise RowProblem(f"`answers[{number}].rank` is not a number: {rank!r}")
        pairs.append((entry["answer"], math.nan if rank is None else float(rank)))
    return pairs
