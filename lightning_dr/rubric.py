"""Rubrics and their text: a line format and JSON, read tolerantly but never guessed.

Line format, one item per line::

    [3] Does the response name a concrete number?
    [1] Is the response polite?

Numbering, bullets, bold marks, code fences and prose before the first or after the last item are tolerated. JSON is a list of
``{"question": …, "weight": …}``, or an object that holds that list under ``items``, ``rubric`` or ``criteria``.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")
ITEM = re.compile(r"[\[(]\s*(?:weight\s*[:=]?\s*)?(?P<weight>[^\s\])]+)\s*[\])](?P<question>.*)", re.IGNORECASE)
FENCE = re.compile(r"```\w*")
MARKER = re.compile(r"(?:(?:[*_]{0,2}(?:\d+[.)](?!\d)|•)[*_]{0,2}|[-*+](?=\s))\s*)+")
WEIGHT = rf"[\[(]\s*(?:weight\s*[:=]?\s*)?{NUMBER.pattern}\s*[\])]"
SECOND_WEIGHT = re.compile(rf"^{WEIGHT}|\?\W{{0,9}}?{WEIGHT}", re.IGNORECASE)
ITEM_LINE = re.compile(rf"^(?:[^\w\n]|\d){{0,20}}?{WEIGHT}.*", re.IGNORECASE | re.MULTILINE)
LOOSE_WEIGHT = re.compile(r"^\[|[\[(][^\[\]()]{0,30}\d[^\[\]()]{0,30}[\])]")
"""What an unreadable line with a question must have for it to be a broken item and not prose."""
SEPARATOR = re.compile(r"[:.\-–—]\s+")
QUOTES = "\"'`“”‘’"
LIST_KEYS = ("items", "rubric", "criteria")
QUESTION_KEYS = ("question", "criterion", "item")


class RubricParseError(ValueError):
    """The text of a rubric could not be read; the message says which line or field, and why."""


@dataclass(frozen=True, slots=True)
class RubricItem:
    """A yes/no question on one line, and its positive weight."""

    question: str
    weight: float

    def __post_init__(self) -> None:
        if not self.question.strip() or len(self.question.splitlines()) > 1:
            raise ValueError(f"`question` must be one line of text, got {self.question!r}.")
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise ValueError(f"`weight` must be finite and positive, got {self.weight}.")


@dataclass(frozen=True, slots=True)
class Rubric:
    """M >= 1 items."""

    items: tuple[RubricItem, ...]

    def __post_init__(self) -> None:
        if not self.items:
            raise ValueError("`items` must hold at least one item, got none.")

    @property
    def questions(self) -> tuple[str, ...]:
        """The questions in order."""
        return tuple(item.question for item in self.items)


def normalise_question(question: str) -> str:
    """What makes two items the same: words alone, without case, punctuation or spacing.

    Example:
        >>> normalise_question("Is  it *short*?")
        'is it short'
    """
    return " ".join(re.findall(r"\w+", question.lower()))


def render_rubric(rubric: Rubric, style: Literal["lines", "json"] = "lines") -> str:
    """Text that :func:`parse_rubric` reads back as the same rubric, if its questions are of the kind that it reads.

    Example:
        >>> print(render_rubric(Rubric((RubricItem("Is it short?", 2.0), RubricItem("Is it true?", 0.5)))))
        [2] Is it short?
        [0.5] Is it true?
    """
    if style == "json":
        items = ", ".join(
            f'{{"question": {json.dumps(item.question, ensure_ascii=False)}, "weight": {_digits(item.weight)}}}' for item in rubric.items
        )
        return f"[{items}]"
    return "\n".join(f"[{_digits(item.weight)}] {item.question}" for item in rubric.items)


def _digits(weight: float) -> str:
    """All digits of a weight, without exponent, and without a point where it is whole."""
    return f"{Decimal(repr(float(weight))):f}".removesuffix(".0")


def parse_rubric(text: str, *, max_items: int | None = None, duplicates: Literal["reject", "keep"] = "reject") -> Rubric:
    r"""Read a rubric that a model wrote.

    Args:
        text: The model's text.
        max_items: A rubric with more items can't be read.
        duplicates: ``"reject"``: a rubric with two equal items (up to case, punctuation and spacing) can't be read.

    Raises:
        RubricParseError: If anything that looks like part of the rubric can't be read: nothing is guessed or left out.

    Example:
        >>> parse_rubric("Here it is:\n1. [3] Is it short?").items
        (RubricItem(question='Is it short?', weight=3.0),)
    """
    entries = _find_json(text)
    items = _from_json(entries) if entries is not None else _from_lines(text)
    if not items:
        raise RubricParseError("no item of the form `[weight] question?` in the text")
    if max_items is not None and len(items) > max_items:
        raise RubricParseError(f"{len(items)} items, more than {max_items}")
    seen: set[str] = set()
    for item in items:
        key = normalise_question(item.question)
        if key in seen and duplicates == "reject":
            raise RubricParseError(f"item {item.question!r} is there twice")
        seen.add(key)
    return Rubric(tuple(items))


def _clean(question: str) -> str:
    """Without blanks, bold marks and separators at its ends, and without quotes around the whole."""
    before = None
    while question != before:
        before = question
        question = question.strip("*_ \t")
        separator = SEPARATOR.match(question)
        question = question[separator.end() :] if separator else question
        if len(question) > 1 and question[0] in QUOTES and question[-1] in QUOTES:
            question = question[1:-1]
    return question


def _item(question: str, weight: str | float, where: str) -> RubricItem:
    question = _clean(question)
    if not question.rstrip(QUOTES + "*_ ").endswith("?"):
        raise RubricParseError(f"{where}: the question does not end in `?`: {question[-60:]!r}")
    if not normalise_question(question):
        raise RubricParseError(f"{where}: the question has no words")
    if SECOND_WEIGHT.search(question):
        raise RubricParseError(f"{where}: more than one weight: {question[:60]!r}")
    try:
        return RubricItem(question, float(weight))
    except (ValueError, OverflowError) as error:
        raise RubricParseError(f"{where}: {error}") from error


def _from_lines(text: str) -> list[RubricItem]:
    """Items of the line format; prose counts only as an introduction or an ending."""
    items: list[RubricItem] = []
    prose_after: str | None = None
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line or FENCE.fullmatch(line):
            continue
        where = f"line {number}"
        item = _read_line(line, where)
        if item is None:
            prose_after = prose_after or (where if items else None)
        elif prose_after is not None:
            raise RubricParseError(f"{prose_after}: text between two items")
        else:
            items.append(item)
    return items


def _read_line(line: str, where: str) -> RubricItem | None:
    """The item on a line, or ``None`` for prose."""
    marker = MARKER.match(line)
    body = line[marker.end() if marker else 0 :].lstrip("*_ ")
    found = ITEM.fullmatch(body)
    if found is not None:
        weight = found["weight"].strip("*_")
        if NUMBER.fullmatch(weight) is None:
            raise RubricParseError(f"{where}: the weight {weight!r} is not a number")
        return _item(found["question"], weight, where)
    if marker:
        raise RubricParseError(f"{where}: a list entry without a weight: {line[:60]!r}")
    if "?" in body and LOOSE_WEIGHT.search(body):
        raise RubricParseError(f"{where}: not of the form `[weight] question?`: {line[:60]!r}")
    return None


def _find_json(text: str) -> list[Any] | None:
    """The first list of objects in the text, or ``None`` where there is no JSON. Brackets inside a line item are no JSON."""
    decoder = json.JSONDecoder()
    text = ITEM_LINE.sub("", text)
    for start in re.finditer(r"[\[{]", text):
        try:
            value, _ = decoder.raw_decode(text, start.start())
        except ValueError:
            continue
        except RecursionError as error:
            raise RubricParseError("JSON: nested too deeply for a rubric") from error
        entries = next((value[key] for key in LIST_KEYS if key in value), None) if isinstance(value, dict) else value
        if isinstance(entries, list) and entries and all(isinstance(entry, dict) for entry in entries):
            return entries
        if isinstance(value, dict) and set(value) & set(QUESTION_KEYS):
            # An object outside a list: the list around it was cut off or is broken.
            raise RubricParseError("JSON: the list of items is not complete")
    return None


def _from_json(entries: list[Any]) -> list[RubricItem]:
    items = []
    for number, entry in enumerate(entries, start=1):
        where = f"item {number}"
        question = next((entry[key] for key in QUESTION_KEYS if key in entry), None)
        if not isinstance(question, str):
            raise RubricParseError(f"{where}: no text under `question`")
        weight = entry.get("weight")
        if isinstance(weight, str) and NUMBER.fullmatch(weight.strip()):
            weight = float(weight)
        if isinstance(weight, bool) or not isinstance(weight, int | float):
            raise RubricParseError(f"{where}: the weight {repr(weight)[:60]} is not a number")
        items.append(_item(" ".join(line.strip() for line in question.splitlines()), weight, where))
    return items
