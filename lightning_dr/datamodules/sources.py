"""Rows from the Hub, parquet or JSON, and what makes one of them bad."""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import datasets

from ..jsonl import read_text
from ..records import Message

Rows = Sequence[Any]
BadRows = Literal["error", "skip"]
FORMATS = {".parquet": "parquet", ".json": "json", ".jsonl": "json"}
TURN = re.compile(r"\n\n(Human|Assistant):[ \t]?")
ROLES = ("system", "user", "assistant")
SPEAKERS = {"Human": "user", "Assistant": "assistant"}

log = logging.getLogger(__name__)


class BadRowError(ValueError):
    """A row that can't be used; the message names the source, the row, the field and the way out."""


class RowProblem(ValueError):  # noqa: N818
    """What is wrong with a row, without where it is."""


class RowFiltered(Exception):  # noqa: N818
    """A row that the config leaves out."""


def load_rows(path: str, split: str = "train", revision: str | None = None, config: str | None = None) -> Rows:
    """The rows of a local parquet or JSON file, or of a dataset on the Hub (or in a folder of the Hub's form).

    Raises:
        FileNotFoundError: If ``path`` names a file that is not there.
        ValueError: If it is of another kind, can't be read or holds no rows; the message names it, and the place if it is known.
    """
    local = Path(path)
    if local.suffix in FORMATS and not local.exists():
        raise FileNotFoundError(f"`path` must be a file or the name of a dataset on the Hub, got {path!r}, which is not there.")
    if local.is_file():
        rows = load_file(local)
    else:
        try:
            rows = datasets.load_dataset(path, name=config, split=split, revision=revision)
        except Exception as error:
            raise ValueError(
                f"`path` must be a {', '.join(FORMATS)} file or the name of a dataset on the Hub, got {path!r}: {error}"
            ) from error
    if len(rows) == 0:
        raise ValueError(f"{path} holds no rows.")
    return rows


def load_file(file: Path) -> Rows:
    """The rows of a local file, read without a common schema where it has none.

    Raises:
        ValueError: See :func:`load_rows`.
    """
    if file.suffix not in FORMATS:
        raise ValueError(f"`path` must be a {', '.join(FORMATS)} file, got {str(file)!r}. Convert it, for example with `datasets`.")
    try:
        return datasets.load_dataset(FORMATS[file.suffix], data_files=str(file), split="train")
    except Exception as error:
        # Arrow's errors do not say where, and it refuses columns of mixed types: read again, to find the row.
        if file.suffix == ".parquet":
            raise ValueError(f"{file} can't be read as parquet: {error}. Write it again.") from error
    text = read_text(file)
    return parse_lines(text) if file.suffix == ".jsonl" else parse_array(text, file)


def parse_lines(text: str) -> list[Any]:
    """JSON Lines; ``None`` for a line that is not JSON, nothing for a blank one."""
    rows: list[Any] = []
    for line in text.split("\n"):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except ValueError:
                rows.append(None)
    return rows


def parse_array(text: str, file: Path) -> list[Any]:
    """A JSON array of rows.

    Raises:
        ValueError: With the line at which it breaks.
    """
    try:
        rows = json.loads(text) if text.strip() else []
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{file}, line {error.lineno}, column {error.colno}: {error.msg}. A .json file must be an array of rows."
        ) from error
    if not isinstance(rows, list):
        raise ValueError(f"{file} must be an array of rows, got a JSON {type(rows).__name__}.")
    return rows


def usable_rows(rows: Rows, source: str, parse: Callable[[Any], object], bad_rows: BadRows) -> list[int]:
    """Numbers of the rows that can be used, each looked at once.

    Args:
        rows: All rows.
        source: The file or dataset, for messages.
        parse: Raises :class:`RowProblem` or :class:`RowFiltered`.
        bad_rows: Stop at the first bad row, or leave bad rows out and count them in the log.

    Raises:
        BadRowError: At a bad row, if ``bad_rows`` is ``"error"``.
    """
    good: list[int] = []
    left_out: Counter[str] = Counter()
    for number in range(len(rows)):
        try:
            row = read_row(rows, number)
            if not isinstance(row, Mapping):
                raise RowProblem("the row is not a JSON object")
            parse(row)
        except RowFiltered as reason:
            left_out[str(reason)] += 1
        except RowProblem as problem:
            if bad_rows == "error":
                raise BadRowError(
                    f"{source}, row {number + 1}: {problem}. Mend the row, or set `bad_rows: skip` to leave such rows out."
                ) from problem
            left_out[str(problem)] += 1
        else:
            good.append(number)
    if left_out:
        reasons = "; ".join(f"{count} × {reason}" for reason, count in left_out.most_common())
        log.warning("%s: %d of %d rows left out: %s", source, sum(left_out.values()), len(rows), reasons)
    return good


def read_row(rows: Rows, number: int) -> Any:
    """One row; Arrow looks at its text only now.

    Raises:
        RowProblem: If it is not UTF-8.
    """
    try:
        return rows[number]
    except UnicodeDecodeError as error:
        raise RowProblem(f"the text is not UTF-8 ({error.reason})") from error


def parse_prompt(value: Any, column: str = "prompt") -> tuple[Message, ...]:
    r"""A prompt cell as chat messages: plain text, Nectar's ``\n\nHuman: … \n\nAssistant: ``, or a list of messages.

    Raises:
        RowProblem: If it is none of these, is empty, or does not end with the user; the message names ``column``.
    """
    if isinstance(value, str):
        messages = parse_turns(value, column) if value.startswith("\n\nHuman:") else ({"role": "user", "content": value.strip()},)
    elif isinstance(value, Sequence) and all(isinstance(turn, Mapping) and {"role", "content"} <= turn.keys() for turn in value):
        messages = tuple({"role": turn["role"], "content": turn["content"]} for turn in value)
    else:
        raise RowProblem(f"`{column}` is neither text nor a list of messages with `role` and `content`")
    if any(message["role"] not in ROLES for message in messages):
        raise RowProblem(f"`{column}` has a role that is not one of {', '.join(ROLES)}")
    if not messages or messages[-1]["role"] != "user":
        raise RowProblem(f"`{column}` does not end with a turn of the user")
    if not all(isinstance(message["content"], str) and message["content"].strip() for message in messages):
        raise RowProblem(f"`{column}` has an empty turn")
    for message in messages:
        check_unicode(message["content"], column)
    return messages


def parse_turns(text: str, column: str = "prompt") -> tuple[Message, ...]:
    """Nectar's turns; the last, empty one of the assistant is where the answer goes."""
    parts = TURN.split(text)[1:]
    messages = [{"role": SPEAKERS[speaker], "content": body.strip()} for speaker, body in zip(parts[::2], parts[1::2], strict=True)]
    if messages and messages[-1] == {"role": "assistant", "content": ""}:
        messages.pop()
    if any(one["role"] == other["role"] for one, other in zip(messages, messages[1:], strict=False)):
        raise RowProblem(f"`{column}` has two turns of the same speaker in a row")
    return tuple(messages)


def check_unicode(text: str, column: str) -> str:
    """The text, if it is whole.

    Raises:
        RowProblem: If it holds half of a surrogate pair, as JSON can spell it: no tokenizer and no file takes it.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RowProblem(f"`{column}` holds half of a surrogate pair at character {error.start + 1}") from error
    return text


def check_length(messages: Sequence[Message], limit: int | None) -> None:
    """Raise RowFiltered for a prompt of more than ``limit`` characters."""
    if limit is not None and sum(len(message["content"]) for message in messages) > limit:
        raise RowFiltered(f"longer than max_prompt_chars = {limit}")
