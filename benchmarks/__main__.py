"""Print how long each step of a round takes, and how much longer row by row in plain transformers."""

from __future__ import annotations

import argparse

from . import steps
from .measure import interleaved, matmul_rate


def main() -> None:
    """``python -m benchmarks [--model FOLDER] [--repeats N]``."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=main.__doc__)
    parser.add_argument("--model", default="models/smollm2", help="a folder or a name on the Hub; `make smollm2` makes the default")
    parser.add_argument("--repeats", type=int, default=3, help="turns per step; the ratio is the median over them")
    args = parser.parse_args()
    backbone = steps.load(args.model)
    rate = matmul_rate(backbone.base.dtype, backbone.device)
    size = sum(value.numel() for name, value in backbone.base.base_model.named_parameters() if "lora_" not in name and "embed" not in name)
    print(f"{args.model}, {backbone.base.dtype}, {size / 1e6:.0f} M parameters without embeddings, matmul {rate / 1e9:.0f} GFLOP/s")
    print("| step | seconds | times faster than rows | tokens saved | share of the matmul rate |\n|---|---:|---:|---:|---:|")
    for step in (
        steps.verify(backbone),
        steps.verify(backbone, prefix=1000, responses=1),
        steps.update(backbone, "generator", prefix=1000, branches=8, length=100),
        steps.sampling(backbone, "generator", prefix=1000, num=8, length=100),
        steps.sampling(backbone, "policy", prefix=100, num=16, length=48),
        steps.update(backbone, "policy", prefix=100, branches=16, length=48),
        steps.reference(backbone, prefix=100, branches=16, length=48),
    ):
        found = interleaved(step.ours, step.rows, args.repeats)
        share = step.tokens * 2 * size / found.seconds / rate
        print(f"| {step.name} | {found.seconds:.2f} | {found.ratio:.2f} | {step.row_tokens / step.tokens:.2f} | {share:.0%} |", flush=True)


if __name__ == "__main__":
    main()
