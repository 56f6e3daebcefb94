import numpy as np
import pytest

from lightning_dr.experiments.bound import bound_with, intercepts, largest_coefficient, misordered, residual, tightest
from lightning_dr.experiments.diagnose import resolved_pairs, slack_removed


def world(coefficient, noise=0.0, rounds=3, count=6, seed=0):
    """Δgap = c J + ε_t + something that is not negative."""
    rng = np.random.default_rng(seed)
    objective = rng.normal(size=(rounds, count))
    above = noise * rng.exponential(size=(rounds, count))
    above[:, 0] = 0.0
    return coefficient * objective + rng.normal(size=(rounds, 1)) + above, objective


def test_an_exact_bound_is_found():
    gap, objective = world(0.7)
    found = tightest(gap, objective)
    assert found.coefficient == pytest.approx(0.7)
    assert found.slack == pytest.approx(0, abs=1e-9)
    assert slack_removed(gap, tightest(gap, objective)) == pytest.approx(1)


@pytest.mark.parametrize("seed", range(5))
def test_linear_programmes_against_a_search(seed):
    gap, objective = world(0.5, noise=0.4, seed=seed)
    grid = np.linspace(0, 3, 3001)
    slack = np.array([bound_with(gap, objective, c).slack for c in grid])
    assert tightest(gap, objective).slack <= slack.min() + 1e-9
    assert tightest(gap, objective).coefficient == pytest.approx(grid[slack.argmin()], abs=0.01)
    useful = grid[slack <= slack[0] + 1e-9]
    assert largest_coefficient(gap, objective).coefficient == pytest.approx(useful.max(), abs=0.01)


def test_the_condition_holds_and_touches_in_every_round():
    gap, objective = world(0.5, noise=0.4)
    for found in (tightest(gap, objective), largest_coefficient(gap, objective)):
        above = gap - found.coefficient * objective - found.intercepts[:, None]
        assert above.min(1) == pytest.approx(np.zeros(3), abs=1e-9)
        assert found.intercepts == pytest.approx(intercepts(gap, objective, found.coefficient))


def test_an_objective_that_says_the_opposite_has_no_coefficient():
    gap, objective = world(-1.0)
    assert tightest(gap, objective).coefficient == 0
    assert largest_coefficient(gap, objective).coefficient == pytest.approx(0, abs=1e-6)
    assert slack_removed(gap, tightest(gap, objective)) == pytest.approx(0, abs=1e-6)
    assert np.nanmean(misordered(gap, objective)) == 1


def test_the_same_objective_everywhere_leaves_the_coefficient_open():
    assert np.isinf(largest_coefficient(np.random.default_rng(0).normal(size=(2, 3)), np.ones((2, 3))).coefficient)


def test_residual_is_eq_44():
    # −η_res ≥ β J_anchor + ε_t is Δgap ≥ c (J_disc + J_anchor) + ε_t with β = γρ = c
    gap, disc, anchor, c = 0.1, 0.2, -0.6, 0.5
    epsilon = gap - c * (disc + anchor)
    assert -residual(np.array(gap), np.array(disc), c) == pytest.approx(c * anchor + epsilon)


def test_misordered_counts_each_pair_once():
    gap, objective = np.array([[1.0, 2.0, 3.0]]), np.array([[1.0, 3.0, 2.0]])
    found = misordered(gap, objective)
    assert np.nansum(found) == 1
    assert (~np.isnan(found)).sum() == 3


def test_only_clear_pairs_are_resolved():
    rng = np.random.default_rng(0)
    gap = np.stack([np.zeros(50), np.ones(50), np.zeros(50)])[None] + 0.1 * rng.normal(size=(1, 3, 50))
    clear = resolved_pairs(gap, gap)
    assert clear[0].tolist() == [[False, True, False], [True, False, True], [False, True, False]]
