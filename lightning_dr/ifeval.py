"""IFEval's constraints (arXiv 2311.07911) as the plain questions that :class:`lightning_dr.rules.RuleVerifier` answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

QUESTIONS: Mapping[str, str] = {
    "change_case:capital_word_frequency": "Does the response have {capital_relation} {capital_frequency} words in capital letters?",
    "change_case:english_capital": "Is the response all in capital letters?",
    "change_case:english_lowercase": "Is the response all in lowercase?",
    "combination:repeat_prompt": "Does the response start with {prompt_to_repeat}?",
    "combination:two_responses": "Does the response give two different responses separated by ******?",
    "detectable_content:number_placeholders": "Does the response have at least {num_placeholders} placeholders in square brackets?",
    "detectable_content:postscript": "Does the response have a postscript starting with {postscript_marker}?",
    "detectable_format:constrained_response": (
        'Does the response contain "My answer is yes.", "My answer is no." or "My answer is maybe."?'
    ),
    "detectable_format:json_format": "Is the response valid JSON?",
    "detectable_format:multiple_sections": "Does the response have at least {num_sections} sections marked {section_spliter} and a number?",
    "detectable_format:number_bullet_lists": "Does the response have exactly {num_bullets} bullet points?",
    "detectable_format:number_highlighted_sections": "Does the response have at least {num_highlights} highlighted sections?",
    "detectable_format:title": "Does the response have a title in double angle brackets?",
    "keywords:existence": "Does the response mention {keywords}?",
    "keywords:forbidden_words": "Does the response avoid {forbidden_words}?",
    "keywords:frequency": "Does the response mention {keyword} {relation} {frequency} times?",
    "keywords:letter_frequency": "Does the response contain the character {letter} {let_relation} {let_frequency} times?",
    "length_constraints:nth_paragraph_first_word": (
        "Does the response have exactly {num_paragraphs} paragraphs, of which number {nth_paragraph} starts with {first_word}?"
    ),
    "length_constraints:number_paragraphs": "Does the response have exactly {num_paragraphs} paragraphs separated by ***?",
    "length_constraints:number_sentences": "Does the response have {relation} {num_sentences} sentences?",
    "length_constraints:number_words": "Does the response have {relation} {num_words} words?",
    "punctuation:no_comma": "Does the response avoid commas?",
    "startend:end_checker": "Does the response end with {end_phrase}?",
    "startend:quotation": "Is the response wrapped in double quotation marks?",
}
"""Constraint -> question; ``language:response_language`` has none, because no rule tells languages apart."""
BARE = ("capital_relation", "relation", "let_relation", "postscript_marker")
"""The texts that stand in a question without quotes."""


def question_for(instruction_id: str, kwargs: Mapping[str, Any]) -> str | None:
    """The question that a rule answers as IFEval checks the constraint.

    Args:
        instruction_id: IFEval's name of the constraint, such as ``punctuation:no_comma``.
        kwargs: Its arguments, as IFEval's files give them; ``None`` values are ignored.

    Returns:
        The question, or ``None`` where no rule reads the constraint: an unknown one, or a phrase that can't be quoted in one line.

    Raises:
        ValueError: If an argument is missing.

    Example:
        >>> question_for("keywords:frequency", {"keyword": "war", "relation": "at least", "frequency": 8})
        'Does the response mention "war" at least 8 times?'
    """
    question = QUESTIONS.get(instruction_id)
    if question is None:
        return None
    given = {key: value for key, value in kwargs.items() if value is not None}
    phrases = [phrase for key, value in given.items() if key not in BARE for phrase in _phrases(value)]
    if any('"' in phrase or len(phrase.strip().splitlines()) != 1 for phrase in phrases):
        return None
    try:
        return question.format(**{key: value if key in BARE else _quoted(value) for key, value in given.items()})
    except KeyError as error:
        raise ValueError(f"`kwargs` of {instruction_id!r} must hold {error}, got {sorted(given)}.") from error


def _phrases(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else []


def _quoted(value: Any) -> str:
    """Phrases in quotes, joined by ``and``; a number as it is."""
    phrases = [f'"{phrase.strip()}"' for phrase in _phrases(value)]
    if not phrases:
        return str(value)
    return " and ".join(filter(None, (", ".join(phrases[:-1]), phrases[-1])))
