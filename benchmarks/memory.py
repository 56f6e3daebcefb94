"""Peak memory of one role on a base against four roles on the same base, each in a process of its own."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

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
        print(resident_peak())


def resident_peak() -> float:
    """The most memory that this process has held (GiB). ``getrusage`` would count the parent's, held by the fork before it became us."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) / 2**20


if __name__ == "__main__":
    main()
