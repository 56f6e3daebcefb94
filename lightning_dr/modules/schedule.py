"""Phases: how many rounds, and what is updated in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Some rounds with the same updates. ``policy_updates: 0`` trains the generator alone (the paper's G phases), and the reverse."""

    rounds: int
    name: str = "co-evolution"
    generator_updates: int = 1
    """Optimizer steps of the generator on each round's draw."""
    policy_updates: int = 1
    """Optimizer steps of the policy on each round's draw."""
    generator_lr: float | None = None
    """Learning rate in this phase; by default that of the role's optimizer."""
    policy_lr: float | None = None
    """Learning rate in this phase; by default that of the role's optimizer."""
    first: Literal["generator", "policy"] = "generator"
    """Which role is updated first."""

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ValueError(f"`rounds` must be at least 1, got {self.rounds}. Leave the phase out instead.")
        for name in ("generator_updates", "policy_updates"):
            if getattr(self, name) < 0:
                raise ValueError(f"`{name}` must be at least 0, got {getattr(self, name)}.")
        if self.first not in ("generator", "policy"):
            raise ValueError(f"`first` must be 'generator' or 'policy', got {self.first!r}.")


def phase_at(schedule: Sequence[Phase], round_index: int) -> Phase:
    """The phase of a round; the last one for a round past the end."""
    for phase in schedule:
        if round_index < phase.rounds:
            return phase
        round_index -= phase.rounds
    return schedule[-1]
