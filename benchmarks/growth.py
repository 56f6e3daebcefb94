"""How the time of each step grows with the rubrics, the prefix and the responses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lightning_dr.modules import Backbone

from .measure import markdown, seconds_of
from .steps import Step, reference, sampling, update, verify

Steps = Callable[[int], Sequence[Step]]


def run(backbone: Backbone) -> None:
    """Print a table for each of the three quantities; seconds of one call after a first one that does not count."""
    table(
        "Rubrics G: of 100 tokens and 5 items, after 1,000 tokens",
        ["verify", "sample rubrics", "generator update"],
        (1, 2, 4, 8, 16),
        lambda count: (
            verify(backbone, 1000, items=5 * count, responses=1),
            sampling(backbone, "generator", 1000, count, 100),
            update(backbone, "generator", 1000, count, 100),
        ),
    )
    table(
        "Tokens of the prefix: 8 branches of 100 tokens, or 20 items",
        ["verify", "sample", "update"],
        (100, 300, 1000, 3000),
        lambda count: (
            verify(backbone, count, responses=1),
            sampling(backbone, "generator", count, 8, 100),
            update(backbone, "generator", count, 8, 100),
        ),
    )
    table(
        "Responses K: of 48 tokens, after 100; 20 items",
        ["verify", "sample responses", "reference", "policy update"],
        (1, 2, 4, 8, 16),
        lambda count: (
            verify(backbone, 148, responses=count),
            sampling(backbone, "policy", 100, count, 48),
            reference(backbone, 100, count, 48),
            update(backbone, "policy", 100, count, 48),
        ),
    )


def table(title: str, names: Sequence[str], counts: Sequence[int], steps: Steps) -> None:
    """Seconds of some steps for each count."""
    print(f"\n{title}:")
    markdown(["", *names], ((count, *(measured(step) for step in steps(count))) for count in counts))


def measured(step: Step) -> float:
    """Seconds of the second call."""
    step.ours()
    return seconds_of(step.ours)
