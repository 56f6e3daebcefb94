import pytest
import torch

from lightning_dr.verdict import VerdictParseError, parse_verdict, verdict_probabilities, yes_no_token_ids


@pytest.mark.parametrize(
    ("text", "verdict"), [("Yes", True), (" no.", False), ("**YES**", True), ("Answer: No", False), ("```\nyes\n```", True)]
)
def test_read(text, verdict):
    assert parse_verdict(text) is verdict


@pytest.mark.parametrize("text", ["", "maybe", "yes and no", "Yesterday", "nothing"])
def test_unreadable(text):
    with pytest.raises(VerdictParseError, match="must say yes or no"):
        parse_verdict(text)


def test_all_the_tokens_that_mean_yes_or_no():
    vocabulary = {0: "Yes", 1: " yes", 2: "▁YES", 3: "no", 4: "No.", 5: "now", 6: "eyes", 7: "Ġno"}
    assert yes_no_token_ids(vocabulary) == ([0, 1, 2], [3, 4, 7])
    with pytest.raises(ValueError, match="must hold single tokens for yes and no"):
        yes_no_token_ids({0: "yes"})


def test_probabilities_sum_over_all_forms():
    # yes: 0.2 + 0.1, no: 0.1; P(yes) = 0.75, mass 0.4
    logits = torch.tensor([[0.2, 0.1, 0.1, 0.6]]).log() + 5
    p, mass = verdict_probabilities(logits, [0, 1], [2])
    assert p.item() == pytest.approx(0.75)
    assert mass.item() == pytest.approx(0.4)


def test_bfloat16_logits_are_read_in_float32():
    p, _ = verdict_probabilities(torch.tensor([3.0, 3.0], dtype=torch.bfloat16), [0], [1])
    assert p.dtype == torch.float32
    assert p.item() == 0.5


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("Yes, it does.", True),
        ("__No__", False),
        ('"yes"', True),
        ("```text\nno\n```", False),
        ("It is named.\nAnswer: **Yes**", True),
        ("The answer is no.", False),
        ("Verdict - YES!", True),
    ],
)
def test_more_forms_that_are_read(text, verdict):
    assert parse_verdict(text) is verdict


@pytest.mark.parametrize("text", ["There is no doubt.", "No doubt it does.", "I have no idea", "Yes/No", "Yes. Answer: no", "{question}"])
def test_a_yes_or_no_that_is_not_the_answer(text):
    with pytest.raises(VerdictParseError):
        parse_verdict(text)


def test_a_token_may_have_any_punctuation():
    assert yes_no_token_ids({0: "(Yes", 1: "‘no’", 2: "No!\n", 3: "no-one"}) == ([0], [1, 2])
