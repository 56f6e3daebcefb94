"""What an experiment leaves behind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_results(folder: Path, name: str, result: Mapping[str, Any], text: str) -> None:
    """Write ``<name>.json`` and ``<name>.md``, and show the text.

    Args:
        folder: Made if it is not there.
        name: Of the files.
        result: The numbers.
        text: Markdown.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    print(text)
