"""``lightning-dr crossplay``: the policy of round t, scored by the evaluator of round s."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..roles import ReferenceRanking
from .grid import Grid, evaluate_grid
from .output import write_results
from .plots import plot_heat_maps
from .runs import RunFolder
from .statistics import bootstrap_mean

SHOWN = {
    "gap": "Δgap on the responses",
    "accuracy": "pairs of responses ordered right",
    "anchor_accuracy": "anchor pairs ordered right",
}


def crossplay(
    run: str,
    rounds: list[int] | None = None,
    num_rounds: int = 6,
    prompts: int = 64,
    reference: ReferenceRanking | None = None,
    out: str | None = None,
    seed: int = 0,
) -> None:
    """Score the policies of some rounds with the evaluators of all of them, on held-out prompts.

    Writes ``crossplay.json``, ``crossplay.md`` and ``crossplay.png``: Δgap and pairwise accuracy with 95% bootstrap intervals over prompts.

    Args:
        run: Folder of a run with saved adapters.
        rounds: Which rounds; 0 is untrained. By default ``num_rounds`` of the saved ones, evenly spread.
        num_rounds: See ``rounds``.
        prompts: Held-out prompts.
        reference: What orders the responses; by default what the run's ``GapMonitor`` has. Without any, only the anchor lists are measured.
        out: Folder for the results; by default ``crossplay`` in the folder of the run.
        seed: Of all sampling.
    """
    grid = evaluate_grid(RunFolder(run), rounds, num_rounds, prompts, reference, seed)
    folder = Path(out or Path(run) / "crossplay")
    cells = {name: intervals(grid, name) for name in SHOWN if not np.isnan(grid.values[name]).all()}
    staleness = {name: staleness_of(grid, name) for name in cells}
    result = {"run": run, "policies": grid.policies, "evaluators": grid.generators, "prompts": grid.values["gap"].shape[-1]}
    write_results(folder, "crossplay", result | {"cells": cells, "staleness": staleness}, markdown(grid, cells, staleness))
    plot_heat_maps(cells, SHOWN, grid.policies, grid.generators, folder / "crossplay.png")
    print(f"Written to {folder}/: crossplay.json, crossplay.md, crossplay.png")


def intervals(grid: Grid, name: str) -> list[list[list[float]]]:
    """Mean and ends of its interval of each policy (row) under each evaluator (column)."""
    return [[list(bootstrap_mean(values)[:3]) for values in row] for row in grid.values[name]]


def staleness_of(grid: Grid, name: str) -> dict[str, Any]:
    """How much an evaluator of the policy's own round is better than older and than newer ones: paired by prompt, mean over policies."""
    values, found = grid.values[name], {}
    for kind in ("older", "newer"):
        differences = [
            values[t, t] - values[t, s]
            for t, policy in enumerate(grid.policies)
            for s, generator in enumerate(grid.rounds)
            # An untrained policy has no older evaluator; the untrained evaluator is not a stale but a missing one.
            if generator > 0 and policy > 0 and (generator < policy if kind == "older" else generator > policy)
        ]
        if differences:
            interval = bootstrap_mean(np.nanmean(np.stack(differences), axis=0))
            found[kind] = [interval.mean, interval.low, interval.high]
    return found


def markdown(grid: Grid, cells: dict[str, list[list[list[float]]]], staleness: dict[str, Any]) -> str:
    """A table per measure, and what it says about staleness."""
    parts = [
        "# Policies (rows) scored by evaluators (columns)\n",
        f"{grid.values['gap'].shape[-1]} prompts; 95% bootstrap intervals over prompts.\n",
    ]
    for name, rows in cells.items():
        parts += [f"## {SHOWN[name]}\n", "| policy of round | " + " | ".join(f"evaluator {s}" for s in grid.generators) + " |"]
        parts.append("|---:|" + "---:|" * len(grid.generators))
        for policy, row in zip(grid.policies, rows, strict=True):
            parts.append(f"| {policy} | " + " | ".join(f"{mean:.3f} [{low:.3f}, {high:.3f}]" for mean, low, high in row) + " |")
        parts.append("")
        for kind, (mean, low, high) in staleness[name].items():
            verb = "more" if low > 0 else "less" if high < 0 else "neither more nor less (the interval holds 0)"
            parts.append(
                f"In words: the evaluator of the policy's own round gives {verb} than {kind} ones: {mean:+.3f} [{low:.3f}, {high:.3f}].\n"
            )
    return "\n".join(parts)
