import math

import pytest
import torch

from lightning_dr.rewards import anchor_agreement, discriminability, format_reward, with_floor


def log_sigmoid(x):
    return -math.log1p(math.exp(-x))


def slow_anchor(scores, ranks, temperature, pair_weights):
    """Eq. 16 with 1-based positions, in plain Python; a pair without both scores counts as the mean of the others."""
    order = sorted((r, n) for n, r in enumerate(ranks) if not math.isnan(r))
    total, known, ranked = 0.0, 0.0, 0.0
    for i, (rank_i, n_i) in enumerate(order, start=1):
        for j, (rank_j, n_j) in enumerate(order, start=1):
            if not (i < j and rank_i < rank_j):
                continue
            gap = scores[n_i] - scores[n_j]
            weight = 1 / ((j - i) * 2 ** (i - 1)) if pair_weights == "paper" else 1.0
            ranked += weight
            if not math.isnan(gap):
                total += weight * log_sigmoid(gap / temperature)
                known += weight
    if not known:
        return math.nan
    return total / known * ranked if pair_weights == "paper" else total / known


class TestDiscriminability:
    def test_hand_worked(self):
        # p = 3/4, 1/2, 1; variances 3/16, 1/4, 0; weights 1, 2, 5: (3/16 + 2/4) / 8
        verdicts = torch.tensor([[1.0, 1, 1], [1, 1, 1], [1, 0, 1], [0, 0, 1]])
        assert discriminability(verdicts, torch.tensor([1.0, 2.0, 5.0])).item() == pytest.approx((3 / 16 + 0.5) / 8)

    def test_bounds(self):
        half = torch.tensor([[1.0], [0.0]])
        assert discriminability(half, torch.ones(1)).item() == 0.25
        assert discriminability(torch.ones(2, 1), torch.ones(1)).item() == 0.0

    def test_blind_to_direction(self):
        verdicts, weights = (torch.rand(5, 3) < 0.4).float(), torch.tensor([1.0, 2.0, 3.0])
        torch.testing.assert_close(discriminability(verdicts, weights), discriminability(1 - verdicts, weights))

    def test_probabilities(self):
        # p = 0.6: 0.24
        assert discriminability(torch.tensor([[0.4], [0.8]]), torch.ones(1)).item() == pytest.approx(0.24)

    def test_between_leaves_the_verifiers_doubt_out(self):
        # verdicts 0.4 and 0.8: variance 0.04; doubt (0.24 + 0.16) / 2 = 0.2; together 0.24
        verdicts = torch.tensor([[0.4], [0.8]])
        assert discriminability(verdicts, torch.ones(1), spread="between").item() == pytest.approx(0.04)
        # a verifier that is unsure of everything: the most by Eq. 14, though all responses are alike
        unsure = torch.full((4, 1), 0.5)
        assert discriminability(unsure, torch.ones(1)).item() == 0.25
        assert discriminability(unsure, torch.ones(1), spread="between").item() == 0
        hard = (torch.rand(6, 3) < 0.4).float()
        assert discriminability(hard, torch.ones(3), spread="between") == discriminability(hard, torch.ones(3))
        with pytest.raises(ValueError, match="`spread` must be one of"):
            discriminability(hard, torch.ones(3), spread="all")

    def test_padded_responses_and_items_change_nothing(self):
        verdicts, weights = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]), torch.tensor([2.0, 1.0])
        padded = torch.full((5, 4), 1.0)
        padded[:3, :2] = verdicts
        mask = torch.zeros(5, 4, dtype=torch.bool)
        mask[:3, :2] = True
        got = discriminability(padded, torch.tensor([2.0, 1.0, 9.0, 9.0]), mask)
        torch.testing.assert_close(got, discriminability(verdicts, weights))

    def test_missing_verdict_leaves_its_item_mean(self):
        # over the two readable verdicts p = 1/2
        assert discriminability(torch.tensor([[1.0], [0.0], [torch.nan]]), torch.ones(1)).item() == 0.25
        assert torch.isnan(discriminability(torch.full((3, 1), torch.nan), torch.ones(1)))

    def test_permuting_responses_changes_nothing(self):
        verdicts = torch.rand(6, 3)
        torch.testing.assert_close(discriminability(verdicts, torch.ones(3)), discriminability(verdicts.flip(0), torch.ones(3)))


class TestAnchorAgreement:
    def test_hand_worked_three_answers(self):
        # positions 1 2 3, scores 1, 0.5, 0: a12 = 1, a13 = 1/2, a23 = 1/2
        want = log_sigmoid(0.5) + 0.5 * log_sigmoid(1.0) + 0.5 * log_sigmoid(0.5)
        got = anchor_agreement(torch.tensor([0.0, 1.0, 0.5]), torch.tensor([3.0, 1.0, 2.0]))
        assert got.item() == pytest.approx(want)

    def test_known_values_of_seven_answers(self):
        ranks = torch.arange(1.0, 8.0)
        best = torch.linspace(1, 0, 7)
        assert anchor_agreement(torch.zeros(7), ranks).item() == pytest.approx(-3.10, abs=0.005)
        assert anchor_agreement(best, ranks).item() == pytest.approx(-2.37, abs=0.005)
        assert anchor_agreement(torch.tensor([1.0, 1, 0, 0, 0, 0, 0]), ranks).item() == pytest.approx(-2.11, abs=0.005)
        assert anchor_agreement(torch.tensor([1.0, 0, 0, 0, 0, 0, 0]), ranks).item() > anchor_agreement(best.flip(0), ranks).item()

    @pytest.mark.parametrize("pair_weights", ["paper", "uniform"])
    @pytest.mark.parametrize("temperature", [1.0, 0.2])
    def test_parity_with_slow_loop(self, pair_weights, temperature):
        generator = torch.Generator().manual_seed(1)
        scores = torch.rand(20, 7, generator=generator)
        ranks = torch.randint(1, 6, (20, 7), generator=generator).float()
        ranks[torch.rand(20, 7, generator=generator) < 0.2] = torch.nan
        scores[torch.rand(20, 7, generator=generator) < 0.1] = torch.nan
        got = anchor_agreement(scores, ranks, temperature, pair_weights)
        want = [slow_anchor(s, r, temperature, pair_weights) for s, r in zip(scores.tolist(), ranks.tolist(), strict=True)]
        assert got.tolist() == pytest.approx(want, nan_ok=True, rel=1e-5)

    def test_order_of_the_answers_does_not_matter(self):
        scores, ranks = torch.rand(7), torch.arange(1.0, 8.0)
        order = torch.randperm(7)
        torch.testing.assert_close(anchor_agreement(scores[order], ranks[order]), anchor_agreement(scores, ranks))

    def test_ties_of_rank_do_not_count(self):
        assert torch.isnan(anchor_agreement(torch.tensor([1.0, 0.0]), torch.tensor([2.0, 2.0])))
        assert torch.isnan(anchor_agreement(torch.tensor([1.0]), torch.tensor([1.0])))

    @pytest.mark.parametrize("pair_weights", ["paper", "uniform"])
    def test_missing_scores_earn_nothing(self, pair_weights):
        # all tied: the same value, whichever answers have no score (log 1/2 times the sum of the weights)
        ranks = torch.arange(1.0, 8.0)
        full = anchor_agreement(torch.zeros(7), ranks, pair_weights=pair_weights)
        for missing in range(7):
            scores = torch.zeros(7)
            scores[missing] = torch.nan
            torch.testing.assert_close(anchor_agreement(scores, ranks, pair_weights=pair_weights), full)

    def test_padding_changes_nothing(self):
        scores, ranks = torch.rand(4), torch.tensor([2.0, 1.0, 4.0, 3.0])
        padded = torch.cat([scores, torch.full((3,), torch.nan)])
        padded_ranks = torch.cat([ranks, torch.full((3,), torch.nan)])
        for weights in ("paper", "uniform"):
            got = anchor_agreement(padded, padded_ranks, pair_weights=weights)
            torch.testing.assert_close(got, anchor_agreement(scores, ranks, pair_weights=weights))

    def test_bad_input(self):
        with pytest.raises(ValueError, match="`ranks` must have the shape"):
            anchor_agreement(torch.zeros(3), torch.zeros(2))
        with pytest.raises(ValueError, match="`temperature` must be positive"):
            anchor_agreement(torch.zeros(3), torch.zeros(3), temperature=0.0)
        with pytest.raises(ValueError, match="`pair_weights` must be one of"):
            anchor_agreement(torch.zeros(3), torch.zeros(3), pair_weights="other")


def test_unreadable_rubric_gets_the_floor_of_its_group():
    rewards = torch.tensor([[0.2, 0.1, torch.nan], [torch.nan, torch.nan, torch.nan]])
    readable = torch.tensor([[True, True, False], [False, False, False]])
    assert with_floor(rewards, readable).tolist() == [pytest.approx([0.2, 0.1, 0.1]), [0.0, 0.0, 0.0]]
    assert format_reward(readable)[0].tolist() == [0.0, 0.0, -1.0]


def test_readable_rubric_without_verdicts_gets_no_reward():
    floored = with_floor(torch.tensor([0.2, torch.nan]), torch.tensor([True, True]))
    assert torch.isnan(floored[1])
