"""A verifier that answers items by program: exact, for questions that can be checked."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from lightning_dr.records import Prompt

Check = Callable[[re.Match[str], str], bool]
"""(the matched question, the response) -> yes."""

QUOTE = r"""(?:"[^"]+"|“[^”]+”|'(?:[^']|(?<=\w)'(?=\w))+')"""
ALL_OF = rf"(?P<phrases>{QUOTE}(?:(?:, and |, | and ){QUOTE})*)"
ANY_OF = rf"(?P<phrases>{QUOTE}(?:(?:, or |, | or ){QUOTE})*)"
NONE_OF = rf"(?P<phrases>{QUOTE}(?:(?:, and |, or |, | and | or ){QUOTE})*)"
PHRASE = rf"(?P<phrases>{QUOTE})"
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
COUNT = rf"(?P<relation>at least|at most|fewer than|less than|more than|no more than|exactly) (?P<number>\d{{1,9}}|{'|'.join(NUMBERS)})"
RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "at least": operator.ge,
    "at most": operator.le,
    "no more than": operator.le,
    "fewer than": operator.lt,
    "less than": operator.lt,
    "more than": operator.gt,
    "exactly": operator.eq,
}
SENTENCE_END = re.compile(r"(?<!\bMr\.)(?<!\bMrs\.)(?<!\bMs\.)(?<!\bDr\.)(?<!\be\.g\.)(?<!\bi\.e\.)(?<=[.!?])[\"”')\]*_]*\s+")
LETTER = re.compile(r"[^\W\d_]")
PARAGRAPH_BREAK = r"\n[^\S\n]*\n"
HIGHLIGHTS = (re.compile(r"\*([^\n*]+)\*"), re.compile(r"\*\*([^\n*]+)\*\*"))
UNITS: dict[str, Callable[[str], int]] = {
    "word": lambda text: len(re.findall(r"\w+", text)),
    "sentence": lambda text: sum(bool(LETTER.search(part)) for part in SENTENCE_END.split(text)),
    "paragraph": lambda text: _parts(text, PARAGRAPH_BREAK),
    "bullet point": lambda text: len(re.findall(r"^[^\S\n]*[*+•-][^\S\n]+\S", text, flags=re.MULTILINE)),
    "highlighted section": lambda text: sum(bool(found.strip()) for pattern in HIGHLIGHTS for found in pattern.findall(text)),
    "placeholder": lambda text: len(re.findall(r"\[[^\[\]\n]+\]", text)),
}
"""What can be counted: a word is a run of letters and digits, a sentence has a letter, a section is highlighted by
``*`` or ``**``, a placeholder is in brackets."""


def _parts(text: str, separator: str) -> int:
    return sum(bool(part.strip()) for part in re.split(separator, text))


def phrases(question: re.Match[str]) -> list[str]:
    """The quoted phrases of a question, or its bare word."""
    groups = question.groupdict()
    return [groups["word"]] if groups.get("word") else [quoted[1:-1] for quoted in re.findall(QUOTE, groups["phrases"])]


def occurrences(text: str, phrase: str) -> int:
    """How often a word or phrase stands in the text as a whole, in any case."""
    return len(re.findall(rf"(?<!\w){re.escape(phrase)}(?!\w)", text, flags=re.IGNORECASE))


def mentions(question: re.Match[str], text: str) -> bool:
    """Whether the text holds every phrase of the question."""
    return all(occurrences(text, phrase) for phrase in phrases(question))


def mentions_any(question: re.Match[str], text: str) -> bool:
    """Whether the text holds a phrase of the question."""
    return any(occurrences(text, phrase) for phrase in phrases(question))


def compare(question: re.Match[str], found: int) -> bool:
    """Compare a count with the one that the question asks for."""
    number = question["number"].lower()
    return RELATIONS[question["relation"].lower()](found, NUMBERS.index(number) if number in NUMBERS else int(number))


def counts(question: re.Match[str], text: str) -> bool:
    """Compare the number of units in the text with the one asked for."""
    return compare(question, UNITS[question["unit"].lower()](text))


def is_json(text: str) -> bool:
    """Whether the text, out of its code fence, is JSON."""
    body = re.sub(r"^```(?:json)?|```$", "", text.strip(), flags=re.IGNORECASE)
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


def has_postscript(question: re.Match[str], text: str) -> bool:
    """Whether a line starts with ``P.S.``, or with ``P.P.S`` if the question asks for that."""
    marker = r"P\.[ ]?P\.[ ]?S" if (question["marker"] or "").upper().startswith("P.P") else r"P\.[ ]?S\."
    return re.search(rf"^[^\w\n]*{marker}", text, re.MULTILINE | re.IGNORECASE) is not None


def two_responses(_: re.Match[str], text: str) -> bool:
    """Whether ``******`` parts the text into two that differ."""
    parts = [part.strip() for part in text.split("******") if part.strip()]
    return len(parts) == 2 and parts[0] != parts[1]


def starts_nth_paragraph(question: re.Match[str], text: str) -> bool:
    """Whether there are so many paragraphs, and the nth starts with the word."""
    paragraphs = [part for part in re.split(PARAGRAPH_BREAK, text) if part.strip()]
    if not 1 <= int(question["nth"]) <= len(paragraphs) or not compare(question, len(paragraphs)):
        return False
    return re.match(rf"\W*{re.escape(phrases(question)[0])}(?!\w)", paragraphs[int(question["nth"]) - 1], re.IGNORECASE) is not None


RESPONSE = "Does the response "
NAMES = r"(?:mention|contain|include|use) (?:the (?:words?|phrases?) )?"
AVOIDS = rf"(?:avoid (?:the (?:words?|phrases?) )?|not {NAMES})"
HAS = r"(?:have|contain|include) "
WORD = r"(?:the word )?(?P<word>\w+)"

DEFAULT_RULES: Mapping[str, Check] = {
    rf"{RESPONSE}(?:avoid|not (?:contain|use)|contain no) (?:any )?commas\?": lambda _, text: "," not in text,
    rf"{RESPONSE}{NAMES}{PHRASE} {COUNT} times?\?": lambda q, text: compare(q, occurrences(text, phrases(q)[0])),
    rf"{RESPONSE}contain the (?:letter|character) {PHRASE} {COUNT} times?\?": lambda q, text: compare(
        q, text.lower().count(phrases(q)[0].lower())
    ),
    rf"{RESPONSE}(?:{NAMES}{ALL_OF}|mention {WORD})\?": mentions,
    rf"{RESPONSE}{NAMES}{ANY_OF}\?": mentions_any,
    rf"{RESPONSE}(?:{AVOIDS}{NONE_OF}|(?:avoid|not mention) {WORD})\?": lambda q, text: not mentions_any(q, text),
    rf"{RESPONSE}{HAS}{COUNT} (?P<unit>{'|'.join(UNITS)})s?\?": counts,
    rf"{RESPONSE}{HAS}{COUNT} words? in capital letters\?": lambda q, text: compare(
        q, sum(word.isupper() for word in re.findall(r"\w[\w'’-]*", text))
    ),
    rf"{RESPONSE}{HAS}{COUNT} placeholders? in square brackets\?": lambda q, text: compare(q, UNITS["placeholder"](text)),
    rf"{RESPONSE}{HAS}{COUNT} paragraphs? separated by \*\*\*\?": lambda q, text: compare(q, _parts(text, r"\*\*\*")),
    rf"{RESPONSE}{HAS}{COUNT} paragraphs?, of which number (?P<nth>\d{{1,9}}) starts with {PHRASE}\?": starts_nth_paragraph,
    rf"{RESPONSE}{HAS}{COUNT} sections? marked {PHRASE} and a number\?": lambda q, text: compare(
        q, len(re.findall(rf"{re.escape(phrases(q)[0])}\s?\d+", text))
    ),
    rf"{RESPONSE}start with (?:the (?:word|phrase) )?{PHRASE}\?": lambda q, text: text.lstrip().lower().startswith(phrases(q)[0].lower()),
    rf"{RESPONSE}end with (?:the (?:word|phrase) )?{PHRASE}\?": lambda q, text: (
        text.strip().strip('"').lower().endswith(phrases(q)[0].lower())
    ),
    r"Is the response (?:all|entirely|written) in (?:all )?lower ?case(?: letters)?\?": lambda _, text: text.islower(),
    r"Is the response (?:all|entirely|written) in (?:all )?capital letters\?": lambda _, text: text.isupper(),
    r"Is the response wrapped in double quot(?:es|ation marks)\?": lambda _, text: re.fullmatch(r'\s*".*"\s*', text, re.DOTALL) is not None,
    r"Is the response valid JSON\?": lambda _, text: is_json(text),
    rf"{RESPONSE}{HAS}a title in double angle brackets\?": lambda _, text: any(
        title.strip() for title in re.findall(r"<<([^\n<>]+)>>", text)
    ),
    rf"{RESPONSE}{HAS}a postscript(?: starting with (?P<marker>P\.S|P\.P\.S)\.?)?\?": has_postscript,
    rf"{RESPONSE}give two different responses separated by \*{{6}}\?": two_responses,
}
"""Question (a regular expression, in any case) -> its check; the first that matches answers. Questions are read literally: a bare word
after "mention" or "avoid" is that word, not its topic."""


class RuleVerifier:
    """Answers the questions that one of its rules reads; any other one can't be read (NaN), which is nobody's fault.

    Args:
        rules: Question pattern -> check. By default :data:`DEFAULT_RULES`: words and phrases, counts, case, and simple formats.
    """

    def __init__(self, rules: Mapping[str, Check] | None = None) -> None:
        self.rules = [(re.compile(pattern, re.IGNORECASE), check) for pattern, check in (DEFAULT_RULES if rules is None else rules).items()]

    def verify(self, prompts: Sequence[Prompt], responses: Sequence[Sequence[str]], questions: Sequence[Sequence[str]]) -> list[Tensor]:
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
