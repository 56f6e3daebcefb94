"""Rubrics that are written once per prompt and kept on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning_dr.jsonl import read_lines
from lightning_dr.prompts import render_conversation
from lightning_dr.records import Completion, Prompt, Responses, RubricDraw, Rubrics
from lightning_dr.roles import RubricWriter
from lightning_dr.rubric import RubricParseError, parse_rubric, render_rubric

FORM = 'a JSON object {"prompt": text, "rubrics": [text, …]}'
"""A line of the file."""


def read_text(completion: Completion) -> RubricDraw:
    """Parse a stored text; a repeated item earns nothing, as elsewhere."""
    try:
        return RubricDraw(completion=completion, rubric=parse_rubric(completion.text, duplicates="keep"))
    except RubricParseError as error:
        return RubricDraw(completion=completion, error=str(error))


def _parse(where: str, entry: Any) -> tuple[str, list[str]]:
    """Prompt and rubrics of a line."""
    prompt, texts = (entry.get("prompt"), entry.get("rubrics")) if isinstance(entry, dict) else (None, None)
    if not (isinstance(prompt, str) and isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts)):
        raise ValueError(f"{where}: must be {FORM}, got {json.dumps(entry, ensure_ascii=False)[:60]!r}.")
    return prompt, texts


class StoredRubrics:
    """A :class:`~lightning_dr.roles.RubricWriter` whose rubrics do not change: each prompt's are read from a file.

    The file has a JSON object a line with ``prompt``, a text, and ``rubrics``, a list of texts with an item in each line; by which model
    they were written does not matter. A prompt that is not there is given to the writer, and what of its rubrics can be read is appended.

    Args:
        path: The file; it need not exist where there is a writer.
        writer: Writes what is missing, from the response set with which a prompt first comes. ``None``: a missing prompt is an error.

    Raises:
        FileNotFoundError: If there is neither a file nor a writer.
        ValueError: If a line is not as above; the message names file and line.
    """

    def __init__(self, path: str | Path, writer: RubricWriter | None = None) -> None:
        self.path = Path(path)
        self.writer = writer
        self.texts: dict[str, list[str]] = {}
        if self.path.is_file():
            for where, entry in read_lines(self.path, FORM):
                prompt, texts = _parse(where, entry)
                self.texts[prompt] = texts
        elif writer is None:
            raise FileNotFoundError(f"`path` must be a file of rubrics, got {str(path)!r}, which is not there.")

    def write(self, prompts: Sequence[Prompt], responses: Responses, num_rubrics: int) -> Rubrics:
        """The stored rubrics of each prompt, over and over until there are ``num_rubrics`` of them.

        A prompt whose first rubrics can't all be read keeps those that can; where none can, it has to wait for another round.

        Raises:
            ValueError: If a prompt has none and there is no writer.
        """
        keys = [render_conversation(prompt.messages) for prompt in prompts]
        groups: dict[str, Sequence[RubricDraw]] = {}
        missing = list({key: row for row, key in enumerate(keys) if key not in self.texts}.values())
        if missing:
            if self.writer is None:
                raise ValueError(
                    f"{self.path} must have rubrics for every prompt, but has none for {keys[missing[0]][:60]!r}. Add a line for it."
                )
            written = self.writer.write([prompts[row] for row in missing], tuple(responses[row] for row in missing), num_rubrics)
            groups = dict(zip([keys[row] for row in missing], written, strict=True))
            readable = {key: [render_rubric(draw.rubric) for draw in group if draw.rubric] for key, group in groups.items()}
            self.add({key: texts for key, texts in readable.items() if texts})
        groups |= {key: [read_text(Completion(text=text)) for text in self.texts[key]] for key in keys if key in self.texts}
        return tuple(tuple(groups[key][number % len(groups[key])] for number in range(num_rubrics)) for key in keys)

    def add(self, texts: Mapping[str, list[str]]) -> None:
        """Append the rubrics of prompts that have none yet."""
        new = {key: value for key, value in texts.items() if key not in self.texts}
        self.texts.update(new)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            for key, value in new.items():
                file.write(json.dumps({"prompt": key, "rubrics": value}, ensure_ascii=False) + "\n")
