"""``lightning-dr evaluate policy``: a policy's answers to the questions of benchmarks, in their official files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..experiments.output import write_results
from ..modules import CoEvolutionModule
from ..modules.backbone import ContextError
from ..modules.random_state import seeded
from ..records import Completion
from .files import check_counts, choose, identify, parse_files
from .journal import Journal, alone_in, waiting_batches
from .model import default_folder, load_model, title_of
from .questions import BENCHMARKS
from .questions.base import Answer, Question, QuestionBenchmark
from .sets import Table, with_intervals


def policy(
    model: str,
    benchmarks: list[str],
    round: int | None = None,  # noqa: A002
    samples: int = 1,
    max_new_tokens: int | None = None,
    temperature: float | None = None,
    name: str | None = None,
    options: list[str] = [],  # noqa: B006
    max_rows: int | None = None,
    batch_size: int = 8,
    out: str | None = None,
    seed: int = 0,
) -> None:
    """Let a policy answer the questions of benchmarks.

    Writes ``<benchmark>.jsonl`` with every answer as soon as it is there, and at the end the official answer files, ready for their
    judges, and ``policy.json`` and ``policy.md`` with what can be checked without a judge: the mean over the samples of a question (AVG@n)
    and a 95% bootstrap interval over questions. Called again, it goes on where it was stopped.

    Args:
        model: Folder of a run, or a training config, whose base then answers.
        benchmarks: Such as ``[gsm8k=test.jsonl, ifeval]``: a local file in the official format, or the name alone for the Hub. There are
            alpaca_eval, arena_hard, wild_bench, writing_bench, ifeval, gsm8k.
        round: Of a run: after which round. By default the last one that was saved; 0 is the base.
        samples: Answers to each question, n.
        max_new_tokens: Of an answer; by default what the config has for the policy.
        temperature: Of sampling; by default what the config has for the policy. Near 0 it is greedy.
        name: What the official files call the policy.
        options: Options of ``lightning-dr fit`` for the config, such as ``--model.backbone.name_or_path=…``.
        max_rows: Only the first questions of each benchmark.
        batch_size: Questions that are answered together.
        out: Folder for the results; by default ``evaluation/…`` in the folder of the run, or in ``runs``.
        seed: Of all sampling.
    """
    check_counts(batch_size=batch_size, samples=samples, max_rows=max_rows)
    chosen = choose(benchmarks, BENCHMARKS)
    read = {benchmark.name: read_questions(benchmark, paths, max_rows) for benchmark, paths in chosen}
    for benchmark, _ in chosen:
        if hasattr(benchmark, "ready"):
            benchmark.ready()
    module, identity = load_model(model, "policy", round, options)
    assert isinstance(module, CoEvolutionModule)
    given: dict[str, Any] = {"max_new_tokens": max_new_tokens, "temperature": temperature}
    module.policy.sampling = replace(module.policy.sampling, **{key: value for key, value in given.items() if value is not None})
    settings = {"model": identity, "sampling": str(module.policy.sampling), "samples": samples, "seed": seed, "batch_size": batch_size}
    folder = Path(out or default_folder(model, "policy", identity))
    called = name or f"{Path(model).resolve().name.removesuffix('.yaml')}" + (f"-round-{identity['round']}" if "round" in identity else "")
    results = {}
    with alone_in(folder):
        for benchmark, paths in chosen:
            questions = read[benchmark.name]
            journal = Journal(folder / f"{benchmark.name}.jsonl", settings | identify(benchmark, paths))
            fill(journal, module, benchmark, questions, samples, batch_size, seed)
            results[benchmark.name] = summarise(benchmark, questions, journal, samples, folder, called)
        title = "Policy" + title_of(model, identity)
        write_results(folder, "policy", {"policy": title, "samples": samples, "benchmarks": results}, markdown(title, samples, results))
    print(f"Written to {folder}/")


def read_questions(benchmark: QuestionBenchmark, paths: Sequence[str], max_rows: int | None) -> list[Question]:
    """All questions of a benchmark; their ids say which row they are."""
    found = parse_files(benchmark, paths, lambda row, _: benchmark.read(row), max_rows)
    return [replace(one, id=f"{number}:{one.id}") for number, one in found]


def fill(
    journal: Journal,
    module: CoEvolutionModule,
    benchmark: QuestionBenchmark,
    questions: Sequence[Question],
    samples: int,
    batch_size: int,
    seed: int,
) -> None:
    """Answer the questions that the journal lacks."""
    for start, rows in waiting_batches(journal, [one.id for one in questions], batch_size, benchmark.title):
        began = time.perf_counter()
        with torch.no_grad(), seeded(seed + start, module.device):
            drawn = respond(module, [questions[row] for row in rows], samples)
        seconds = (time.perf_counter() - began) / len(rows)
        journal.add([entry(questions[row], group, seconds) for row, group in zip(rows, drawn, strict=True)])


def respond(module: CoEvolutionModule, questions: Sequence[Question], samples: int) -> list[tuple[Completion, ...]]:
    """Answers to each question; none to one that is longer than the model's context."""
    try:
        return list(module.policy.respond([one.prompt for one in questions], samples))
    except ContextError:
        if len(questions) == 1:
            return [()]
    return [respond(module, [one], samples)[0] for one in questions]


def entry(question: Question, group: Sequence[Completion], seconds: float) -> dict[str, Any]:
    """A line of the journal, which can be read without the benchmark's file."""
    return {
        "id": question.id,
        "messages": [dict(message) for message in question.prompt.messages],
        "texts": [one.text for one in group],
        "finished": [one.finished for one in group],
        "tokens": [len(one.token_ids) for one in group],
        "seconds": seconds,
    }


def summarise(
    benchmark: QuestionBenchmark, questions: Sequence[Question], journal: Journal, samples: int, folder: Path, called: str
) -> dict[str, Any]:
    """The official files, and what can be said without a judge. A question without an answer has empty ones."""
    entries = [journal.entries[one.id] for one in questions]
    answers = [Answer(question=one, texts=tuple(found["texts"] or [""] * samples)) for one, found in zip(questions, entries, strict=True)]
    files = benchmark.write(folder, answers, called)
    finished = [ended for found in entries for ended in found["finished"]]
    seconds = sum(found["seconds"] for found in entries)
    return {
        "title": benchmark.title,
        "questions": len(questions),
        "unanswered": sum(not found["texts"] for found in entries),
        "cut": finished.count(False) / len(finished) if finished else None,
        "questions_per_second": len(questions) / seconds if seconds else None,
        "measures": measures(benchmark, answers),
        "files": [str(file) for file in files],
    }


def measures(benchmark: QuestionBenchmark, answers: Sequence[Answer]) -> dict[str, dict[str, Any]]:
    """What a benchmark checks without a judge: the mean over questions, with its interval; empty if there is nothing."""
    rows = [benchmark.numbers(answer) for answer in answers]
    if not rows[0]:
        return {}
    values = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    table = Table(group=np.full(len(rows), ""), values=values, names=("",))
    return {name: value._asdict() for name, value in with_intervals(table, benchmark.report).items()}


def markdown(title: str, samples: int, results: dict[str, dict[str, Any]]) -> str:
    """A section for each benchmark."""
    lines = [f"# {title}", ""]
    for result in results.values():
        rate = f", {result['questions_per_second']:,.2f} questions a second" if result["questions_per_second"] else ""
        cut = f", {result['cut']:.1%} of the answers cut at the length limit" if result["cut"] is not None else ""
        lines += [
            f"## {result['title']}",
            "",
            f"{result['questions']} questions, {result['unanswered']} too long for the model and answered with nothing{cut}{rate}.",
            "",
        ]
        if result["measures"]:
            lines += [f"| measure, AVG@{samples} | value | 95% interval | questions |", "|---|---:|---:|---:|"]
            lines += [
                f"| {name} | {value['mean']:.3f} | {value['low']:.3f} to {value['high']:.3f} | {value['size']} |"
                for name, value in result["measures"].items()
            ]
            lines.append("")
        lines += [*(f"- `{file}`" for file in result["files"]), ""]
    return "\n".join(lines)
