"""Results on disk, row by row, so that a run that was killed goes on where it stood."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from tqdm import tqdm

from ..jsonl import read_lines

Entry = dict[str, Any]


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Nobody else writes results into a folder meanwhile; the system ends this with the process, however that ends.

    Raises:
        ValueError: If another process does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".lock", blocking=False):
            yield
    except Timeout as error:
        raise ValueError(f"{folder} is being written by another process. Wait for it, or name another `--out`.") from error


class Journal:
    """A file of JSON lines: the settings in the first one, then a row in each, written as soon as it is done.

    A last line that was cut, by a kill or a full disk, is taken out and its row done again.

    Args:
        path: The file; it and its folder are made if they are not there.
        settings: What the rows depend on.

    Raises:
        ValueError: If the rows that are there were made with other settings, or a line is no row; the message names file and line.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.entries: dict[str, Entry] = {}
        settings = json.loads(json.dumps(settings))
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_bytes() if path.is_file() else b""
        if not text.endswith(b"\n"):
            text = text[: text.rfind(b"\n") + 1]
            path.write_bytes(text)
        if not text:
            self._append([{"settings": settings}])
            return
        lines = read_lines(path, "a row of results")
        _, first = next(lines)
        self._compare(first.get("settings") if isinstance(first, dict) else None, settings)
        for where, entry in lines:
            if not isinstance(entry, dict) or not isinstance(entry.get("id"), str):
                raise ValueError(f"{where}: must be a row of results with an `id`. Remove the line, and its row is done again.")
            self.entries[entry["id"]] = entry

    def _compare(self, there: Any, settings: Mapping[str, Any]) -> None:
        if not isinstance(there, dict):
            raise ValueError(f"{self.path}, line 1: must hold the settings of the rows. Name another `--out`, or remove the file.")
        if odd := sorted(name for name in {*there, *settings} if there.get(name) != settings.get(name)):
            raise ValueError(
                f"{self.path} holds rows that were made with another {' and another '.join(f'`{name}`' for name in odd)}: results would be "
                "mixed. Name another `--out`, or remove the file."
            )

    def add(self, entries: Sequence[Entry]) -> None:
        """Write rows."""
        self._append(entries)
        self.entries.update({entry["id"]: entry for entry in entries})

    def _append(self, lines: Sequence[Mapping[str, Any]]) -> None:
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        with self.path.open("ab") as file:
            file.write(text.encode("utf-8", "surrogatepass"))  # one call: a kill leaves all of the batch, or none


def waiting_batches(journal: Journal, ids: Sequence[str], batch_size: int, name: str) -> Iterator[tuple[int, list[int]]]:
    """The rows that are still to be done, a batch at a time, under a bar with the rate and the time that is left.

    Batches begin at fixed rows, so that what is drawn at random does not depend on where a run was stopped.

    Args:
        journal: What is done.
        ids: Of all rows, in order.
        batch_size: Rows in a batch.
        name: What the bar says.

    Yields:
        The first row of the batch, done or not, and the numbers of those that are not.
    """
    done = sum(name in journal.entries for name in ids)
    with tqdm(total=len(ids), initial=done, desc=name, unit="row", dynamic_ncols=True) as bar:
        for start in range(0, len(ids), batch_size):
            rows = [number for number in range(start, min(start + batch_size, len(ids))) if ids[number] not in journal.entries]
            if rows:
                yield start, rows
                bar.update(len(rows))
