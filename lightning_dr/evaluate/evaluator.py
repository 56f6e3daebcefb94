"""``lightning-dr evaluate evaluator``: how well an evaluator orders responses whose order is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..evaluators import LengthEvaluator
from ..experiments.output import write_results
from ..gap import MeanInterval
from ..modules.evaluators import DynamicRubric
from ..roles import Evaluator, attach
from .files import check_counts, choose, identify, parse_files
from .journal import Journal, alone_in
from .judging import describe, fill
from .model import NoModel, default_folder, load_model, title_of
from .rankings import BENCHMARKS
from .sets import Benchmark, ResponseSet, Scored, tabulate, with_intervals


def evaluator(
    benchmarks: list[str],
    model: str | None = None,
    round: int | None = None,  # noqa: A002
    evaluator: Evaluator | None = None,
    options: list[str] = [],  # noqa: B006
    max_rows: int | None = None,
    batch_size: int = 8,
    out: str | None = None,
    seed: int = 0,
) -> None:
    """Measure an evaluator on benchmarks of ranked responses.

    Writes ``<benchmark>.jsonl`` with the scores of every row as soon as it is judged, and at the end ``evaluator.json`` and
    ``evaluator.md``: what the benchmark's authors report, with 95% bootstrap intervals over rows, the rows that could not be judged, and
    beside it what preferring the longer answer gets. Called again, it goes on where it was stopped.

    Args:
        benchmarks: Such as ``[llmbar=Natural.json, rm_bench]``: a local file in the official format, or the name alone for the Hub. There
            are reward_bench, reward_bench_2, rm_bench, judge_bench, llmbar, ppe_human, ppe_correctness, and nectar for ranked lists.
        model: Folder of a run, or a training config, from which the evaluator takes its generator, verifier or base.
        round: Of a run: after which round. By default the last one that was saved; 0 is untrained.
        evaluator: What to measure; by default what scores the policy in the config: the generator's rubrics, or ``model.evaluator``.
        options: Options of ``lightning-dr fit`` for the config, such as ``--model.rounds.num_rubrics=4``.
        max_rows: Only the first rows of each benchmark.
        batch_size: Rows that are judged together.
        out: Folder for the results; by default ``evaluation/…`` in the folder of the run, or in ``runs``.
        seed: Of all sampling.
    """
    check_counts(batch_size=batch_size, max_rows=max_rows)
    chosen = choose(benchmarks, BENCHMARKS)
    read = {benchmark.name: read_sets(benchmark, paths, max_rows) for benchmark, paths in chosen}
    settings: dict[str, Any] = {"evaluator": describe(evaluator), "seed": seed, "batch_size": batch_size}
    module, identity = load_model(model, "generator", round, options)
    part = attached(evaluator, module)
    folder = Path(out or default_folder(model, f"evaluator-{type(part).__name__}", identity))
    results = {}
    with alone_in(folder):
        for benchmark, paths in chosen:
            journal = Journal(folder / f"{benchmark.name}.jsonl", settings | {"model": identity} | identify(benchmark, paths))
            fill(journal, part, read[benchmark.name], benchmark.both_orders, benchmark.title, batch_size, seed, module.device)
            results[benchmark.name] = summarise(benchmark, read[benchmark.name], journal)
        title = type(part).__name__ + title_of(model, identity)
        write_results(folder, "evaluator", {"evaluator": title, "benchmarks": results}, markdown(title, results))
    print(f"Written to {folder}/")


def read_sets(benchmark: Benchmark, paths: Sequence[str], max_rows: int | None) -> list[ResponseSet]:
    """All response sets of a benchmark; their ids say which row they are."""
    return [replace(one, id=f"{number}:{one.id}") for number, one in parse_files(benchmark, paths, benchmark.read, max_rows)]


def attached(evaluator: Evaluator | None, module: Any) -> Evaluator:
    """The evaluator that is asked for, or the module's own."""
    part = evaluator
    if part is None:
        if isinstance(module, NoModel):
            raise ValueError("`evaluator` or `model` must be given: name a run or a training config, or an evaluator that needs neither.")
        if module.evaluator is not None:
            return module.evaluator
        part = DynamicRubric(num_rubrics=module.config.num_rubrics)
    attach(part, module)
    return part


def summarise(benchmark: Benchmark, sets: Sequence[ResponseSet], journal: Journal) -> dict[str, Any]:
    """What is reported of a benchmark."""
    entries = [journal.entries[one.id] for one in sets]
    scored = [scored_set(one, entry["scores"]) for one, entry in zip(sets, entries, strict=True)]
    lengths = LengthEvaluator().scores([], [one.responses for one in sets])
    longer = [scored_set(one, [scores.double().tolist()]) for one, scores in zip(sets, lengths, strict=True)]
    unjudged = sum(any(math.isnan(score) for order in one.orders for score in order) for one in scored)
    seconds = sum(entry["seconds"] for entry in entries)
    measures = with_intervals(tabulate(scored, benchmark), benchmark.report)
    return {
        "title": benchmark.title,
        "rows": len(sets),
        "unjudged": unjudged,
        "rows_per_second": len(sets) / seconds if seconds else None,
        "measures": {name: value._asdict() for name, value in measures.items()},
        "longer_answer": benchmark.report(tabulate(longer, benchmark)),
    }


def scored_set(one: ResponseSet, orders: Sequence[Sequence[float | None]]) -> Scored:
    """A response set with its scores as they are in JSON."""
    scores = tuple(tuple(math.nan if score is None else score for score in order) for order in orders)
    return Scored(id=one.id, group=one.group, quality=one.quality, pairs=one.pairs, orders=scores)


def markdown(title: str, results: dict[str, dict[str, Any]]) -> str:
    """A table for each benchmark."""
    lines = [f"# {title}", ""]
    for result in results.values():
        rate = f", {result['rows_per_second']:,.2f} rows a second" if result["rows_per_second"] else ""
        lines += [
            f"## {result['title']}",
            "",
            f"{result['rows']} rows, {result['unjudged']} of them not judged and left out{rate}.",
            "",
            "| measure | value | 95% interval | longer answer |",
            "|---|---:|---:|---:|",
        ]
        for name, value in result["measures"].items():
            lines.append(f"| {name} | {shown(value)} | {result['longer_answer'][name]:.3f} |")
        lines.append("")
    return "\n".join(lines)


def shown(value: dict[str, Any]) -> str:
    """A mean and its interval as two cells."""
    interval = MeanInterval(**value)
    return f"{interval.mean:.3f} | {interval.low:.3f} to {interval.high:.3f}"
