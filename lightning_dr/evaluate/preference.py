"""Win rates from preferences, as they are and at equal length."""

from __future__ import annotations

import math

import numpy as np
from scipy import optimize, special

from ..experiments.statistics import Values

RIDGE = 0.01
"""Weight of the squared length coefficient in the summed log-loss: it is finite even where length alone explains every preference, and
as good as free where there are many of them."""


def win_rate(preferences: Values) -> float:
    """Mean preference.

    Args:
        preferences: ``[n]`` in [0, 1]: 1 where the first answer wins, 1/2 for a tie; NaN is left out.

    Returns:
        NaN if there is none.

    Example:
        >>> win_rate(np.array([1.0, 0.5, 0.0, 1.0, np.nan]))
        0.625
    """
    known = preferences[~np.isnan(preferences)]
    return float(known.mean()) if len(known) else math.nan


def length_controlled_win_rate(preferences: Values, lengths: Values, other_lengths: Values) -> float:
    r"""The win rate that a logistic regression expects of answers of equal length.

    .. math:: p_i = \sigma(a + b \tanh(d_i / s)), \qquad d_i = |y_i| - |z_i|, \qquad \text{result} = \sigma(a)

    s is the sample standard deviation of the differences. AlpacaEval 2 (arXiv 2404.04475) has the same two terms and a third one, how hard
    each instruction is, whose weights come from many models together; one pair of policies can't tell it from chance, so it is left out,
    and the numbers are not those of its leaderboard.

    Args:
        preferences: ``[n]``, see :func:`win_rate`.
        lengths: Of the first answers ``[n]``, in any unit.
        other_lengths: Of the second ones ``[n]``.

    Returns:
        In (0, 1); the plain win rate where all differences are the same, or every preference is; NaN if there is none.
    """
    known = ~np.isnan(preferences)
    wins, difference = preferences[known], (lengths - other_lengths)[known]
    if len(wins) == 0 or np.ptp(wins) == 0 or np.ptp(difference) == 0:
        return win_rate(wins)
    feature = np.tanh(difference / difference.std(ddof=1))

    def loss(weights: Values) -> tuple[float, Values]:
        logits = weights[0] + weights[1] * feature
        residual = special.expit(logits) - wins
        value = np.logaddexp(0, logits).sum() - wins @ logits + RIDGE * weights[1] ** 2
        return value / len(wins), np.array([residual.sum(), residual @ feature + 2 * RIDGE * weights[1]]) / len(wins)

    return float(special.expit(optimize.minimize(loss, np.zeros(2), jac=True, method="BFGS").x[0]))
