"""A rubric: weighted yes/no items."""

from __future__ import annotations

from dataclasses import dataclass


class RubricParseError(ValueError):
    """The text of a rubric could not be read; the message says which line or field, and why."""


@dataclass(frozen=True, slots=True)
class RubricItem:
    """A yes/no question and its positive weight."""

    question: str
    weight: float


@dataclass(frozen=True, slots=True)
class Rubric:
    """M >= 1 items."""

    items: tuple[RubricItem, ...]
