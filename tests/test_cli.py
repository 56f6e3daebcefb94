import csv
import json
import os
import signal
import subprocess
import sys
import time

import pytest

FAST = [
    "--model.schedule=[{rounds: 3}]",
    "--data.num_val=2",
    "--data.batch_size=2",
    "--model.rounds.num_responses=3",
    "--model.rounds.num_rubrics=2",
]


def run(args, cwd):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "lightning_dr", *args], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of three rounds with the default config, from a folder that is not the repository."""
    cwd = tmp_path_factory.mktemp("elsewhere")
    return run(["fit", *FAST], cwd), cwd / "runs" / "toy" / "version_0"


def test_run_folder(finished):
    result, folder = finished
    assert result.returncode == 0, result.stderr[-2000:]
    assert {path.name for path in folder.iterdir()} == {"config.yaml", "metrics.csv", "rubrics.jsonl", "checkpoints", "summary.json"}
    assert {path.name for path in (folder / "checkpoints" / "round-00003").iterdir()} >= {"policy", "generator", "trainer.ckpt"}
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["rounds"] == 3
    assert "val/accuracy" in summary["validation"]["start"]
    assert "val/accuracy" in summary["validation"]["end"]


def test_metrics_are_logged_by_round(finished):
    _, folder = finished
    with (folder / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["policy/score"]]
    assert [float(row["round"]) for row in rows] == [0, 1, 2]
    assert [int(row["step"]) for row in rows] == [0, 1, 2]
    for key in ("gap/policy", "gap/anchor", "generator/j_disc", "generator/j_anchor", "seconds/round", "seconds/responses"):
        assert all(row[key] for row in rows), key


def test_what_a_person_sees(finished):
    result, _ = finished
    for word in ("round", "J_disc=", "J_anchor=", "score=", "s/round=", "true quality", "In words:", "Run folder:"):
        assert word in result.stdout, word
    assert "Traceback" not in result.stderr


def test_the_resolved_config_runs_and_a_checkpoint_is_resumed(finished, tmp_path):
    _, folder = finished
    checkpoint = folder / "checkpoints" / "round-00003" / "trainer.ckpt"
    args = ["fit", f"--config={folder / 'config.yaml'}", "--model.schedule=[{rounds: 4}]", f"--ckpt_path={checkpoint}"]
    result = run(args, tmp_path)
    assert result.returncode == 0, result.stderr[-2000:]
    assert json.loads((tmp_path / "runs" / "toy" / "version_0" / "summary.json").read_text())["rounds"] == 4


def test_validate(finished, tmp_path):
    _, folder = finished
    checkpoint = folder / "checkpoints" / "round-00003" / "trainer.ckpt"
    result = run(["validate", f"--config={folder / 'config.yaml'}", f"--ckpt_path={checkpoint}"], tmp_path)
    assert result.returncode == 0, result.stderr[-2000:]
    assert "val/accuracy" in result.stdout


def test_one_round_to_try_a_config(tmp_path):
    result = run(["fit", "--trainer.fast_dev_run", "true", *FAST], tmp_path)
    assert result.returncode == 0, result.stderr[-2000:]
    assert not list(tmp_path.rglob("trainer.ckpt"))


def test_ctrl_c_ends_the_run_after_its_round_and_nothing_is_lost(tmp_path):
    args = ["fit", "--model.schedule=[{rounds: 10000}]", "--data.num_val=0", *FAST[2:]]
    process = subprocess.Popen(
        [sys.executable, "-m", "lightning_dr", *args],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    folder = tmp_path / "runs" / "toy" / "version_0"
    deadline = time.monotonic() + 120
    while not (folder / "rubrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error[-2000:]
    assert "Stopping after this round" in out
    rounds = json.loads((folder / "summary.json").read_text())["rounds"]
    assert 0 < rounds < 10000
    assert (folder / "checkpoints" / f"round-{rounds:05d}" / "trainer.ckpt").is_file()
    with (folder / "metrics.csv").open() as file:
        assert sum(bool(row["policy/score"]) for row in csv.DictReader(file)) == rounds
