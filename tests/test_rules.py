import json
import os
from collections import defaultdict
from pathlib import Path

import pytest
import torch

from lightning_dr.records import Prompt
from lightning_dr.roles import Verifier
from lightning_dr.rules import RuleVerifier

PROMPT = Prompt(id="p", messages=({"role": "user", "content": "x"},))
SHARED = Path(os.environ.get("LIGHTNING_DR_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))


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
    verdicts = verifier.verify([PROMPT, PROMPT], [["a", "b, c"], ["a"]], [["Does the response avoid commas?", "Does the response mention b?"], []])
    assert verdicts[0].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert verdicts[1].shape == (1, 0)


QUESTIONS = {
    "punctuation:no_comma": "Does the response avoid commas?",
    "change_case:english_lowercase": "Is the response all in lowercase?",
    "change_case:english_capital": "Is the response all in capital letters?",
    "startend:quotation": "Is the response wrapped in double quotation marks?",
    "detectable_format:json_format": "Is the response valid JSON?",
    "detectable_format:title": "Does the response have a title in double angle brackets?",
    "length_constraints:number_words": "Does the response contain {relation} {num_words} words?",
    "detectable_format:number_highlighted_sections": "Does the response contain at least {num_highlights} highlighted sections?",
    "detectable_content:number_placeholders": "Does the response contain at least {num_placeholders} placeholders?",
}


@pytest.mark.skipif(not (SHARED / "ifeval").is_dir(), reason=f"needs the IFEval files in {SHARED}")
def test_rules_agree_with_the_official_verdicts_on_real_answers():
    kwargs = {}
    for line in (SHARED / "ifeval" / "input_data.jsonl").read_text().splitlines():
        row = json.loads(line)
        kwargs[row["prompt"]] = row["kwargs"]
    agreed = defaultdict(list)
    for line in (SHARED / "ifeval" / "gpt4_strict_verdicts.jsonl").read_text().splitlines():
        row = json.loads(line)
        for kind, given, verdict in zip(row["instruction_id_list"], kwargs[row["prompt"]], row["follow_instruction_list"], strict=True):
            if kind in QUESTIONS:
                agreed[kind].append(ask(QUESTIONS[kind].format(**given), row["response"]) == verdict)
    shares = {kind: sum(hits) / len(hits) for kind, hits in agreed.items()}
    total = sum(map(sum, agreed.values())) / sum(map(len, agreed.values()))
    assert set(shares) == set(QUESTIONS)
    assert total > 0.97, shares
    assert min(shares.values()) > 0.85, shares
