"""`lightning-dr evaluate evaluator`, as a user calls it."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from lightning_dr.cli import run_evaluation
from lightning_dr.evaluate.evaluator import evaluator
from lightning_dr.evaluators import LengthEvaluator
from lightning_dr.toy import ToyQuality

LENGTH = ["--evaluator", "lightning_dr.evaluators.LengthEvaluator"]


def rows(folder, name="nectar"):
    found = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
    return {row["id"]: row["scores"] for row in found[1:]}


def test_a_run_after_each_of_its_rounds(short_run, toy_lists, capsys):
    run_evaluation(["evaluator", "--model", str(short_run), "--benchmarks", f"[nectar={toy_lists}]", "--max_rows", "8"])
    assert "Written to" in capsys.readouterr().out
    last = short_run / "evaluation" / "evaluator-DynamicRubric-round-00004"
    result = json.loads((last / "evaluator.json").read_text())
    found = result["benchmarks"]["nectar"]
    assert (found["rows"], len(rows(last))) == (8, 8)
    assert 0 <= found["measures"]["pairs ordered right, ties half"]["mean"] <= 1
    assert found["longer_answer"]["pairs ordered right, ties half"] != found["measures"]["pairs ordered right, ties half"]["mean"]
    text = (last / "evaluator.md").read_text()
    assert text.startswith(f"# DynamicRubric of {short_run} after round 4\n")
    assert "| pairs ordered right, ties half |" in text
    evaluator([f"nectar={toy_lists}"], str(short_run), round=0, max_rows=8)
    assert rows(short_run / "evaluation" / "evaluator-DynamicRubric-round-00000") != rows(last)


def test_the_truth_is_right_and_the_config_may_name_the_evaluator(toy_lists, tmp_path):
    evaluator([f"nectar={toy_lists}"], evaluator=ToyQuality(), out=str(tmp_path / "given"))
    evaluator([f"nectar={toy_lists}"], "configs/ablations/oracle.yaml", out=str(tmp_path / "config"))
    for name in ("given", "config"):
        result = json.loads((tmp_path / name / "evaluator.json").read_text())["benchmarks"]["nectar"]
        assert {value["mean"] for value in result["measures"].values()} == {1.0}
        assert result["unjudged"] == 0


def test_rows_that_cannot_be_judged_are_counted_and_left_out(toy_lists, tmp_path):
    class Blind(LengthEvaluator):
        def scores(self, prompts, responses):
            found = super().scores(prompts, responses)
            return [
                scores * float("nan") if "ocean" in prompt.messages[0]["content"] else scores
                for prompt, scores in zip(prompts, found, strict=True)
            ]

    evaluator([f"nectar={toy_lists}"], evaluator=Blind(), out=str(tmp_path / "blind"))
    evaluator([f"nectar={toy_lists}"], evaluator=LengthEvaluator(), out=str(tmp_path / "all"))
    blind, everything = (json.loads((tmp_path / name / "evaluator.json").read_text())["benchmarks"]["nectar"] for name in ("blind", "all"))
    oceans = sum("ocean" in line for line in toy_lists.read_text().splitlines())
    assert (blind["rows"], blind["unjudged"]) == (40, oceans)
    assert oceans > 0
    judged = [scores for scores in rows(tmp_path / "blind").values() if None not in scores[0]]
    assert len(judged) == 40 - oceans
    name = "pairs ordered right, ties half"
    assert blind["measures"][name]["mean"] != everything["measures"][name]["mean"]
    assert blind["measures"][name]["mean"] > 0.3, "they are not wrong, but out"


def test_called_again_it_judges_nothing_twice_and_other_settings_are_refused(toy_lists, tmp_path):
    options = [f"nectar={toy_lists}"]
    evaluator(options, "toy.yaml", max_rows=4, out=str(tmp_path))
    before = (tmp_path / "nectar.jsonl").read_bytes()
    evaluator(options, "toy.yaml", max_rows=4, out=str(tmp_path))
    assert (tmp_path / "nectar.jsonl").read_bytes() == before
    evaluator(options, "toy.yaml", max_rows=8, out=str(tmp_path))
    assert (tmp_path / "nectar.jsonl").read_bytes().startswith(before), "more rows go on from there"
    with pytest.raises(ValueError, match=r"nectar\.jsonl holds rows that were made with another `seed`"):
        evaluator(options, "toy.yaml", max_rows=4, out=str(tmp_path), seed=1)
    with pytest.raises(ValueError, match="another `model`"):
        evaluator(options, "toy.yaml", options=["--model.rounds.num_rubrics=2"], out=str(tmp_path))


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_rows(toy_lists, tmp_path):
    args = ["--model", "toy.yaml", "--benchmarks", f"[nectar={toy_lists}]", "--batch_size", "2"]
    command = [sys.executable, "-m", "lightning_dr", "evaluate", "evaluator", *args]
    run_evaluation(["evaluator", *args, "--out", str(tmp_path / "whole")])
    journal = tmp_path / "killed" / "nectar.jsonl"
    stopped = []
    for target in (3, 9, 20):
        process = subprocess.Popen(
            [*command, "--out", str(tmp_path / "killed")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path
        )
        while process.poll() is None and (not journal.exists() or journal.read_bytes().count(b"\n") <= target):
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        stopped.append(journal.read_bytes().count(b"\n") - 1)
    assert 0 < stopped[0] < stopped[1] < stopped[2] < 40, stopped
    result = subprocess.run([*command, "--out", str(tmp_path / "killed")], capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0, result.stderr[-2000:]
    lines = journal.read_text().splitlines()
    assert len(lines) == 41, "no row twice"
    assert rows(tmp_path / "killed") == rows(tmp_path / "whole")


def test_mistakes_are_a_line(toy_lists, tmp_path):
    for args, message in (
        ([], "name one of evaluator, policy, win_rate"),
        (["judge"], "name one of evaluator"),
        (["evaluator", "--benchmarks", "[mmlu]", *LENGTH], "`benchmarks` must be among"),
        (["evaluator", "--benchmarks", f"[nectar={toy_lists}]"], "`evaluator` or `model` must be given"),
        (["evaluator", "--benchmarks", f"[nectar={toy_lists}]", *LENGTH, "--batch_size", "0"], "`batch_size` must be at least 1, got 0"),
        (["evaluator", "--benchmarks", f"[nectar={toy_lists}]", *LENGTH, "--max_rows", "0"], "`max_rows` must be at least 1, got 0"),
        (["evaluator", "--benchmarks", f"[nectar={toy_lists}]", *LENGTH, "--out", "/dev/null/x"], "/dev/null"),
        (["evaluator", "--benchmarks", f"[nectar={toy_lists}]", "--model", str(tmp_path)], "must be the folder of a run"),
        (
            ["evaluator", "--benchmarks", f"[nectar={toy_lists}]", "--evaluator", "lightning_dr.modules.judges.GEval"],
            "This evaluator needs a model, here for its `pieces`: name a run",
        ),
    ):
        with pytest.raises(SystemExit, match=message):
            run_evaluation(args)
