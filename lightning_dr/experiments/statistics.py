"""Intervals and tests over few seeds or many prompts."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ..gap import MeanInterval

Values = NDArray[np.float64]
RESAMPLES = 9999


def bootstrap_mean(values: Values, seed: int = 0) -> MeanInterval:
    """Mean of independent values with its 95% bootstrap interval (BCa, of scipy).

    Args:
        values: ``[n]``; NaN is left out.
        seed: Of the resampling.

    Returns:
        An infinite interval for a single value, one of width 0 where all are equal, NaN for none.
    """
    values = values[~np.isnan(values)]
    if len(values) < 2 or np.ptp(values) == 0:
        mean = float(values.mean()) if len(values) else float("nan")
        half = float("inf") if len(values) == 1 else 0.0
        return MeanInterval(mean, mean - half, mean + half, len(values))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        found = stats.bootstrap((values,), np.mean, n_resamples=RESAMPLES, rng=np.random.default_rng(seed)).confidence_interval
    return MeanInterval(float(values.mean()), float(found.low), float(found.high), len(values))


def sign_flip_p(differences: Values) -> float:
    """Two-sided sign-flip test of "the mean of paired differences is 0", exact for up to 13 pairs (of scipy).

    Args:
        differences: ``[n]``; NaN is left out.

    Returns:
        p, which with n pairs is at least 2 / 2^n.
    """
    differences = differences[~np.isnan(differences)]
    if len(differences) < 2 or not differences.any():
        return 1.0
    test = stats.permutation_test((differences,), np.mean, permutation_type="samples", n_resamples=RESAMPLES, rng=np.random.default_rng(0))
    return float(test.pvalue)


def bootstrap(statistic: Callable[[NDArray[np.intp]], Any], size: int, resamples: int = 1000, seed: int = 0) -> tuple[Any, Any]:
    """95% percentile interval of any statistic of ``size`` independent units, such as prompts.

    Args:
        statistic: Takes the numbers of the units in a resample ``[size]``; returns a number or an array of them.
        size: Number of units.
        resamples: Number of resamples.
        seed: Of the resampling.

    Returns:
        Both ends, in the form of the statistic; resamples in which it is NaN do not count.
    """
    rng = np.random.default_rng(seed)
    found = np.array([statistic(rng.integers(size, size=size)) for _ in range(resamples)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # where it is NaN in all of them, so are the ends
        low, high = np.nanpercentile(found, [2.5, 97.5], axis=0)
    return low, high
