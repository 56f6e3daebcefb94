"""Plots of the experiments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
from scipy import stats  # noqa: E402

from .statistics import Values  # noqa: E402

SMOOTH = 5
"""Rounds that a plotted point averages over."""


def smooth(values: Values) -> Values:
    """Means of blocks of rounds ``[rounds // SMOOTH]``; NaN does not count."""
    size = max(1, len(values) // SMOOTH)
    blocks = np.array_split(values, size)
    return np.array([block[~np.isnan(block)].mean() if (~np.isnan(block)).any() else np.nan for block in blocks])


def band(runs: Sequence[Values]) -> tuple[Values, Values, Values, Values]:
    """Rounds, mean over seeds, and the ends of its 95% interval (t distribution)."""
    length = min(map(len, runs))
    stacked = np.stack([smooth(run[:length]) for run in runs])
    mean = stacked.mean(0)
    half = stats.t.ppf(0.975, len(runs) - 1) * stacked.std(0, ddof=1) / math.sqrt(len(runs)) if len(runs) > 1 else np.zeros_like(mean)
    return np.linspace(0, length, len(mean)), mean, mean - half, mean + half


def plot_arms(arms: Mapping[str, Sequence[Values]], title: str, path: Path) -> None:
    """One panel per arm with its mean and 95% band over seeds, the first arm in grey behind each.

    Args:
        arms: Arm -> a metric by round for each seed.
        title: Name of the metric.
        path: The .png file.
    """
    arms = {arm: runs for arm, runs in arms.items() if runs}
    if not arms:
        return
    first = next(iter(arms))
    others = [arm for arm in arms if arm != first] or [first]
    columns = min(4, len(others))
    rows = math.ceil(len(others) / columns)
    figure, axes = plt.subplots(rows, columns, figsize=(3.2 * columns, 2.4 * rows + 0.4), sharex=True, sharey=True, squeeze=False)
    for axis in axes.flat[len(others) :]:
        axis.set_visible(False)
    for axis, arm in zip(axes.flat, others, strict=False):
        for name, colour in ((first, "0.45"), (arm, "tab:blue")):
            rounds, mean, low, high = band(arms[name])
            axis.plot(rounds, mean, color=colour, label=f"{name} ({len(arms[name])} seeds)")
            axis.fill_between(rounds, low, high, color=colour, alpha=0.25, linewidth=0)
        axis.legend(fontsize=7, frameon=False)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{title}: mean and 95% interval over seeds", fontsize=10)
    figure.supxlabel("round", fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def plot_heat_maps(
    cells: Mapping[str, Sequence[Sequence[Sequence[float]]]],
    titles: Mapping[str, str],
    policies: Sequence[int],
    generators: Sequence[str],
    path: Path,
) -> None:
    """One heat map per measure, each cell with its mean and half its interval.

    Args:
        cells: Measure -> rows of policies, columns of evaluators, (mean, low, high).
        titles: Measure -> its name.
        policies: Rounds of the rows.
        generators: Names of the columns.
        path: The .png file.
    """
    size = 0.85 * max(len(policies), len(generators)) + 1.2
    figure, axes = plt.subplots(1, len(cells), figsize=(size * len(cells), size), squeeze=False)
    for axis, (name, rows) in zip(axes.flat, cells.items(), strict=True):
        means = np.array([[mean for mean, _, _ in row] for row in rows])
        axis.imshow(means, cmap="viridis", aspect="auto")
        middle = (np.nanmin(means) + np.nanmax(means)) / 2
        for t, row in enumerate(rows):
            for s, (mean, low, high) in enumerate(row):
                axis.text(
                    s, t, f"{mean:.2f}\n±{(high - low) / 2:.2f}", ha="center", va="center", fontsize=7, color="w" if mean < middle else "k"
                )
        axis.set_xticks(range(len(generators)), generators, fontsize=7)
        axis.set_yticks(range(len(policies)), policies, fontsize=7)
        axis.set_xlabel("evaluator of round", fontsize=8)
        axis.set_ylabel("policy of round", fontsize=8)
        axis.set_title(titles[name], fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def plot_objective_against_gap(
    gap: Values, objective: Values, policies: Sequence[int], groups: Mapping[str, Sequence[int]], path: Path
) -> None:
    """One panel per policy: Δgap of each generator over its objective; a bound would be a line under the points.

    Args:
        gap: ``[T, S]``.
        objective: ``[T, S]``.
        policies: Rounds of the panels.
        groups: Name -> which of the S generators.
        path: The .png file.
    """
    columns = min(3, len(policies))
    rows = math.ceil(len(policies) / columns)
    figure, axes = plt.subplots(rows, columns, figsize=(3.2 * columns, 2.6 * rows + 0.4), squeeze=False)
    for axis in axes.flat[len(policies) :]:
        axis.set_visible(False)
    for t, (axis, policy) in enumerate(zip(axes.flat, policies, strict=False)):
        for name, members in groups.items():
            axis.scatter(objective[t, members], gap[t, members], s=18, label=name)
        axis.set_title(f"policy of round {policy}", fontsize=9)
        axis.locator_params(axis="x", nbins=4)
        axis.spines[["top", "right"]].set_visible(False)
    axes.flat[0].legend(fontsize=7, frameon=False)
    figure.supxlabel("objective J", fontsize=9)
    figure.supylabel("Δgap", fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
