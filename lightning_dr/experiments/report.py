"""Results of an ablation: JSON, a Markdown table, and a plot per metric."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .output import write_results
from .plots import plot_arms
from .statistics import Values, bootstrap_mean, sign_flip_p

METRICS = {
    "gap/reference_quality": "true quality",
    "gap/policy": "Δgap on the responses",
    "gap/accuracy": "pairs of responses ordered right",
    "gap/saturation": "saturation",
    "gap/anchor": "Δgap on the anchors",
    "anchor/accuracy": "anchor pairs ordered right",
    "policy/distinct": "distinct responses",
    "policy/kl": "KL of the policy",
}
"""Metric -> its name in the tables: the mean over the last rounds of a run; those of anchors are about the live generator."""
PLOTTED = {"quality": "gap/reference_quality", "gap": "gap/policy", "saturation": "gap/saturation"}
WINDOW = 0.1
"""Share of the rounds that "the last rounds" are."""


def read_metrics(folder: Path) -> dict[str, Values]:
    """Metric -> its value in each round ``[rounds]`` of a run; NaN where a round has none."""
    with (folder / "metrics.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.get("policy/score")]
    names = [name for name in METRICS if any(row.get(name) for row in rows)]
    return {name: np.array([float(row[name]) if row.get(name) else np.nan for row in rows]) for name in names}


def last_rounds(values: Values) -> float:
    """Mean over the last rounds."""
    size = max(1, round(len(values) * WINDOW))
    known = values[-size:][~np.isnan(values[-size:])]
    return float(known.mean()) if len(known) else float("nan")


def write_report(out: Path, done: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Compare the finished runs of a study: ``results.json``, ``results.md``, ``<metric>.png``.

    Args:
        out: Folder of the study.
        done: Arm -> its finished seeds; the first arm is what the others are compared with.

    Returns:
        What is in ``results.json``.
    """
    curves = {arm: {seed: read_metrics(out / arm / f"seed-{seed}") for seed in seeds} for arm, seeds in done.items() if seeds}
    if not curves:
        print("No run has finished: nothing to compare.")
        return {}
    finals = {
        arm: {name: {seed: last_rounds(run[name]) for seed, run in runs.items() if name in run} for name in METRICS}
        for arm, runs in curves.items()
    }
    first = next(iter(finals))
    results = {
        arm: {name: compare(values[name], finals[first][name]) for name in METRICS if values[name]} for arm, values in finals.items()
    }
    write_results(out, "results", {"reference": first, "arms": results}, markdown(results, first))
    for filename, metric in PLOTTED.items():
        plot_arms(
            {arm: [run[metric] for run in runs.values() if metric in run] for arm, runs in curves.items()},
            METRICS[metric],
            out / f"{filename}.png",
        )
    return results


def compare(values: Mapping[int, float], reference: Mapping[int, float]) -> dict[str, Any]:
    """An arm's mean over seeds, and its paired difference to the reference arm over the seeds that both have."""
    interval = bootstrap_mean(np.array(list(values.values())))
    shared = [seed for seed in values if seed in reference]
    differences = np.array([values[seed] - reference[seed] for seed in shared])
    difference = bootstrap_mean(differences)
    known = difference.size > 1
    return {
        "seeds": {str(seed): value for seed, value in values.items()},
        "mean": interval.mean,
        "interval": [interval.low, interval.high],
        "difference": difference.mean,
        "difference_interval": [difference.low, difference.high],
        "p": sign_flip_p(differences),
        "significant": bool(known and (difference.low > 0 or difference.high < 0)),
    }


def markdown(results: Mapping[str, Mapping[str, Mapping[str, Any]]], first: str) -> str:
    """Tables of all metrics, and a sentence for each on which arms differ."""
    parts = [
        f"# Arms against `{first}`\n",
        "Means over the last tenth of the rounds, with 95% bootstrap intervals (BCa) over seeds; differences are paired by seed. "
        "`significant`: the interval of the difference excludes 0, without a correction for the number of arms. "
        "p: exact sign-flip test, which with n seeds can't be below 2/2^n.\n",
    ]
    for name, title in METRICS.items():
        rows = {arm: found[name] for arm, found in results.items() if name in found}
        if not rows:
            continue
        parts += [
            f"## {title} (`{name}`)\n",
            f"| arm | seeds | mean | difference to {first} | p | significant |",
            "|---|---:|---:|---:|---:|---|",
        ]
        for arm, row in rows.items():
            difference = "–" if arm == first else f"{row['difference']:+.3f} {interval_text(row['difference_interval'])}"
            p = "–" if arm == first else f"{row['p']:.3f}"
            mark = "–" if arm == first else "yes" if row["significant"] else "no"
            parts.append(
                f"| {arm} | {len(row['seeds'])} | {row['mean']:.3f} {interval_text(row['interval'])} | {difference} | {p} | {mark} |"
            )
        parts.append("\n" + in_words(rows, first, title) + "\n")
    return "\n".join(parts)


def interval_text(interval: Sequence[float]) -> str:
    """Both ends, or nothing for a single seed."""
    low, high = interval
    return f"[{low:.3f}, {high:.3f}]" if np.isfinite(low) else ""


def in_words(rows: Mapping[str, Mapping[str, Any]], first: str, title: str) -> str:
    """Which arms are higher, lower, or not told apart."""
    groups: dict[str, list[str]] = {"higher": [], "lower": [], "not told apart": []}
    for arm, row in rows.items():
        if arm != first:
            groups["not told apart" if not row["significant"] else "higher" if row["difference"] > 0 else "lower"].append(arm)
    found = [f"{name}: {', '.join(arms)}" for name, arms in groups.items() if arms]
    return f"In words: {title}, compared with {first}: {'; '.join(found) if found else 'no other arm'}."
