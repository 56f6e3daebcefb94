r"""The condition under which the generator's objective bounds the score gap (Eq. 44, 45 and 47), measured.

The paper bounds Δgap from below by its training objective (Eq. 47),

.. math:: \Delta_{gap} \ge \gamma\rho\, J_{disc} + \beta\, J_{anchor} + \epsilon_t

*if* the residual :math:`\eta_{res} = \gamma\rho\, J_{disc} - \Delta_{gap}` (Eq. 44) satisfies Eq. 45,
:math:`-\eta_{res} \ge \beta J_{anchor} + \epsilon_t`. Training with one weight for both terms matches the bound only where
β = γρ = c. Then the condition for the generators s of a round t (one policy) reads

.. math:: \Delta_{gap}(t, s) \ge c\, J(t, s) + \epsilon_t, \qquad J = J_{disc} + \lambda J_{anchor}

For any c it holds with an intercept that is low enough, so by itself it says nothing. What says something is how loose it must be:
the slack :math:`\Delta_{gap} - c J - \epsilon_t`, summed over all t and s. With c = 0 the bound is a constant for each round. A
coefficient is useful if it leaves no more slack than that, and the largest useful one is what :func:`largest_coefficient` finds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog

from .statistics import Values


class Bound(NamedTuple):
    """A coefficient with the intercepts that it needs."""

    coefficient: float
    """c = β = γρ."""
    intercepts: Values
    """ε_t of each round ``[T]``: as high as the condition allows."""
    slack: float
    """Mean of Δgap − c J − ε_t."""


def residual(gap: Values, j_disc: Values, coefficient: float) -> Values:
    """η_res = γρ J_disc − Δgap, any shape (Eq. 44)."""
    return coefficient * j_disc - gap


def intercepts(gap: Values, objective: Values, coefficient: float) -> Values:
    """The highest ε_t with which the condition holds for every generator of a round: ``[T, S]`` -> ``[T]`` (Eq. 45)."""
    return (gap - coefficient * objective).min(1)


def bound_with(gap: Values, objective: Values, coefficient: float) -> Bound:
    """The tightest bound with a given coefficient."""
    found = intercepts(gap, objective, coefficient)
    return Bound(coefficient, found, float((gap - coefficient * objective - found[:, None]).mean()))


def tightest(gap: Values, objective: Values) -> Bound:
    """The coefficient c ≥ 0 that leaves the least slack: a linear programme.

    Args:
        gap: Δgap of S generators in T rounds ``[T, S]``.
        objective: Their J ``[T, S]``.
    """
    return bound_with(gap, objective, _solve(gap, objective, maximise=False))


def largest_coefficient(gap: Values, objective: Values) -> Bound:
    """The largest matched coefficient c that leaves no more slack than the constant bound c = 0: a linear programme.

    Args:
        gap: Δgap of S generators in T rounds ``[T, S]``.
        objective: Their J ``[T, S]``.

    Returns:
        c = 0 where the objective says nothing about Δgap from below. Infinite where all generators of each round have the same objective.
    """
    coefficient = _solve(gap, objective, maximise=True)
    return bound_with(gap, objective, coefficient) if np.isfinite(coefficient) else Bound(coefficient, np.full(len(gap), np.nan), np.nan)


def _solve(gap: Values, objective: Values, maximise: bool) -> float:
    """Variables c, ε_1 … ε_T with c J + ε_t ≤ Δgap: the largest c with the slack of c = 0 at most, or the c of the least slack."""
    rounds, count = gap.shape
    holds = np.zeros((rounds * count, 1 + rounds))
    holds[:, 0] = objective.ravel()
    holds[np.arange(rounds * count), 1 + np.repeat(np.arange(rounds), count)] = 1
    # Σ Δgap − c Σ J − S Σ ε_t
    slack = np.concatenate([[-objective.sum()], np.full(rounds, -float(count))])
    limits = gap.ravel()
    if maximise:
        holds = np.vstack([holds, slack])
        limits = np.append(limits, -count * gap.min(1).sum() + 1e-12)
    target = np.concatenate([[-1.0], np.zeros(rounds)]) if maximise else slack
    found = linprog(target, A_ub=holds, b_ub=limits, bounds=[(0, None)] + [(None, None)] * rounds)
    if found.status == 3:  # unbounded
        return float("inf") if maximise else 0.0
    return max(0.0, float(found.x[0])) if found.success else float("nan")


def misordered(gap: Values, objective: Values) -> Values:
    """Which pairs of generators of a round objective and Δgap order differently: 1, else 0.

    Returns:
        ``[T, S, S]``; NaN on the diagonal and above it.
    """
    by_gap = np.sign(gap[:, :, None] - gap[:, None, :])
    by_objective = np.sign(objective[:, :, None] - objective[:, None, :])
    below = np.tril(np.ones(by_gap.shape[1:], dtype=bool), -1)
    return np.where(below, (by_gap * by_objective < 0).astype(float), np.nan)
