import time

import pytest
import torch

from lightning_dr.records import Prompt
from lightning_dr.roles import Verifier
from lightning_dr.rules import RuleVerifier

PROMPT = Prompt(id="p", messages=({"role": "user", "content": "x"},))


def ask(question, text):
    return RuleVerifier().verify([PROMPT], [[text]], [[question]])[0].item()


@pytest.mark.parametrize(
    ("question", "yes", "no"),
    [
        ("Does the response mention copper?", "Copper is red.", "coppery"),
        ('Does the response mention "New York"?', "in new york now", "newyork"),
        ("Does the response avoid rust?", "trust me", "no rust"),
        ("Does the response contain at least 3 words?", "one two three", "one two"),
        ("Does the response have fewer than 2 sentences?", "Just one.", "One. Two!"),
        ("Does the response have exactly 2 paragraphs?", "a\n\nb", "a\nb"),
        ("Does the response contain at least 2 bullet points?", "* a\n- b", "* a"),
        ("Does the response have at least 1 placeholder?", "Dear [name]", "Dear name"),
        ("Does the response avoid commas?", "a b", "a, b"),
        ("Is the response all in lowercase?", "abc 1", "Abc"),
        ("Is the response all in capital letters?", "ABC", "ABc"),
        ("Is the response valid JSON?", '```json\n{"a": 1}\n```', "{a: 1}"),
        ("Is the response wrapped in double quotation marks?", '"a"', '"a'),
        ("Does the response have a title in double angle brackets?", "<<A title>>\nx", "<title>"),
        ("Does the response have a postscript?", "Bye\nP.S. one more", "PS is a word"),
        ("Does the response end with 'the end'?", "This is The End", "The end."),
        ('Does the response mention "copper" and "tin"?', "Tin, copper.", "tin"),
        ('Does the response contain "yes", "no" or "maybe"?', "Maybe so", "nobody"),
        ('Does the response avoid "rust" and "dust"?', "trust", "dust only"),
        ("Does the response not mention the word rust?", "trust", "Rust"),
        ('Does the response mention "war" at least two times?', "war, War", "war, warm"),
        ('Does the response contain the letter "e" fewer than 2 times?', "EA", "eE"),
        ("Does the response contain no more than 2 words?", "one two", "one two three"),
        ("Does the response have exactly 2 sentences?", 'Mr. Bo paid 3.5 e.g. to us. "Why?"', "1. One"),
        ("Does the response have at least 2 highlighted sections?", "*a* and **b**", "* a\n* b"),
        ("Does the response have at least 1 placeholder in square brackets?", "[name]", "[]"),
        ("Does the response have fewer than 2 words in capital letters?", "A big day", "BIG DAY"),
        ("Does the response have exactly 2 paragraphs separated by ***?", "a\n***\nb", "a\n\nb"),
        ('Does the response have exactly 2 paragraphs, of which number 2 starts with "so"?', "a\n\nSo, b", "a\n\nSome b"),
        ('Does the response have at least 2 sections marked "Part" and a number?', "Part 1\nx\nPart 2\ny", "Part 1\nPart of it"),
        ("Does the response have a postscript starting with P.P.S?", "P.P.S. Bye", "P.S. Bye"),
        ("Does the response give two different responses separated by ******?", "a\n******\nb", "a******a"),
        ('Does the response start with "My answer"?', " my answer is", "Is my answer"),
    ],
)
def test_each_rule_says_yes_and_no(question, yes, no):
    assert ask(question, yes) == 1.0
    assert ask(question, no) == 0.0


def test_a_question_that_no_rule_reads_is_missing_and_not_no():
    assert torch.isnan(torch.tensor(ask("Is the response kind?", "x")))


def test_layout_and_protocol():
    verifier = RuleVerifier()
    assert isinstance(verifier, Verifier)
    verdicts = verifier.verify(
        [PROMPT, PROMPT], [["a", "b, c"], ["a"]], [["Does the response avoid commas?", "Does the response mention b?"], []]
    )
    assert verdicts[0].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert verdicts[1].shape == (1, 0)


@pytest.mark.parametrize(
    "question",
    [
        "Is the response kind?",
        "Does the response include examples?",
        'Does the response mention "a" or "b" and "c"?',
        'Does the response mention "copper',
        f"Does the response have at least {'9' * 5000} words?",
        "Does the response have at least many words?",
        "Does the response avoid commas? Answer yes.",
    ],
)
def test_no_answer_is_guessed(question):
    assert torch.isnan(torch.tensor(ask(question, "a, b and c")))


def test_phrases_are_text_and_not_patterns():
    assert ask('Does the response mention "c++ (.*)"?', "I like C++ (.*) best") == 1.0
    assert ask('Does the response mention ".*"?', "anything") == 0.0
    assert ask("Does the response mention 'the bird's song'?", "Hear the bird's song") == 1.0


@pytest.mark.parametrize("unit", ["\n", " ", "*", "[", "<<", "- ", ".", '"', "\n "])
def test_degenerate_responses_are_answered_at_once(unit):
    # One of the checks that backtracks would need minutes for these.
    started = time.perf_counter()
    for question in (
        "Does the response have at least 3 sentences?",
        "Does the response have at least 3 highlighted sections?",
        "Does the response have at least 3 bullet points?",
        "Does the response have a title in double angle brackets?",
        "Does the response have a postscript?",
        "Is the response valid JSON?",
    ):
        assert ask(question, unit * 20000 + "x") == 0.0
    assert time.perf_counter() - started < 10
