"""Win rates, plain and at equal length."""

import math

import numpy as np
import pytest

from lightning_dr.evaluate.preference import length_controlled_win_rate, win_rate


def draw(a, b, n=20000, seed=0):
    rng = np.random.default_rng(seed)
    lengths, others = rng.normal(300, 100, n), rng.normal(250, 100, n)
    difference = lengths - others
    p = 1 / (1 + np.exp(-(a + b * np.tanh(difference / difference.std()))))
    return (rng.random(n) < p).astype(float), lengths, others


def test_ties_count_half_and_unjudged_ones_nothing():
    assert win_rate(np.array([1.0, 0.5, np.nan, 0.0])) == 0.5
    assert math.isnan(win_rate(np.array([np.nan])))


@pytest.mark.parametrize(("a", "b"), [(0.0, 1.0), (0.8, 0.5), (-1.0, -0.7)])
def test_what_made_the_preferences_is_found(a, b):
    wins, lengths, others = draw(a, b)
    assert length_controlled_win_rate(wins, lengths, others) == pytest.approx(1 / (1 + math.exp(-a)), abs=0.015)


def test_length_alone_explains_away_a_high_win_rate():
    wins, lengths, others = draw(0.0, 2.0)
    assert win_rate(wins) > 0.58
    assert length_controlled_win_rate(wins, lengths, others) == pytest.approx(0.5, abs=0.02)


def test_equal_lengths_give_the_plain_rate():
    wins = np.array([1.0, 1.0, 0.0, 0.5])
    assert length_controlled_win_rate(wins, np.full(4, 10.0), np.full(4, 7.0)) == win_rate(wins) == 0.625


def test_all_wins_and_nothing_judged():
    lengths, others = np.array([1.0, 5.0, 9.0]), np.array([4.0, 4.0, 4.0])
    assert length_controlled_win_rate(np.ones(3), lengths, others) == 1.0
    assert math.isnan(length_controlled_win_rate(np.full(3, np.nan), lengths, others))


def test_separable_preferences_stay_finite():
    difference = np.array([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0])
    found = length_controlled_win_rate((difference > 0).astype(float), difference, np.zeros(6))
    assert found == pytest.approx(0.5, abs=1e-4)


def test_the_ridge_against_newtons_method():
    wins, difference = np.array([0.0, 1.0, 1.0, 1.0]), np.array([1.0, 2.0, 3.0, 4.0])
    feature = [math.tanh(d / math.sqrt(5 / 3)) for d in difference]  # the variance of 1, 2, 3, 4 is (2.25 + .25) * 2 / 3
    a = b = 0.0
    for _ in range(50):
        p = [1 / (1 + math.exp(-a - b * x)) for x in feature]
        slope_a = sum(p) - 3
        slope_b = sum((q - y) * x for q, y, x in zip(p, wins, feature, strict=True)) + 2 * 0.01 * b
        aa = sum(q * (1 - q) for q in p)
        ab = sum(q * (1 - q) * x for q, x in zip(p, feature, strict=True))
        bb = sum(q * (1 - q) * x * x for q, x in zip(p, feature, strict=True)) + 2 * 0.01
        determinant = aa * bb - ab * ab
        a, b = a - (bb * slope_a - ab * slope_b) / determinant, b - (aa * slope_b - ab * slope_a) / determinant
    assert length_controlled_win_rate(wins, difference, np.zeros(4)) == pytest.approx(1 / (1 + math.exp(-a)), abs=1e-6)


def test_swapping_the_sides_turns_the_rate_round():
    wins, lengths, others = draw(0.4, 0.6, n=500)
    assert length_controlled_win_rate(1 - wins, others, lengths) == pytest.approx(
        1 - length_controlled_win_rate(wins, lengths, others), abs=1e-4
    )
