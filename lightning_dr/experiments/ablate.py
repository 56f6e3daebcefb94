"""``lightning-dr ablate``: arms × seeds, each run a process of its own."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

import torch

from ..cli import resolve_config
from .report import write_report

FULL = "full"
"""The arm that is the base config as it is."""
ARM_FILE = "arm.json"


@dataclass(frozen=True)
class Run:
    """One arm with one seed."""

    arm: str
    seed: int
    configs: tuple[str, ...]
    options: tuple[str, ...]
    out: Path

    @property
    def folder(self) -> Path:
        """Where it writes."""
        return self.out / self.arm / f"seed-{self.seed}"

    @property
    def args(self) -> list[str]:
        """Arguments of ``lightning-dr``."""
        return [
            "fit",
            *(f"--config={config}" for config in self.configs),
            *self.options,
            f"--seed_everything={self.seed}",
            f"--trainer.logger.save_dir={self.out}",
            f"--trainer.logger.name={self.arm}",
            f"--trainer.logger.version=seed-{self.seed}",
        ]

    def identity(self) -> str:
        """A hash of everything that was asked for."""
        contents = [Path(config).read_text(encoding="utf-8") for config in self.configs]
        return hashlib.sha256(json.dumps([contents, self.options, self.seed]).encode()).hexdigest()

    def is_finished(self) -> bool:
        """Whether the run has been done to its end.

        Raises:
            ValueError: If it was done with other settings.
        """
        done = self.folder / ARM_FILE
        if not done.is_file():
            return False
        if json.loads(done.read_text(encoding="utf-8"))["identity"] != self.identity():
            raise ValueError(
                f"{self.folder} was run with other configs or options than now: results would be mixed. "
                "Name another `--out`, or remove the folder."
            )
        return True


def ablate(
    arms: list[str],
    base: str = "toy.yaml",
    seeds: int = 8,
    out: str = "runs/ablation",
    jobs: int | None = None,
    options: list[str] = [],  # noqa: B006
    report_only: bool = False,
) -> None:
    """Run arms × seeds with the same budget, and compare them.

    A finished run is not run again; one that broke is reported, set aside as ``….broken`` and leaves the others alone. Into ``out`` go
    ``results.json``, ``results.md`` with paired bootstrap intervals over seeds, and a plot per metric.

    Args:
        arms: ``full`` (the base config as it is) or config files that go on top of it, such as ``ablations/frozen_evaluator.yaml``. All are
            compared with the first.
        base: Config of every arm.
        seeds: Number of seeds, 0, 1, …
        out: Folder of the study.
        jobs: Runs at a time: by default one per GPU, or on a machine without one, one per CPU core, each on one thread.
        options: Options of ``lightning-dr fit`` for every arm, such as ``--model.rounds.num_rubrics=4``.
        report_only: Compare what is there, and run nothing.
    """
    if seeds < 1:
        raise ValueError(f"`seeds` must be at least 1, got {seeds}.")
    runs = plan(arms, base, range(seeds), Path(out), options)
    waiting = [] if report_only else [run for run in runs if not run.is_finished()]
    broken = execute(waiting, jobs)
    names = list(dict.fromkeys(run.arm for run in runs))
    done = {name: [run.seed for run in runs if run.arm == name and run.is_finished()] for name in names}
    write_report(Path(out), done)
    for run in broken:
        print(f"Broken: {run.arm}, seed {run.seed}; its log is {run.folder}.broken/log.txt")
    if broken:
        raise SystemExit(1)


def plan(arms: Sequence[str], base: str, seeds: Sequence[int], out: Path, options: Sequence[str]) -> list[Run]:
    """All runs, seed by seed, so that every arm has some seeds early.

    Raises:
        FileNotFoundError: If a config is not there.
        ValueError: If two arms have the same name.
    """
    configs = {FULL if arm == FULL else Path(arm).stem: arm for arm in arms}
    if len(configs) != len(arms):
        raise ValueError(f"`arms` must have different names, got {list(arms)}.")
    found = {}
    for name, arm in configs.items():
        files = [resolve_config(config) for config in ([base] if name == FULL else [base, arm])]
        for file in files:
            if not Path(file).is_file():
                raise FileNotFoundError(f"No config {file!r} for the arm {name!r}.")
        found[name] = tuple(files)
    return [Run(name, seed, files, tuple(options), out) for seed in seeds for name, files in found.items()]


def execute(runs: Sequence[Run], jobs: int | None) -> list[Run]:
    """Run all; returns those that broke."""
    devices = torch.cuda.device_count()
    slots: Queue[int] = Queue()
    for slot in range(jobs or devices or os.cpu_count() or 1):
        slots.put(slot)
    start, done = time.monotonic(), 0

    def one(run: Run) -> bool:
        nonlocal done
        slot = slots.get()
        try:
            good = start_run(run, {"CUDA_VISIBLE_DEVICES": str(slot % devices)} if devices else {"OMP_NUM_THREADS": "1"})
        finally:
            slots.put(slot)
        done += 1
        left = (time.monotonic() - start) / done * (len(runs) - done)
        print(f"{done}/{len(runs)} {run.arm} seed {run.seed}: {'done' if good else 'broken'}; about {left / 60:.0f} min left", flush=True)
        return good

    with ThreadPoolExecutor(max(1, slots.qsize())) as pool:
        return [run for run, good in zip(runs, pool.map(one, runs), strict=True) if not good]


def start_run(run: Run, environment: dict[str, str]) -> bool:
    """Run one process to its end, its output in ``log.txt``; whether it finished."""
    if run.folder.exists():
        set_aside(run.folder)
    run.folder.mkdir(parents=True)
    with (run.folder / "log.txt").open("w", encoding="utf-8") as log:
        result = subprocess.run(
            [sys.executable, "-m", "lightning_dr", *run.args], env=os.environ | environment, stdout=log, stderr=subprocess.STDOUT
        )
    if result.returncode != 0 or not (run.folder / "metrics.csv").is_file():
        set_aside(run.folder)
        return False
    (run.folder / ARM_FILE).write_text(json.dumps({"identity": run.identity(), "args": run.args}) + "\n", encoding="utf-8")
    return True


def set_aside(folder: Path) -> None:
    """Make place for another try, and keep what there was: the newest as ``….broken``."""
    aside, number = folder.with_name(f"{folder.name}.broken"), 1
    if aside.exists():
        while folder.with_name(f"{folder.name}.broken-{number}").exists():
            number += 1
        aside.rename(folder.with_name(f"{folder.name}.broken-{number}"))
    folder.rename(aside)
