"""What the README says is so: its commands run, its links lead somewhere, its names exist."""

import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
COMMANDS = [
    line.split("#")[0].strip() for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL) for line in block.splitlines() if line
]
FAST = [
    "--model.schedule=[{rounds: 1}]",
    "--data.num_val=0",
    "--data.batch_size=2",
    "--model.rounds.num_responses=2",
    "--model.rounds.num_rubrics=2",
]
ROUND_0 = {"lightning-dr fit --config configs/ablations/frozen_evaluator.yaml": ["--trainer.callbacks.freeze_at=0"]}
"""Callbacks that act late act at once here."""


def run(args, cwd):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{cwd}:{ROOT}"}
    return subprocess.run(
        [sys.executable, "-m", "lightning_dr", *args], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )


def test_make_targets_exist():
    targets = {command.split()[1] for command in COMMANDS if command.startswith("make ")} | set(re.findall(r"`make ([a-z0-9-]+)`", README))
    makefile = (ROOT / "Makefile").read_text()
    assert {"demo", "test", "smollm2"} <= targets
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_the_callback_in_the_readme_is_short_and_runs(tmp_path):
    code = re.search(r"```python\n# winner.py\n(.*?)```", README, re.DOTALL)[1]
    assert len([line for line in code.splitlines() if line.strip()]) < 30
    (tmp_path / "winner.py").write_text(code)
    (command,) = [command for command in COMMANDS if "WinnerTakesAll" in command]
    args = shlex.split(command)[2:]
    result = run([args[0], *FAST, *args[1:], "--trainer.callbacks.from_round=0"], tmp_path)
    assert result.returncode == 0, result.stderr[-2000:]
    metrics = (tmp_path / "runs" / "toy" / "version_0" / "metrics.csv").read_text()
    assert "policy/winners" in metrics


@pytest.mark.parametrize(
    "command", [c for c in COMMANDS if c.startswith("lightning-dr fit") and "8b" not in c and "smollm2" not in c and "ckpt" not in c]
)
def test_fit_commands_run(command, tmp_path):
    args = shlex.split(command)[1:]
    extra = [] if {"--print_config", "--model.help"} & set(args) else FAST
    result = run([*args, *extra, *ROUND_0.get(command, [])], tmp_path)
    assert result.returncode == 0, result.stderr[-2000:]


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(lightning_dr(?:\.\w+)+)`", README))))
def test_names_exist(name):
    module, _, attribute = name.rpartition(".")
    assert hasattr(importlib.import_module(module), attribute)


def test_paths_exist():
    for path in re.findall(r"`((?:configs|tests)/[\w./-]+\.\w+)`", README) + re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / path).exists(), path
