"""Print what each step of a round costs, against what a user would otherwise run, and what a verifier can be talked into."""

from __future__ import annotations

import argparse
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence

from lightning_dr.modules import Backbone, BackboneConfig

from . import growth, injection, memory, rounds, steps, trl_step
from .measure import interleaved, machine, markdown, matmul_rate, parameters_passed

PARTS = ("steps", "round", "trl", "memory", "growth", "injection", "toy")


def main() -> None:
    """``python -m benchmarks [PART …] [--model FOLDER] [--repeats N]``."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", default=PARTS, metavar="PART", help=f"some of {', '.join(PARTS)}; all of them by default")
    parser.add_argument("--model", default="models/smollm2", help="a folder or a name on the Hub; `make smollm2` makes the default")
    parser.add_argument("--repeats", type=int, default=3, help="turns per comparison; the ratio is the median over them")
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"PART must be some of {', '.join(PARTS)}, got {', '.join(sorted(unknown))}.")
    quiet()
    print(machine())
    if "steps" in args.parts:
        table(args.model, args.repeats, small)
    if "round" in args.parts:
        rounds.run(BackboneConfig(name_or_path=args.model), args.repeats)
    if "trl" in args.parts:
        trl_step.run(args.model, args.repeats)
    if "memory" in args.parts:
        memory.run(args.model)
    if "growth" in args.parts:
        growth.run(steps.load(args.model))
    if "injection" in args.parts:
        injection.run(Backbone(BackboneConfig(name_or_path=args.model)))
    if "toy" in args.parts:
        table("toy", max(args.repeats, 10), toy)
        rounds.toy(max(args.repeats, 10))


def quiet() -> None:
    """The table, and nothing of what libraries say meanwhile."""
    warnings.filterwarnings("ignore")
    for name in ("lightning.pytorch", "transformers"):
        logging.getLogger(name).setLevel(logging.ERROR)


def small(backbone: Backbone) -> Sequence[steps.Step]:
    """The sizes of the table for a real model."""
    return (
        steps.verify(backbone),
        steps.verify(backbone, prefix=1000, responses=1),
        steps.update(backbone, "generator", prefix=1000, branches=8, length=100),
        steps.sampling(backbone, "generator", prefix=1000, num=8, length=100),
        steps.sampling(backbone, "policy", prefix=100, num=16, length=48),
        steps.update(backbone, "policy", prefix=100, branches=16, length=48),
        steps.reference(backbone, prefix=100, branches=16, length=48),
    )


def toy(backbone: Backbone) -> Sequence[steps.Step]:
    """The sizes of the toy's rounds. Its verdicts come from rules, so this ``verify`` is a model's work that it does not do."""
    return (
        steps.verify(backbone, prefix=24, items=9, length=6, responses=8),
        steps.update(backbone, "generator", prefix=60, branches=8, length=20),
        steps.sampling(backbone, "generator", prefix=60, num=8, length=20),
        steps.sampling(backbone, "policy", prefix=8, num=8, length=10),
        steps.update(backbone, "policy", prefix=8, branches=8, length=10),
        steps.reference(backbone, prefix=8, branches=8, length=10),
    )


def table(model: str, repeats: int, sizes: Callable[[Backbone], Sequence[steps.Step]]) -> None:
    """Every step against rows of plain transformers."""
    backbone = steps.load(model)
    rate, size = matmul_rate(backbone.base.dtype, backbone.device), parameters_passed(backbone.base)
    print(
        f"\n{model}: {backbone.base.dtype}, {size / 1e6:.1f} M parameters without embeddings; a matrix product reaches {rate / 1e9:.0f} "
        f"GFLOP/s. Packed against rows: {backbone.packing.difference:.2g} nats."
    )

    def measure() -> Iterator[tuple[object, ...]]:
        for step in sizes(backbone):
            found = interleaved(step.ours, step.rows, repeats)
            share = step.tokens * 2 * size / found.seconds / rate
            yield step.name, found.seconds, step.tokens, f"{share:.0%}", found.ratio, step.row_tokens / step.tokens

    markdown(["step", "seconds", "tokens", "share of matmul rate", "times faster than rows", "times fewer tokens"], measure())


if __name__ == "__main__":
    main()
