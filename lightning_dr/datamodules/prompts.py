"""Prompts without anchor answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..records import Batch, Message, Prompt
from .sources import BadRows, RowProblem, check_length, load_rows, parse_prompt, usable_rows
from .stream import RoundDataModule


class RowsDataModule(RoundDataModule):
    """Rows of a file or a Hub dataset, checked once and parsed when they are needed.

    Args:
        path: A .parquet, .json or .jsonl file, or the name of a dataset on the Hub.
        split: Split of a Hub dataset.
        revision: Commit or tag of a Hub dataset.
        prompt_column: The column that holds the prompt: text, Nectar's turns, or a list of chat messages.
        max_prompt_chars: Longer prompts are left out and counted.
        max_rows: Only look at this many rows.
        bad_rows: ``"error"`` stops at a bad row and names it; ``"skip"`` leaves bad rows out and counts them.
        batch_size: Prompts per round.
        seed: Order of the rows, and which are held out.
        num_val: Prompts held out for validation.
    """

    def __init__(
        self,
        path: str,
        split: str = "train",
        revision: str | None = None,
        prompt_column: str = "prompt",
        max_prompt_chars: int | None = None,
        max_rows: int | None = None,
        bad_rows: BadRows = "error",
        batch_size: int = 8,
        seed: int = 0,
        num_val: int = 0,
    ) -> None:
        super().__init__(batch_size=batch_size, seed=seed, num_val=num_val)
        if bad_rows not in ("error", "skip"):
            raise ValueError(f"`bad_rows` must be 'error' or 'skip', got {bad_rows!r}.")
        self.path, self.split, self.revision = path, split, revision
        self.prompt_column = prompt_column
        self.max_prompt_chars = max_prompt_chars
        self.max_rows = max_rows
        self.bad_rows = bad_rows
        self.rows: Sequence[Any] = ()

    def setup(self, stage: str) -> None:
        """Load and check the rows, once."""
        if self.rows:
            return
        rows = load_rows(self.path, self.split, self.revision)
        if self.max_rows is not None and len(rows) > self.max_rows:
            rows = rows.select(range(self.max_rows)) if hasattr(rows, "select") else rows[: self.max_rows]
        self.hold_out(usable_rows(rows, self.path, self.parse, self.bad_rows))
        self.rows = rows

    def parse(self, row: Any) -> Any:
        """What a row holds.

        Raises:
            RowProblem: If the row is bad.
            RowFiltered: If the config leaves it out.
        """
        return self.parse_messages(row)

    def parse_messages(self, row: Any) -> tuple[Message, ...]:
        """The prompt of a row."""
        if row.get(self.prompt_column) is None:
            raise RowProblem(f"nothing under `{self.prompt_column}`; the columns are {sorted(row)}")
        messages = parse_prompt(row[self.prompt_column], self.prompt_column)
        check_length(messages, self.max_prompt_chars)
        return messages

    def prompt(self, number: int, messages: tuple[Message, ...]) -> Prompt:
        """The record of the prompt in row ``number``, with an id that stays the same between runs."""
        return Prompt(id=f"{Path(self.path).stem}:{number}", messages=messages)

    def identity(self) -> dict[str, Any]:
        """What must be the same for a position to mean the same batch."""
        return super().identity() | {"path": Path(self.path).name}


class PromptDataModule(RowsDataModule):
    """Prompts for the policy, without anchor answers. See :class:`RowsDataModule` for the arguments."""

    def make_batch(self, index: int, rows: Sequence[int]) -> Batch:
        """The prompts of some rows."""
        prompts = tuple(self.prompt(number, self.parse(self.rows[number])) for number in rows)
        return Batch(index=index, prompts=prompts, anchors=(None,) * len(prompts))
