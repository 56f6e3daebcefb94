"""``lightning-dr diagnose``: does the generator's objective bound the score gap, as Eq. 45 has it?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..roles import ReferenceRanking
from .bound import Bound, largest_coefficient, misordered, residual, tightest
from .grid import Grid, evaluate_grid
from .output import write_results
from .plots import plot_objective_against_gap
from .runs import RunFolder
from .statistics import Values, bootstrap

RESAMPLES = 500
LATE = 1 / 3
"""Share of the rounds, the last ones, that are late training."""
STATISTICS = ("tightest_coefficient", "slack_removed", "largest_coefficient", "misordered")
EXPLANATION = """
*tightest c*: leaves the least slack. *slack removed*: of that of a constant bound (c = 0). *largest c*: leaves as much as a constant.
*misordered*: pairs of generators on one policy that J and Δgap order differently; *clear*: both differences have intervals without 0.
"""


def diagnose(
    run: str,
    variants: list[str] = [],  # noqa: B006
    rounds: list[int] | None = None,
    num_rounds: int = 6,
    prompts: int = 64,
    anchor_weight: float = 1.0,
    reference: ReferenceRanking | None = None,
    out: str | None = None,
    seed: int = 0,
) -> None:
    """Measure whether Eq. 45 holds: Δgap of several generators of a run on the responses of its policies, against their objective.

    Writes ``diagnose.json``, ``diagnose.md`` and ``diagnose.png``, with 95% bootstrap intervals over held-out prompts.

    Args:
        run: Folder of a run with saved adapters.
        variants: Folders of more runs, such as those that were trained on discriminability and on the anchors alone: their generators are
            judged on the same responses, first apart, then together with the run's own. ``name=folder`` gives one a name.
        rounds: Which rounds; 0 is untrained. By default ``num_rounds`` of the saved ones, evenly spread.
        num_rounds: See ``rounds``.
        prompts: Held-out prompts.
        anchor_weight: λ of the objective J_disc + λ J_anchor.
        reference: The pair distribution P orders the responses by it: true quality, verifiable correctness, another evaluator. By default
            what the run's ``GapMonitor`` has; without any, P are the pairs of the anchor lists, by rank.
        out: Folder for the results; by default ``diagnose`` in the folder of the run.
        seed: Of all sampling.
    """
    others = dict(named(variant) for variant in variants)
    grid = evaluate_grid(RunFolder(run), rounds, num_rounds, prompts, reference, seed, others)
    measure = "anchor_gap" if np.isnan(grid.values["gap"]).all() else "gap"
    grid = grid.on(np.flatnonzero(usable(grid, measure)))
    if grid.values[measure].shape[-1] < 2:
        raise ValueError(
            f"`prompts` must hold at least two for which Δgap, J_disc and J_anchor exist, got {prompts} of which too few have them."
        )
    result: dict[str, Any] = {
        "run": run,
        "pairs": "of the anchor lists, by rank" if measure == "anchor_gap" else "of the responses, by the reference ranking",
        "prompts": grid.values[measure].shape[-1],
        "anchor_weight": anchor_weight,
        "rounds": round_rows(grid, measure, anchor_weight),
        "sets": {},
    }
    owns = [number for number, name in enumerate(grid.generators) if " " not in name]
    sets = {"own generators": owns}
    for name in others:
        sets[f"generators of {name}"] = [number for number, label in enumerate(grid.generators) if label.startswith(f"{name} ")]
    if others:
        sets["all together"] = list(range(len(grid.generators)))
    late = [t for t in range(len(grid.policies)) if t >= len(grid.policies) * (1 - LATE)]
    for name, columns in sets.items():
        for when, rows in (("all rounds", list(range(len(grid.policies)))), ("late training", late)):
            if len(columns) > 1 and rows:
                result["sets"][f"{name}, {when}"] = check(grid, measure, anchor_weight, rows, columns)
    folder = Path(out or Path(run) / "diagnose")
    write_results(folder, "diagnose", result, markdown(result))
    gap, objective = means(grid, measure, anchor_weight)
    groups = {name: columns for name, columns in sets.items() if name != "all together"}
    plot_objective_against_gap(gap, objective, grid.policies, groups, folder / "diagnose.png")
    print(f"Written to {folder}/: diagnose.json, diagnose.md, diagnose.png")


def named(variant: str) -> tuple[str, RunFolder]:
    """``name=folder``, or a folder that is its own name."""
    name, _, folder = variant.rpartition("=")
    return (name or "/".join(Path(folder).parts[-2:])).replace(" ", "_"), RunFolder(folder)


def usable(grid: Grid, measure: str) -> NDArray[np.bool_]:
    """Prompts that have all three numbers under every policy and generator ``[N]``."""
    found = np.stack([grid.values[name] for name in (measure, "j_disc", "j_anchor")])
    return np.asarray(~np.isnan(found).any((0, 1, 2)))


def means(grid: Grid, measure: str, anchor_weight: float) -> tuple[Values, Values]:
    """Δgap and objective of each generator on each policy ``[T, S]``."""
    objective = grid.values["j_disc"] + anchor_weight * grid.values["j_anchor"]
    return grid.values[measure].mean(-1), objective.mean(-1)


def round_rows(grid: Grid, measure: str, anchor_weight: float) -> list[dict[str, Any]]:
    """The measures of every generator on every policy, with the residual at the run's tightest coefficient."""
    gap, objective = means(grid, measure, anchor_weight)
    terms = {name: grid.values[name].mean(-1) for name in ("j_disc", "j_anchor")}
    eta = residual(gap, terms["j_disc"], tightest(gap, objective).coefficient)
    return [
        {"policy": policy, "generator": generator}
        | {name: float(values[t, s]) for name, values in {"gap": gap, **terms, "residual": eta}.items()}
        for t, policy in enumerate(grid.policies)
        for s, generator in enumerate(grid.generators)
    ]


def check(grid: Grid, measure: str, anchor_weight: float, rows: Sequence[int], columns: Sequence[int]) -> dict[str, Any]:
    """Eq. 45 on some policies and generators, each number with its interval over prompts."""
    gap_all = grid.values[measure][np.ix_(rows, columns)]
    objective_all = (grid.values["j_disc"] + anchor_weight * grid.values["j_anchor"])[np.ix_(rows, columns)]

    def on(function: Any, prompts: Any = slice(None)) -> Any:
        return function(gap_all[..., prompts].mean(-1), objective_all[..., prompts].mean(-1))

    values = on(statistics)
    low, high = bootstrap(lambda prompts: on(statistics, prompts), gap_all.shape[-1], RESAMPLES)
    with_intervals = {name: {"value": float(values[k]), "interval": [float(low[k]), float(high[k])]} for k, name in enumerate(STATISTICS)}
    best: Bound = on(tightest)
    largest: Bound = on(largest_coefficient)
    resolved = resolved_pairs(gap_all, objective_all)
    wrong = on(misordered)
    pairs = ~np.isnan(wrong)
    return with_intervals | {
        "intercepts_at_tightest": {str(grid.policies[t]): float(value) for t, value in zip(rows, best.intercepts, strict=True)},
        "intercepts_at_largest": {str(grid.policies[t]): float(value) for t, value in zip(rows, largest.intercepts, strict=True)},
        "pairs": int(pairs.sum()),
        "resolved_pairs": int((pairs & resolved).sum()),
        "resolved_misordered": int(wrong[pairs & resolved].sum()),
        "misordered_by_round": {str(grid.policies[t]): float(np.nanmean(values)) for t, values in zip(rows, wrong, strict=True)},
    }


def statistics(gap: Values, objective: Values) -> Values:
    """The numbers that have an interval, in the order of ``STATISTICS``, of ``[T, S]``."""
    best = tightest(gap, objective)
    largest = largest_coefficient(gap, objective)
    return np.array([best.coefficient, slack_removed(gap, best), largest.coefficient, np.nanmean(misordered(gap, objective))])


def slack_removed(gap: Values, best: Bound) -> float:
    """Share of the slack of a constant bound that the tightest one removes: 0 the objective says nothing, 1 it says all."""
    constant = float((gap - gap.min(1, keepdims=True)).mean())
    return 1 - best.slack / constant if constant > 0 else math.nan


def resolved_pairs(gap: Values, objective: Values) -> NDArray[np.bool_]:
    """Which pairs of generators differ clearly, in Δgap and in the objective: both intervals exclude 0 (bootstrap over prompts).

    Args:
        gap: ``[T, S, N]``.
        objective: ``[T, S, N]``.

    Returns:
        ``[T, S, S]``.
    """
    rng = np.random.default_rng(0)
    size = gap.shape[-1]
    weights = rng.multinomial(size, np.full(size, 1 / size), size=RESAMPLES).T / size

    def clear(values: Values) -> NDArray[np.bool_]:
        resampled = values @ weights
        low, high = np.percentile(resampled[:, :, None] - resampled[:, None, :], [2.5, 97.5], axis=-1)
        return (low > 0) | (high < 0)

    return clear(gap) & clear(objective)


def markdown(result: dict[str, Any]) -> str:
    """The numbers and what they say."""
    parts = [
        "# Does the objective bound the score gap (Eq. 45)?\n",
        f"Run `{result['run']}`; {result['prompts']} prompts; pairs {result['pairs']};",
        f"objective J = J_disc + {result['anchor_weight']:g} J_anchor. 95% bootstrap intervals over prompts.",
        "The bound is Δgap ≥ c J + ε_t with one c = β = γρ for all and an intercept for each policy.\n",
        "| generators, rounds | tightest c | slack removed | largest c | pairs misordered | clear pairs misordered |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, found in result["sets"].items():
        cells = [value_text(found[key]) for key in STATISTICS]
        parts.append(f"| {name} | {' | '.join(cells)} | {found['resolved_misordered']} of {found['resolved_pairs']} |")
    parts.append(EXPLANATION)
    parts += ["| policy | ε_t at the tightest c | ε_t at the largest c | pairs misordered |", "|---:|---:|---:|---:|"]
    first = next(iter(result["sets"].values()))
    for policy, epsilon in first["intercepts_at_tightest"].items():
        parts.append(
            f"| {policy} | {epsilon:.3f} | {first['intercepts_at_largest'][policy]:.3f} | {first['misordered_by_round'][policy]:.2f} |"
        )
    parts += ["", "| policy | generator | Δgap | J_disc | J_anchor | η_res |", "|---:|---|---:|---:|---:|---:|"]
    for row in result["rounds"]:
        numbers = " | ".join(f"{row[key]:.3f}" for key in ("gap", "j_disc", "j_anchor", "residual"))
        parts.append(f"| {row['policy']} | {row['generator']} | {numbers} |")
    parts += ["", "## In words\n", *(f"- {sentence(name, found)}" for name, found in result["sets"].items())]
    return "\n".join(parts) + "\n"


def value_text(found: dict[str, Any]) -> str:
    """A number with its interval."""
    low, high = found["interval"]
    return f"{found['value']:.3f} [{low:.3f}, {high:.3f}]"


def sentence(name: str, found: dict[str, Any]) -> str:
    """Where the condition held, and where it failed."""
    removed, low = found["slack_removed"]["value"], found["tightest_coefficient"]["interval"][0]
    wrong, clear = found["resolved_misordered"], found["resolved_pairs"]
    if not low > 0:
        text = "not shown to hold: the coefficient that fits best is not clearly above 0, so a higher objective promises no larger gap"
    elif clear and wrong / clear > 0.1:
        text = f"it fails in part: a higher objective goes with a larger gap on the whole (it removes {removed:.0%} of the slack)"
    else:
        text = f"it holds as far as can be told: the objective removes {removed:.0%} of the slack of a constant bound"
    failed = [policy for policy, share in found["misordered_by_round"].items() if share >= 0.5]
    where = f"; on the policies of rounds {', '.join(failed)} at least half of the pairs are ordered the wrong way" if failed else ""
    return f"{name}: {text}; of {clear} clear pairs {wrong} are ordered the wrong way{where}."
