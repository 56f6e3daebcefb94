"""Benchmarks of policies: questions, and their official answer files, a file each."""

from .alpaca_eval import AlpacaEval
from .arena_hard import ArenaHard
from .base import QuestionBenchmark
from .gsm8k import GSM8K
from .ifeval import IFEval
from .wild_bench import WildBench
from .writing_bench import WritingBench

BENCHMARKS: dict[str, QuestionBenchmark] = {
    benchmark.name: benchmark for benchmark in (AlpacaEval(), ArenaHard(), WildBench(), WritingBench(), IFEval(), GSM8K())
}
