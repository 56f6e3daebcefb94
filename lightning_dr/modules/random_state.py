"""The random states that a resumed run goes on from, and those that are drawn from for a while."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch


def get_random_state() -> dict[str, Any]:
    """The random states that a round draws from."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"torch": torch.get_rng_state(), "cuda": cuda, "python": random.getstate()}


def set_random_state(state: Mapping[str, Any]) -> None:
    """Restore :func:`get_random_state`."""
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))


@contextmanager
def seeded(seed: int | None, device: torch.device) -> Iterator[None]:
    """Draw from a seed for a while (not at all with ``None``) and leave the random state as it was."""
    if seed is None:
        yield
        return
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
