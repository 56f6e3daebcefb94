"""What an experiment leaves behind."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_results(folder: Path, name: str, result: Mapping[str, Any], text: str) -> None:
    """Write ``<name>.json`` and ``<name>.md``, and show the text.

    Args:
        folder: Made if it is not there.
        name: Of the files.
        result: The numbers; one that is infinite or NaN becomes ``null``, since JSON has no word for it.
        text: Markdown.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(finite(result), indent=2) + "\n", encoding="utf-8")
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    print(text)


def finite(value: Any) -> Any:
    """The same without numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list | tuple) else value
