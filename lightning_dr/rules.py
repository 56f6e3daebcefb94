"""A verifier that answers items by program: exact, for questions that can be checked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from lightning_dr.records import Prompt

Check = Callable[[re.Match[str], str], bool]
"""(the matched question, the response) -> yes."""

QUOTED = r"[\"“'](?P<phrase>.+)[\"”']"
COUNT = r"(?P<relation>at least|at most|fewer than|less than|more than|exactly) (?P<number>\d+)"
RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "at least": lambda found, number: found >= number,
    "at most": lambda found, number: found <= number,
    "fewer than": lambda found, number: found < number,
    "less than": lambda found, number: found < number,
    "more than": lambda found, number: found > number,
    "exactly": lambda found, number: found == number,
}
UNITS: dict[str, Callable[[str], int]] = {
    "word": lambda text: len(re.findall(r"\w+", text)),
    "sentence": lambda text: len(re.findall(r"[^.!?]*\w[^.!?]*(?:[.!?]+|$)", text)),
    "paragraph": lambda text: sum(bool(part.strip()) for part in re.split(r"\n\s*\n", text)),
    "bullet point": lambda text: len(re.findall(r"^\s*[*+•-]\s+\S", text, flags=re.MULTILINE)),
    "highlighted section": lambda text: len(re.findall(r"(?<!\*)\*{1,2}[^*\n]+\*{1,2}(?!\*)", text)),
    "placeholder": lambda text: len(re.findall(r"\[[^\[\]]+\]", text)),
}


def mentions(text: str, phrase: str) -> bool:
    """Whether a word or phrase stands in the text as a whole, in any case."""
    return re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", text, flags=re.IGNORECASE) is not None


def counts(question: re.Match[str], text: str) -> bool:
    """Compare the number of units in the text with the one asked for."""
    return RELATIONS[question["relation"].lower()](UNITS[question["unit"].lower()](text), int(question["number"]))


def is_json(text: str) -> bool:
    """Whether the text, out of its code fence, is JSON."""
    body = re.sub(r"^```(?:json)?\s*|\s*```$", "", text.strip(), flags=re.IGNORECASE)
    try:
        json.loads(body)
    except ValueError:
        return False
    return True


DEFAULT_RULES: Mapping[str, Check] = {
    r"Does the response avoid commas\?": lambda _, text: "," not in text,
    rf"Does the response (?:mention|contain) {QUOTED}\?": lambda q, text: mentions(text, q["phrase"]),
    rf"Does the response avoid {QUOTED}\?": lambda q, text: not mentions(text, q["phrase"]),
    r"Does the response mention (?P<word>\w+)\?": lambda q, text: mentions(text, q["word"]),
    r"Does the response avoid (?P<word>\w+)\?": lambda q, text: not mentions(text, q["word"]),
    rf"Does the response (?:have|contain) {COUNT} (?P<unit>{'|'.join(UNITS)})s?\?": counts,
    rf"Does the response start with {QUOTED}\?": lambda q, text: text.lstrip().lower().startswith(q["phrase"].lower()),
    rf"Does the response end with {QUOTED}\?": lambda q, text: text.rstrip().strip('"').lower().endswith(q["phrase"].lower()),
    r"Is the response all in lowercase\?": lambda _, text: text == text.lower(),
    r"Is the response all in capital letters\?": lambda _, text: text == text.upper(),
    r"Is the response wrapped in double quotation marks\?": lambda _, text: len(text.strip()) > 1 and text.strip()[0] == text.strip()[-1] == '"',
    r"Is the response valid JSON\?": lambda _, text: is_json(text),
    r"Does the response have a title in double angle brackets\?": lambda _, text: re.search(r"<<[^\n<>]*\w[^\n<>]*>>", text) is not None,
    r"Does the response have a postscript\?": lambda _, text: re.search(r"^\s*P\.\s?P?\.?\s?S", text, re.MULTILINE | re.IGNORECASE) is not None,
}
"""Question (a regular expression, in any case) -> its check; the first that matches answers."""


class RuleVerifier:
    """Answers the questions that one of its rules reads; any other one can't be read (NaN), which is nobody's fault.

    Args:
        rules: Question pattern -> check. By default :data:`DEFAULT_RULES`: words and phrases, counts, case, and simple formats.
    """

    def __init__(self, rules: Mapping[str, Check] = DEFAULT_RULES) -> None:
        self.rules = [(re.compile(pattern, re.IGNORECASE), check) for pattern, check in rules.items()]

    def verify(
        self, prompts: Sequence[Prompt], responses: Sequence[Sequence[str]], questions: Sequence[Sequence[str]]
    ) -> list[Tensor]:
        """See :meth:`lightning_dr.roles.Verifier.verify`; the prompts do not matter."""
        return [
            torch.tensor([self.answers(question, texts) for question in asked]).view(len(asked), len(texts)).T
            for texts, asked in zip(responses, questions, strict=True)
        ]

    def answers(self, question: str, texts: Sequence[str]) -> list[float]:
        """One question about every response."""
        for pattern, check in self.rules:
            found = pattern.fullmatch(question.strip())
            if found is not None:
                return [float(check(found, text)) for text in texts]
        return [float("nan")] * len(texts)
