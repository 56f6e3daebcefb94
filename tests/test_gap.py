import pytest
import torch

from lightning_dr.gap import mean_interval, pairwise_accuracy, saturation, score_gap, tie_rate


def slow_pairs(scores, reference):
    return [
        (scores[i] - scores[j])
        for i in range(len(scores))
        for j in range(len(scores))
        if reference[i] > reference[j] and scores[i] == scores[i] and scores[j] == scores[j]
    ]


def test_parity_with_slow_loop():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 4, (40, 5), generator=generator) / 3
    scores[torch.rand(40, 5, generator=generator) < 0.1] = torch.nan
    reference = torch.randint(0, 3, (40, 5), generator=generator).float()
    for row in range(40):
        pairs = slow_pairs(scores[row].tolist(), reference[row].tolist())
        gap, accuracy, ties = (f(scores[row], reference[row]).item() for f in (score_gap, pairwise_accuracy, tie_rate))
        if pairs:
            assert gap == pytest.approx(sum(pairs) / len(pairs), abs=1e-6)
            assert accuracy == pytest.approx(sum((p > 0) + 0.5 * (p == 0) for p in pairs) / len(pairs))
            assert ties == pytest.approx(sum(p == 0 for p in pairs) / len(pairs))
        else:
            assert gap != gap


def test_nan_where_no_pair_is_ordered():
    assert torch.isnan(score_gap(torch.rand(4), torch.ones(4)))
    gaps = score_gap(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
    assert gaps[0] == 1
    assert torch.isnan(gaps[1])


def test_reversing_the_reference_changes_the_sign():
    scores, reference = torch.rand(6), torch.rand(6)
    torch.testing.assert_close(score_gap(scores, reference), -score_gap(scores, -reference))


def test_equation_7_moving_probability_mass():
    """Moving mass ε from y− to y+ changes the expected score by ε (E(y+) − E(y−))."""
    scores, probabilities = torch.tensor([0.9, 0.2, 0.5], dtype=torch.double), torch.tensor([0.2, 0.5, 0.3], dtype=torch.double)
    moved = probabilities + 0.1 * torch.tensor([1.0, -1.0, 0.0])
    change = (moved - probabilities) @ scores
    assert change.item() == pytest.approx(0.1 * score_gap(scores[:2], torch.tensor([1.0, 0.0])).item())


def test_saturation():
    assert saturation(torch.tensor([0.0, 1.0, 0.5, torch.nan])).item() == pytest.approx(2 / 3)


def test_mean_interval():
    # values 1, 2, 3: s = 1, 1.96 / sqrt(3) = 1.1316
    result = mean_interval(torch.tensor([1.0, 2.0, 3.0, torch.nan]))
    assert (result.mean, result.size) == (2.0, 3)
    assert result.high - result.mean == pytest.approx(1.1316, abs=1e-4)
    assert mean_interval(torch.tensor([])).size == 0


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="`reference` must have the shape"):
        score_gap(torch.zeros(3), torch.zeros(2))
