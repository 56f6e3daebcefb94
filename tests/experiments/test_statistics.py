import itertools
import math

import numpy as np
import pytest

from lightning_dr.experiments.statistics import bootstrap, bootstrap_mean, sign_flip_p


def test_interval_covers_the_mean_about_95_times_in_100():
    rng = np.random.default_rng(1)
    hits = [low <= 3.0 <= high for low, high in (bootstrap_mean(rng.exponential(3.0, 40))[1:3] for _ in range(150))]
    assert 0.88 < np.mean(hits) <= 1


def test_few_values():
    assert math.isnan(bootstrap_mean(np.array([np.nan])).mean)
    single = bootstrap_mean(np.array([2.0]))
    assert (single.mean, single.low, single.high, single.size) == (2.0, -math.inf, math.inf, 1)
    assert bootstrap_mean(np.array([2.0, 2.0]))[:3] == (2.0, 2.0, 2.0)
    assert bootstrap_mean(np.array([1.0, np.nan, 3.0])).size == 2


def test_sign_flips_against_the_list_of_all():
    values = np.array([0.5, 0.2, 0.4, -0.1, 0.3])
    means = [abs(np.mean(values * signs)) for signs in itertools.product((1, -1), repeat=5)]
    assert sign_flip_p(values) == pytest.approx(np.mean([mean >= abs(values.mean()) - 1e-12 for mean in means]))
    assert sign_flip_p(np.array([0.1] * 8)) == pytest.approx(2 / 2**8)
    assert sign_flip_p(np.zeros(8)) == 1.0


def test_bootstrap_of_a_statistic():
    values = np.random.default_rng(0).normal(size=200)
    low, high = bootstrap(lambda rows: float(values[rows].mean()), 200)
    assert low < values.mean() < high
    assert high - low == pytest.approx(2 * 1.96 * values.std() / math.sqrt(200), rel=0.2)
    assert all(map(math.isnan, bootstrap(lambda rows: math.nan, 3)))
