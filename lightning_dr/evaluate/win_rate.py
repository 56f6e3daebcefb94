"""``lightning-dr evaluate win_rate``: how often an evaluator prefers the answers of one policy to those of another."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..datamodules.sources import RowProblem, parse_prompt
from ..experiments.output import write_results
from ..experiments.statistics import bootstrap
from ..prompts import render_conversation
from ..records import Message, Prompt
from ..roles import Evaluator
from . import preference
from .evaluator import attached, fill
from .files import check_counts
from .journal import Journal, alone_in
from .judging import describe
from .model import default_folder, load_model, title_of
from .sets import ResponseSet
from .sources import Row, read_rows, text_of

RESAMPLES = 300
"""Each of them fits a regression."""
FORMS = "`messages` and `texts` (a file of `evaluate policy`), `instruction` and `output` (AlpacaEval), or `prompt` and `response` (IFEval)"


def win_rate(
    answers: str,
    against: str,
    model: str | None = None,
    round: int | None = None,  # noqa: A002
    evaluator: Evaluator | None = None,
    options: list[str] = [],  # noqa: B006
    max_rows: int | None = None,
    batch_size: int = 8,
    out: str | None = None,
    seed: int = 0,
) -> None:
    """Compare the answers of two policies to the same prompts with an evaluator, both orders shown.

    Writes ``pairs.jsonl`` with the scores of every pair as soon as it is judged, and at the end ``win_rate.json`` and ``win_rate.md``: the
    win rate, the length-controlled one and 95% bootstrap intervals over prompts. Called again, it goes on where it was stopped.

    Args:
        answers: File of answers: one that ``evaluate policy`` streamed, or an official file of AlpacaEval or IFEval.
        against: The same of the other policy. Prompts that are not in both are left out and counted.
        model: Folder of a run, or a training config, from which the evaluator takes its generator, verifier or base.
        round: Of a run: after which round. By default the last one that was saved; 0 is untrained.
        evaluator: Who judges; by default what scores the policy in the config.
        options: Options of ``lightning-dr fit`` for the config.
        max_rows: Only the first pairs.
        batch_size: Pairs that are judged together.
        out: Folder for the results; by default ``evaluation/…`` in the folder of the run, or in ``runs``.
        seed: Of all sampling.
    """
    check_counts(batch_size=batch_size, max_rows=max_rows)
    ours, theirs = read_answers(answers), read_answers(against)
    pairs = [pair(number, ours[key], theirs[key]) for number, key in enumerate(key for key in ours if key in theirs)][:max_rows]
    if not pairs:
        raise ValueError(f"`answers` and `against` must have prompts in common, but {answers} and {against} have none.")
    settings = {
        "evaluator": describe(evaluator),
        "seed": seed,
        "batch_size": batch_size,
        "answers": [digest_of(answers), digest_of(against)],
    }
    module, identity = load_model(model, "generator", round, options)
    part = attached(evaluator, module)
    folder = Path(out or default_folder(model, f"win-rate-{type(part).__name__}", identity))
    with alone_in(folder):
        journal = Journal(folder / "pairs.jsonl", settings | {"model": identity})
        fill(journal, part, pairs, True, "pairs", batch_size, seed, module.device)
        result = summarise(pairs, [journal.entries[one.id]["scores"] for one in pairs])
        result |= {"left_out": len(ours) + len(theirs) - 2 * len(set(ours) & set(theirs))}
        title = f"{answers} against {against}, judged by {type(part).__name__}{title_of(model, identity)}"
        write_results(folder, "win_rate", {"title": title, **result}, markdown(title, result))
    print(f"Written to {folder}/")


def read_answers(path: str) -> dict[str, tuple[Prompt, str]]:
    """The first answer to each prompt, by the text of the prompt; of a prompt that comes again, that of its first row.

    Raises:
        FileNotFoundError: If the file is not there.
        ValueError: If a row is in none of the forms that are known; the message names the row.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"`answers` and `against` must be files, got {path!r}, which is not there.")
    found: dict[str, tuple[Prompt, str]] = {}
    for number, (where, row) in enumerate(read_rows(path)):
        if "settings" in row:
            continue
        try:
            messages, text = read_answer(row)
        except RowProblem as problem:
            raise ValueError(f"{where}: {problem}. A row must have {FORMS}.") from problem
        if text is not None:
            found.setdefault(render_conversation(messages), (Prompt(id=str(number), messages=messages), text))
    return found


def read_answer(row: Row) -> tuple[tuple[Message, ...], str | None]:
    """Prompt and first answer of a row; ``None`` where the policy gave none."""
    if "messages" in row:
        texts = row.get("texts")
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise RowProblem(f"`texts` must be a list of texts, got {str(texts)[:40]!r}")
        return parse_prompt(row["messages"], "messages"), texts[0] if texts else None
    names = ("instruction", "output") if "instruction" in row else ("prompt", "response")
    if not isinstance(row.get(names[1]), str):
        raise RowProblem(f"`{names[1]}` must be text; the columns are {sorted(row)}")
    return parse_prompt(text_of(row, names[0]), names[0]), row[names[1]]


def pair(number: int, ours: tuple[Prompt, str], theirs: tuple[Prompt, str]) -> ResponseSet:
    """The two answers to a prompt."""
    prompt = ours[0]
    return ResponseSet(id=f"{number}:{prompt.id}", group="", prompt=prompt, responses=(ours[1], theirs[1]), quality=(math.nan, math.nan))


def preference_of(orders: Sequence[Sequence[float | None]]) -> list[float]:
    """How a pair is decided in each order: 1 for the first answer, 0 for the second, a half for a tie, NaN where it was not judged."""
    return [math.nan if None in scores else (1 + np.sign(scores[0] - scores[1])) / 2 for scores in orders]  # type: ignore[operator]


def summarise(pairs: Sequence[ResponseSet], scores: Sequence[Sequence[Sequence[float | None]]]) -> dict[str, Any]:
    """Win rates with their intervals, and what may explain them."""
    decided = [preference_of(orders) for orders in scores]
    wins = np.array([np.mean(orders) for orders in decided])
    lengths = np.array([[len(text) for text in one.responses] for one in pairs], dtype=float)

    def rates(rows: NDArray[np.intp]) -> list[float]:
        return [preference.win_rate(wins[rows]), preference.length_controlled_win_rate(wins[rows], lengths[rows, 0], lengths[rows, 1])]

    found = rates(np.arange(len(pairs)))
    low, high = bootstrap(rates, len(pairs), resamples=RESAMPLES)
    names = ("win rate", "length-controlled win rate")
    measures = zip(names, found, low, high, strict=True)
    judged = wins[~np.isnan(wins)]
    both = [orders for orders in decided if len(orders) == 2 and not np.isnan(orders).any()]
    return {
        "pairs": len(pairs),
        "unjudged": int(np.isnan(wins).sum()),
        "measures": {name: {"mean": mean, "low": float(start), "high": float(end)} for name, mean, start, end in measures},
        "ties": float(np.mean(judged == 0.5)) if len(judged) else None,
        "agreement_of_orders": float(np.mean([one == other for one, other in both])) if both else None,
        "mean_characters": lengths.mean(0).tolist(),
    }


def digest_of(path: str) -> str:
    """A hash of a file."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def markdown(title: str, result: dict[str, Any]) -> str:
    """A table."""
    one, other = result["mean_characters"]
    lines = [f"# {title}", "", "| measure | value | 95% interval |", "|---|---:|---:|"]
    lines += [f"| {name} | {v['mean']:.3f} | {v['low']:.3f} to {v['high']:.3f} |" for name, v in result["measures"].items()]
    lines += ["", f"{result['pairs']} pairs, {result['unjudged']} of them not judged and left out."]
    if result["ties"] is not None:
        lines[-1] += f" {result['ties']:.1%} are undecided."
    if result["agreement_of_orders"] is not None:
        lines[-1] += f" Both orders were decided alike in {result['agreement_of_orders']:.1%}."
    lines += [
        f"Answers have {one:.0f} characters on average, the others {other:.0f}. {result['left_out']} answers have no counterpart.",
        "",
    ]
    return "\n".join(lines)
