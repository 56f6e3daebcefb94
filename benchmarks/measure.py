"""Interleaved timing, and what the device can do at best."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
import transformers
from transformers import PreTrainedModel


def seconds_of(function: Callable[[], object]) -> float:
    """Wall-clock seconds of one call, the work of the device included."""
    start = clock()
    function()
    return clock() - start


def clock() -> float:
    """Seconds now, once the device has done its work."""
    synchronise()
    return time.perf_counter()


def synchronise() -> None:
    """Wait for the GPU, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@dataclass(frozen=True)
class Comparison:
    """Seconds of two ways to do the same, measured in turns."""

    ours: list[float]
    other: list[float]

    @property
    def seconds(self) -> float:
        """Median of ours."""
        return median(self.ours)

    @property
    def ratio(self) -> float:
        """Median over the turns of how many times longer the other way takes."""
        return median(other / ours for ours, other in zip(self.ours, self.other, strict=True))


def interleaved(ours: Callable[[], object], other: Callable[[], object], repeats: int) -> Comparison:
    """Time two functions in turns, after one call of each that does not count."""
    ours(), other()
    turns = [(seconds_of(ours), seconds_of(other)) for _ in range(repeats)]
    return Comparison([turn[0] for turn in turns], [turn[1] for turn in turns])


def matmul_rate(dtype: torch.dtype, device: torch.device, size: int = 2048, repeats: int = 5) -> float:
    """Floating-point operations a second of one square matrix product, the best of some."""
    one, other = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    one @ other
    return 2 * size**3 / min(seconds_of(lambda: one @ other) for _ in range(repeats))


def parameters_passed(model: PreTrainedModel) -> int:
    """Parameters that a token is multiplied with on its way to the last hidden state: neither embeddings nor adapters."""
    return sum(value.numel() for name, value in model.base_model.named_parameters() if "lora_" not in name and "embed" not in name)


def machine() -> str:
    """What the numbers were measured on."""
    cpu = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "?"
    )
    gpu = f"{torch.cuda.get_device_name()}, " if torch.cuda.is_available() else ""
    return f"{gpu}{cpu}, {torch.get_num_threads()} threads, torch {torch.__version__}, transformers {transformers.__version__}"


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table row by row, as the rows come."""
    print("\n| " + " | ".join(head) + " |\n|---|" + "---:|" * (len(head) - 1), flush=True)
    for row in rows:
        print("| " + " | ".join(f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row) + " |", flush=True)
