"""Peak memory of one role on a base against four roles on the same base, each in a process of its own."""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys

import torch

from .measure import markdown
from .steps import load, reference, sampling, update, verify

SIZE = {"prefix": 1000, "branches": 8, "length": 100}


def run(model: str) -> None:
    """Print both peaks and their ratio."""
    peaks = {roles: peak(roles, model) for roles in ("one", "four")}
    print("\nPeak memory: the process with its libraries, passes of 8 × 100 tokens after 1,000.")
    markdown(
        ["", "GiB"],
        [
            ("one role: the policy samples and learns", peaks["one"]),
            ("four roles on the same base", peaks["four"]),
            ("ratio", peaks["four"] / peaks["one"]),
        ],
    )


def peak(roles: str, model: str) -> float:
    """Peak memory of a process (GiB)."""
    done = subprocess.run([sys.executable, "-m", "benchmarks.memory", roles, "--model", model], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def main() -> None:
    """Do the work of one role or of four, and print the peak."""
    parser = argparse.ArgumentParser()
    parser.add_argument("roles", choices=["one", "four"])
    parser.add_argument("--model")
    args = parser.parse_args()
    trained = ("policy",) if args.roles == "one" else ("policy", "generator")
    backbone = load(args.model, roles=trained)
    for role in trained:
        sampling(backbone, role, SIZE["prefix"], SIZE["branches"], 4).ours()
        update(backbone, role, **SIZE).ours()
    if args.roles == "four":
        reference(backbone, **SIZE).ours()
        verify(backbone, prefix=1000, items=50, length=16, responses=1).ours()
    if torch.cuda.is_available():
        print(torch.cuda.max_memory_allocated() / 2**30)
    else:
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)


if __name__ == "__main__":
    main()
