"""Benchmarks of evaluators: official rows to response sets with a reference order, a file each."""

from ..sets import Benchmark
from .judge_bench import JudgeBench
from .llmbar import LLMBar
from .nectar import RankedLists
from .ppe import PPECorrectness, PPEHuman
from .reward_bench import RewardBench
from .reward_bench_2 import RewardBench2
from .rm_bench import RMBench

BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (RewardBench(), RewardBench2(), RMBench(), JudgeBench(), LLMBar(), PPEHuman(), PPECorrectness(), RankedLists())
}
