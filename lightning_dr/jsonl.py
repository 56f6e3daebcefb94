"""Files with a JSON value in each line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def read_text(path: str | Path) -> str:
    """The text of a file; a byte-order mark does no harm.

    Raises:
        ValueError: If it is not UTF-8; the message names the file.
    """
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8 text, got another byte at position {error.start}. Convert it.") from error


def read_lines(path: str | Path, form: str) -> Iterator[tuple[str, Any]]:
    """Each line that is not blank, with where it stands, ``<path>, line <n>``. Only a line feed ends a line: text may hold other ends.

    Args:
        path: The file; a byte-order mark and CRLF do no harm.
        form: What a line must be, for the message.

    Raises:
        ValueError: If the file is not UTF-8, or a line is no JSON; the message names file and line.
    """
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        where = f"{path}, line {number}"
        if line.strip():
            try:
                value = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{where}: must be {form}, got {line[:60]!r}.") from error
            yield where, value
