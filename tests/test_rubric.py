import random

import pytest

from lightning_dr.rubric import Rubric, RubricItem, RubricParseError, normalise_question, parse_rubric, render_rubric

SHORT = RubricItem("Is it short?", 3.0)


@pytest.mark.parametrize(
    "text",
    [
        "[3] Is it short?",
        "1. [3] Is it short?",
        "2) [3] Is it short?",
        "- [3] Is it short?",
        "* **[3]** Is it short?",
        "**[3] Is it short?**",
        "[weight: 3] Is it short?",
        "[Weight 3] Is it short?",
        "(3) Is it short?",
        "[3]: Is it short?",
        "[ 3.0 ] Is it short?",
        "```\n[3] Is it short?\n```",
        "Here is the rubric:\n\n[3] Is it short?\n\nI hope that helps.",
        '[3] "Is it short?"',
        '[{"question": "Is it short?", "weight": 3}]',
        '```json\n[{"question": "Is it short?", "weight": "3"}]\n```',
        'Sure!\n{"items": [{"criterion": "Is it short?", "weight": 3.0, "why": "x"}]} Done.',
        '{"rubric": [{"item": "Is it short?", "weight": 3}]}',
    ],
)
def test_read_tolerantly(text):
    assert parse_rubric(text).items == (SHORT,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no item"),
        ("I would rather not.", "no item"),
        ("1. Is it short?", "line 1: a list entry without a weight"),
        ("[3] Is it short?\n- Is it true?", "line 2: a list entry without a weight"),
        ("[x] Is it short?", "line 1: the weight 'x' is not a number"),
        ("[nan] Is it short?", "not a number"),
        ("[inf] Is it short?", "not a number"),
        ("[1e3] Is it short?", "not a number"),
        ("[0] Is it short?", "line 1: `weight` must be finite and positive"),
        ("[-1] Is it short?", "`weight` must be finite and positive"),
        ("[3] It is short.", "line 1: the question does not end in"),
        ("[3] Is it short?\n[2] Is it tr", "line 2: the question does not end in"),
        ("[3] ?", "no words"),
        ("[3]", "does not end in"),
        ("[3] Is it short?\nand then\n[2] Is it true?", "line 2: text between two items"),
        ("[3] Is it short?\n[1] is it  SHORT ?", "is there twice"),
        ('[{"question": "Is it short?", "weight": 3}, {"question": "Is', "JSON: the list of items is not complete"),
        ('[{"question": "Is it short?"}]', "item 1: the weight None is not a number"),
        ('[{"question": "Is it short?", "weight": true}]', "item 1: the weight True is not a number"),
        ('[{"question": "Is it short?", "weight": 0}]', "`weight` must be finite and positive"),
        ('[{"question": 5, "weight": 1}]', "item 1: no text under `question`"),
        ('[{"question": "Is it short?", "weight": "high"}]', "is not a number"),
    ],
)
def test_what_cannot_be_read_raises_and_is_never_guessed(text, message):
    with pytest.raises(RubricParseError, match=message):
        parse_rubric(text)


def test_limits():
    text = "[1] Is it a?\n[2] Is it b?"
    with pytest.raises(RubricParseError, match="2 items, more than 1"):
        parse_rubric(text, max_items=1)
    assert len(parse_rubric("[1] Is it a?\n[1] Is it a?", duplicates="keep").items) == 2


@pytest.mark.parametrize("style", ["lines", "json"])
def test_round_trip(style):
    rng = random.Random(0)
    words = ["Is", "it", "“quoted”", "true", "(really)", "[3]", "naïve", "50%", "{x}"]
    for _ in range(200):
        items = tuple(
            RubricItem(f"Is {n} {' '.join(rng.choices(words, k=rng.randint(1, 6)))} so?", rng.choice([1.0, 2.0, 0.5, 4.25]))
            for n in range(rng.randint(1, 5))
        )
        assert parse_rubric(render_rubric(Rubric(items), style)) == Rubric(items)


def test_records_check_themselves():
    for bad in (("", 1.0), ("a\nb?", 1.0), ("a?", 0.0), ("a?", float("nan"))):
        with pytest.raises(ValueError, match="must be"):
            RubricItem(*bad)
    with pytest.raises(ValueError, match="at least one item"):
        Rubric(())


def test_normalise():
    assert normalise_question("Is it — SHORT?!") == normalise_question("is it short")
    assert normalise_question("Is it short?") != normalise_question("Is it not short?")


@pytest.mark.parametrize(
    "text",
    [
        "• [3] Is it short?",
        "1.[3] Is it short?",
        "**1.** [3] Is it short?",
        "- 1. [3] Is it short?",
        "[3] - Is it short?",
        '[3] **"Is it short?"**',
        "[**3**] Is it short?",
        "Weights go from [1] to [5]:\n[3] Is it short?\n---\nShall I go on?",
        '[{"question": "- Is it\\n short?", "weight": 3}]',
    ],
)
def test_more_forms_that_are_read(text):
    assert parse_rubric(text).items == (SHORT,)


@pytest.mark.parametrize("broken", ["[importance: 2] Is it true?", "Is it true? [2]", "[2 points] Is it true?", "Q1 (2): Is it true?"])
@pytest.mark.parametrize("text", ["{broken}\n[3] Is it short?", "[3] Is it short?\n{broken}"])
def test_an_item_in_an_unknown_form_is_never_left_out(text, broken):
    with pytest.raises(RubricParseError, match=r"line \d: not of the form"):
        parse_rubric(text.replace("{broken}", broken))


@pytest.mark.parametrize(
    "text", ["[3] Is it short? [2] Is it true?", "[1] [3] Is it short?", '[{"question": "[3] Is it short?", "weight": 1}]']
)
def test_two_weights_in_one_item(text):
    with pytest.raises(RubricParseError, match="more than one weight"):
        parse_rubric(text)


@pytest.mark.parametrize(
    "text", ["[" * 20000, '{"items": [' * 5000, '[{"question": "Is it?", "weight": 1' + "0" * 400 + "}]", f"[{'9' * 5000}] Is it?"]
)
def test_degenerate_text_is_unreadable_and_nothing_worse(text):
    with pytest.raises(RubricParseError):
        parse_rubric(text)


def test_brackets_inside_a_question_are_not_json():
    question = 'Does the response return [{"question": 1}]?'
    assert parse_rubric(f"[2] {question}").items == (RubricItem(question, 2.0),)


def test_quotes_that_belong_to_the_question_stay():
    for question in ('"Copper" is named, right?', 'Does it end with "why?"'):
        assert parse_rubric(f"[2] {question}").questions == (question,)


@pytest.mark.parametrize("style", ["lines", "json"])
def test_every_weight_survives_and_whole_ones_have_no_point(style):
    for weight in (1.0, 0.1 + 0.2, 1e-7, 1e22, 3.5):
        rubric = Rubric((RubricItem("Is it?", weight),))
        assert parse_rubric(render_rubric(rubric, style)) == rubric
    assert "3.0" not in render_rubric(Rubric((SHORT,)), style)


def test_every_kind_of_line_break_is_refused():
    for separator in ("\n", "\r", "\x0b", "\u2028"):
        with pytest.raises(ValueError, match="one line"):
            RubricItem(f"Is it{separator}so?", 1.0)
