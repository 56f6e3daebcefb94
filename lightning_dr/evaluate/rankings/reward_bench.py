"""RewardBench (arXiv 2403.13787): a chosen against a rejected response, in 23 subsets."""

from __future__ import annotations

import math

from ...datamodules.sources import RowProblem, parse_prompt
from ...records import Prompt
from ..sets import ResponseSet, Scored, Table, accuracy
from ..sources import HubData, Row, id_of, text_of

HEP = ("hep-cpp", "hep-go", "hep-java", "hep-js", "hep-python", "hep-rust")
SECTIONS = {
    "Chat": ("alpacaeval-easy", "alpacaeval-length", "alpacaeval-hard", "mt-bench-easy", "mt-bench-med"),
    "Chat Hard": (
        *("mt-bench-hard", "llmbar-natural", "llmbar-adver-neighbor"),
        *("llmbar-adver-GPTInst", "llmbar-adver-GPTOut", "llmbar-adver-manual"),
    ),
    "Safety": ("refusals-dangerous", "refusals-offensive", "xstest-should-refuse", "xstest-should-respond", "donotanswer"),
    "Reasoning": ("math-prm", *HEP),
}
SIZES = {
    **{"alpacaeval-easy": 100, "alpacaeval-length": 95, "alpacaeval-hard": 95, "mt-bench-easy": 28, "mt-bench-med": 40},
    **{"mt-bench-hard": 37, "llmbar-natural": 100, "llmbar-adver-neighbor": 134},
    **{"llmbar-adver-GPTInst": 92, "llmbar-adver-GPTOut": 47, "llmbar-adver-manual": 46},
    **{"refusals-dangerous": 100, "refusals-offensive": 100, "xstest-should-refuse": 154, "xstest-should-respond": 250},
    **{"donotanswer": 136, "math-prm": 984, **dict.fromkeys(HEP, 164)},
}
"""Weight of a subset in its section: its rows, but for math-prm (447), which weighs as much as all of the code."""


class RewardBench:
    """Rows with ``prompt``, ``chosen``, ``rejected``, ``subset`` and ``id``."""

    name = "reward_bench"
    title = "RewardBench"
    hub = {"filtered": HubData("allenai/reward-bench", "filtered")}
    both_orders = False

    def read(self, row: Row, source: str) -> ResponseSet:
        """See :meth:`..sets.Benchmark.read`."""
        subset = text_of(row, "subset")
        if subset not in SIZES:
            raise RowProblem(f"`subset` must be one of {list(SIZES)}, got {subset!r}")
        text = text_of(row, "prompt")
        prompt = Prompt(id=id_of(row, "id", text), messages=parse_prompt(text))
        responses = (text_of(row, "chosen"), text_of(row, "rejected"))
        return ResponseSet(id=f"{subset}:{prompt.id}", group=subset, prompt=prompt, responses=responses, quality=(1.0, 0.0))

    def numbers(self, scored: Scored) -> dict[str, float]:
        """Whether the chosen one is scored higher; for the authors' reward models a tie is wrong."""
        return {"higher": accuracy(scored, tie=0.0), "accuracy": accuracy(scored)}

    def report(self, table: Table) -> dict[str, float]:
        """Mean of the sections, the sections, and each subset; then with ties counted half."""
        sections = [section for section, subsets in SECTIONS.items() if set(subsets) & set(table.names)]
        found = {"score": mean_of_sections(table, sections, "higher")}
        found |= {section: of_section(table, section, "higher") for section in sections}
        found |= {subset: table.mean("higher", [subset]) for subset in table.names}
        return found | {"score, ties half": mean_of_sections(table, sections, "accuracy")}


def of_section(table: Table, section: str, name: str) -> float:
    """Mean over the subsets of a section that are there, with the authors' weights."""
    means = {subset: table.mean(name, [subset]) for subset in SECTIONS[section]}
    known = {subset: value for subset, value in means.items() if not math.isnan(value)}
    total = sum(SIZES[subset] for subset in known)
    return sum(SIZES[subset] * value for subset, value in known.items()) / total if total else math.nan


def mean_of_sections(table: Table, sections: list[str], name: str) -> float:
    """Mean over sections."""
    return sum(of_section(table, section, name) for section in sections) / len(sections)
