"""Interleaved timing, and what the device can do at best."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch


def seconds_of(function: Callable[[], object]) -> float:
    """Wall-clock seconds of one call, the work of the device included."""
    synchronise()
    start = time.perf_counter()
    function()
    synchronise()
    return time.perf_counter() - start


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
