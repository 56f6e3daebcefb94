import csv
import json

import pytest

from lightning_dr.cli import CONFIGS
from lightning_dr.experiments import ablate as ablate_module
from lightning_dr.experiments.ablate import ablate, plan, start_run
from lightning_dr.experiments.report import compare, write_report

FAST = [
    "--model.schedule=[{rounds: 3}]",
    "--data.num_val=0",
    "--data.batch_size=2",
    "--model.rounds.num_responses=3",
    "--model.rounds.num_rubrics=2",
]


def write_run(folder, quality, rounds=20):
    folder.mkdir(parents=True)
    with (folder / "metrics.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["policy/score", "gap/reference_quality", "gap/policy", "gap/saturation", "val/accuracy"])
        writer.writeheader()
        writer.writerow({"val/accuracy": 0.5})  # of the validation before the first round
        for number in range(rounds):
            writer.writerow(
                {"policy/score": 0.5, "gap/reference_quality": quality * number / rounds, "gap/policy": 0.1, "gap/saturation": 0.0}
            )


class TestReport:
    def test_paired_differences(self, tmp_path):
        done = {"full": [0, 1, 2, 3], "same": [0, 1, 2, 3], "worse": [0, 1, 2]}
        for arm, shift in (("full", 0.0), ("same", 0.0), ("worse", -1.0)):
            for seed in done[arm]:
                write_run(tmp_path / arm / f"seed-{seed}", 10 + 3 * seed + shift + 0.01 * seed)
        results = write_report(tmp_path, done)
        quality = {arm: found["gap/reference_quality"] for arm, found in results.items()}
        # the last tenth of 20 rounds: mean of 18/20 and 19/20
        assert quality["full"]["seeds"]["0"] == pytest.approx(9.25)
        assert quality["worse"]["difference"] == pytest.approx(-0.925)
        assert quality["worse"]["significant"]  # the seeds differ far more than the arms, but the pairs do not
        assert not quality["same"]["significant"]
        assert "val/accuracy" not in results["full"]
        text = (tmp_path / "results.md").read_text()
        assert "In words: true quality, compared with full: lower: worse; not told apart: same." in text
        assert json.loads((tmp_path / "results.json").read_text())["arms"].keys() == done.keys()
        for name in ("quality", "gap", "saturation"):
            assert (tmp_path / f"{name}.png").stat().st_size > 5000

    def test_one_seed_proves_nothing(self):
        found = compare({0: 1.0}, {0: 5.0})
        assert not found["significant"]
        assert found["difference"] == -4.0

    def test_nothing_has_finished(self, tmp_path, capsys):
        assert write_report(tmp_path, {"full": []}) == {}
        assert "nothing to compare" in capsys.readouterr().out


class TestPlan:
    def test_every_arm_with_every_seed(self, tmp_path):
        runs = plan(["full", "ablations/anchor_only.yaml"], "toy.yaml", range(2), tmp_path, ["--x=1"])
        assert [(run.arm, run.seed) for run in runs] == [("full", 0), ("anchor_only", 0), ("full", 1), ("anchor_only", 1)]
        assert runs[1].configs == (str(CONFIGS / "toy.yaml"), str(CONFIGS / "ablations/anchor_only.yaml"))
        assert runs[1].args[:3] == ["fit", f"--config={runs[1].configs[0]}", f"--config={runs[1].configs[1]}"]
        assert "--x=1" in runs[0].args

    def test_mistakes(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"No config 'nowhere\.yaml' for the arm 'nowhere'"):
            plan(["full", "nowhere.yaml"], "toy.yaml", [0], tmp_path, [])
        with pytest.raises(ValueError, match="`arms` must have different names"):
            plan(["full", "full"], "toy.yaml", [0], tmp_path, [])
        with pytest.raises(ValueError, match="`seeds` must be at least 1, got 0"):
            ablate(["full"], seeds=0, out=str(tmp_path))

    def test_other_settings_are_not_mixed(self, tmp_path):
        (run,) = plan(["full"], "toy.yaml", [0], tmp_path, [])
        run.folder.mkdir(parents=True)
        (run.folder / "arm.json").write_text(json.dumps({"identity": run.identity()}))
        assert run.is_finished()
        (other,) = plan(["full"], "toy.yaml", [0], tmp_path, ["--model.rounds.num_rubrics=4"])
        with pytest.raises(ValueError, match="was run with other configs or options"):
            other.is_finished()


@pytest.mark.slow
def test_a_study_is_taken_up_again_and_a_broken_run_leaves_the_others_alone(tmp_path, capsys, monkeypatch):
    broken = tmp_path / "broken.yaml"
    broken.write_text("model: {rounds: {num_responses: 1}}\n")  # refused after the arms' options
    arms, out = ["full", "ablations/oracle.yaml", str(broken)], tmp_path / "study"
    options = [option for option in FAST if "num_responses" not in option]
    with pytest.raises(SystemExit):
        ablate(arms, seeds=1, out=str(out), jobs=2, options=options)
    shown = capsys.readouterr().out
    assert "Broken: broken, seed 0" in shown
    assert "num_responses" in (out / "broken" / "seed-0.broken" / "log.txt").read_text()
    assert {path.name for path in out.iterdir()} >= {
        "full",
        "oracle",
        "results.json",
        "results.md",
        "quality.png",
        "gap.png",
        "saturation.png",
    }
    before = {arm: (out / arm / "seed-0" / "metrics.csv").stat().st_mtime_ns for arm in ("full", "oracle")}

    started = []
    monkeypatch.setattr(ablate_module, "start_run", lambda run, environment: started.append(run.arm) or start_run(run, environment))
    with pytest.raises(SystemExit):
        ablate(arms, seeds=1, out=str(out), jobs=2, options=options)
    assert started == ["broken"]
    assert {arm: (out / arm / "seed-0" / "metrics.csv").stat().st_mtime_ns for arm in before} == before
    assert (out / "broken" / "seed-0.broken-1").is_dir()  # what broke first is kept
    ablate(arms, seeds=1, out=str(out), options=options, report_only=True)
    assert started == ["broken"]
