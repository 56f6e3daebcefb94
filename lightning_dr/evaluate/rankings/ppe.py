"""PPE (arXiv 2410.14872): human preferences, and answers whose correctness is known."""

from __future__ import annotations

import math

from ...datamodules.sources import RowFiltered, RowProblem, parse_prompt
from ...records import Prompt
from ..sets import ResponseSet, Scored, Table, accuracy, best
from ..sources import HubData, Row, id_of, text_of

WINNERS = {"model_a": (1.0, 0.0), "model_b": (0.0, 1.0)}
TIES = ("tie", "tie (bothbad)")
SOURCES = ("MMLU-Pro", "MATH", "GPQA", "IFEval", "MBPP-Plus")


class PPEHuman:
    """Rows with ``prompt``, ``response_1``, ``response_2``, ``winner`` and ``language``; ties are left out, as the authors do."""

    name = "ppe_human"
    title = "PPE, human preference"
    hub = {"test": HubData("lmarena-ai/PPE-Human-Preference-V1", "test")}
    both_orders = False

    def read(self, row: Row, source: str) -> ResponseSet:
        """See :meth:`..sets.Benchmark.read`."""
        winner = text_of(row, "winner")
        if winner in TIES:
            raise RowFiltered("a tie for the people who chose")
        if winner not in WINNERS:
            raise RowProblem(f"`winner` must be one of {[*WINNERS, *TIES]}, got {winner!r}")
        text = text_of(row, "prompt")
        prompt = Prompt(id=id_of(row, "question_id", text), messages=parse_prompt(text))
        responses = (text_of(row, "response_1"), text_of(row, "response_2"))
        group = "English" if row.get("language") == "English" else "other languages"
        return ResponseSet(id=prompt.id, group=group, prompt=prompt, responses=responses, quality=WINNERS[winner])

    def numbers(self, scored: Scored) -> dict[str, float]:
        """Whether the preferred one is scored higher."""
        return {"higher": accuracy(scored, tie=0.0), "accuracy": accuracy(scored)}

    def report(self, table: Table) -> dict[str, float]:
        """Accuracy, overall and by language, then with ties counted half."""
        found = {"accuracy": table.mean("higher")} | {f"{name}: accuracy": table.mean("higher", [name]) for name in table.names}
        return found | {"accuracy, ties half": table.mean("accuracy")}


class PPECorrectness:
    """Rows with ``prompt``, ``response_1``, … , ``scores`` (right or wrong) and ``sampled_conflict_pairs``.

    All answers to a question, 32 in the official files, are one response set.
    """

    name = "ppe_correctness"
    title = "PPE, correctness"
    hub = {source: HubData(f"lmarena-ai/PPE-{source}-Best-of-K", "train") for source in SOURCES}
    both_orders = False

    def read(self, row: Row, source: str) -> ResponseSet:
        """See :meth:`..sets.Benchmark.read`."""
        scores, pairs = row.get("scores"), row.get("sampled_conflict_pairs")
        if not isinstance(scores, list) or not scores or not all(score in (0, 1) for score in scores):
            raise RowProblem(f"`scores` must be a list of right or wrong, got {str(scores)[:40]!r}")
        if not isinstance(pairs, list) or not all(is_conflict(pair, scores) for pair in pairs):
            raise RowProblem(f"`sampled_conflict_pairs` must be pairs of a right and a wrong response, got {str(pairs)[:40]!r}")
        text = text_of(row, "prompt")
        prompt = Prompt(id=id_of(row, "question_id", text), messages=parse_prompt(text))
        responses = tuple(text_of(row, f"response_{number}") for number in range(1, len(scores) + 1))
        if not pairs:
            raise RowFiltered("no pair of a right and a wrong answer")
        counted = tuple((int(one), int(other)) for one, other in pairs)
        return ResponseSet(
            id=f"{source}:{prompt.id}", group=source, prompt=prompt, responses=responses, quality=tuple(map(float, scores)), pairs=counted
        )

    def numbers(self, scored: Scored) -> dict[str, float]:
        """The sampled pairs, and whether the answer with the highest score is right."""
        found = {"higher": accuracy(scored, tie=0.0), "best": best(scored), "accuracy": accuracy(scored)}
        return dict.fromkeys(found, math.nan) if any(map(math.isnan, found.values())) else found

    def report(self, table: Table) -> dict[str, float]:
        """Accuracy on the sampled pairs and best-of-K, the mean over sources and each of them; then with ties counted half."""
        found = {}
        for title, name in (("accuracy", "higher"), ("best of K is right", "best"), ("accuracy, ties half", "accuracy")):
            means = {source: table.mean(name, [source]) for source in table.names}
            found[title] = sum(means.values()) / len(means)
            if len(means) > 1 and name != "accuracy":
                found |= {f"{source}: {title}": value for source, value in means.items()}
        return found


def is_conflict(pair: object, scores: list[int]) -> bool:
    """Whether a pair is two numbers of responses of which one is right and one wrong."""
    known = range(len(scores))
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and all(isinstance(one, int) and one in known for one in pair)
        and scores[pair[0]] != scores[pair[1]]
    )
