import math

import pytest
import torch

from lightning_dr.scoring import weighted_scores


def slow_score(verdicts, weights, mask):
    total = yes = 0.0
    for verdict, weight, counts in zip(verdicts, weights, mask, strict=True):
        if counts and not math.isnan(verdict):
            total += weight
            yes += weight * verdict
    return yes / total if total else math.nan


def test_hand_worked():
    verdicts = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    # (5 + 1) / 9 and 1 / 9
    assert weighted_scores(verdicts, torch.tensor([5.0, 3.0, 1.0])).tolist() == pytest.approx([6 / 9, 1 / 9])


def test_parity_with_slow_loop():
    generator = torch.Generator().manual_seed(0)
    verdicts = torch.rand(2, 3, 4, 5, generator=generator)
    verdicts[torch.rand(verdicts.shape, generator=generator) < 0.2] = torch.nan
    weights = torch.randint(1, 6, (2, 3, 5), generator=generator).float()
    mask = torch.rand(2, 3, 5, generator=generator) < 0.8
    got = weighted_scores(verdicts, weights, mask)
    for b in range(2):
        for g in range(3):
            want = [slow_score(verdicts[b, g, k].tolist(), weights[b, g].tolist(), mask[b, g].tolist()) for k in range(4)]
            assert got[b, g].tolist() == pytest.approx(want, nan_ok=True)


def test_boolean_and_integer_verdicts_and_weights():
    assert weighted_scores(torch.tensor([[True, False]]), torch.tensor([3, 1])).item() == 0.75


def test_padding_changes_nothing():
    verdicts, weights = torch.tensor([[1.0, 0.0], [1.0, 1.0]]), torch.tensor([2.0, 1.0])
    padded = torch.cat([verdicts, torch.full((2, 3), torch.nan)], -1)
    padded_weights = torch.cat([weights, torch.zeros(3)])
    mask = torch.tensor([True, True, False, False, False])
    assert torch.equal(weighted_scores(verdicts, weights), weighted_scores(padded, padded_weights, mask))


def test_unreadable_verdict_is_masked_and_never_zero():
    verdicts = torch.tensor([[1.0, torch.nan], [torch.nan, torch.nan]])
    scores = weighted_scores(verdicts, torch.tensor([1.0, 4.0]))
    assert scores[0] == 1.0  # the unread item would have pulled a zero-filled score to 0.2
    assert torch.isnan(scores[1])


def test_scale_of_the_weights_does_not_matter_and_permuting_responses_permutes_scores():
    verdicts, weights = torch.rand(4, 3), torch.tensor([1.0, 2.0, 5.0])
    scores = weighted_scores(verdicts, weights)
    torch.testing.assert_close(scores, weighted_scores(verdicts, weights * 7))
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(scores[order], weighted_scores(verdicts[order], weights))


@pytest.mark.parametrize(
    ("verdicts", "weights", "mask", "message"),
    [
        (torch.ones(2, 3), torch.ones(2), None, r"`weights` must have shape"),
        (torch.ones(2, 3), torch.ones(3), torch.ones(2, dtype=torch.bool), r"`item_mask` must have shape"),
        (torch.ones(2, 3), torch.tensor([1.0, 0.0, 1.0]), None, r"`weights` must be finite and positive"),
        (torch.ones(2, 3), torch.tensor([1.0, torch.inf, 1.0]), None, r"`weights` must be finite and positive"),
        (torch.full((2, 3), 2.0), torch.ones(3), None, r"`verdicts` must lie in \[0, 1\]"),
    ],
)
def test_bad_input(verdicts, weights, mask, message):
    with pytest.raises(ValueError, match=message):
        weighted_scores(verdicts, weights, mask)
