"""Cross-play and diagnosis of a short run on the toy."""

import json

import numpy as np
import pytest

from lightning_dr.cli import run_experiment
from lightning_dr.experiments.crossplay import crossplay, staleness_of
from lightning_dr.experiments.diagnose import diagnose, sentence
from lightning_dr.experiments.grid import MEASURES, Grid, evaluate_grid
from lightning_dr.experiments.runs import RunFolder, held_out, pick_rounds
from lightning_dr.toy import ToyQuality


@pytest.fixture
def run(short_run):
    return short_run


def test_grid(run):
    grid = evaluate_grid(RunFolder(run), None, 6, 8, None, 0)
    assert grid.policies == [0, 2, 4]
    assert grid.generators == ["0", "2", "4"]
    assert set(grid.values) == set(MEASURES)
    assert all(value.shape == (3, 3, 8) for value in grid.values.values())
    # all generators see the same responses, so a row has one set of pairs, and evaluators differ
    known = ~np.isnan(grid.values["gap"])
    assert (known == known[:, :1]).all()
    assert (grid.values["j_disc"][0, 0] != grid.values["j_disc"][0, 2]).any()
    again = evaluate_grid(RunFolder(run), [0, 4], 6, 8, ToyQuality(), 0)
    np.testing.assert_array_equal(again.values["gap"][1, 1], grid.values["gap"][2, 2])


def test_crossplay_writes_tables_and_a_heat_map(run, capsys):
    crossplay(str(run), prompts=8)
    folder = run / "crossplay"
    result = json.loads((folder / "crossplay.json").read_text())
    assert result["policies"] == [0, 2, 4]
    for rows in result["cells"].values():
        assert np.array(rows).shape == (3, 3, 3)
        assert all(low <= mean <= high for row in rows for mean, low, high in row)
    assert (folder / "crossplay.png").stat().st_size > 5000
    assert "In words: the evaluator of the policy's own round gives" in capsys.readouterr().out


def test_staleness_is_the_paired_difference_to_the_diagonal():
    values = np.zeros((3, 3, 4))
    values[2, 2] = 0.5  # the policy of round 20 under its own evaluator
    values[2, 1] = [0.1, 0.2, 0.3, 0.4]
    values[1, 2] = 0.25
    grid = Grid(policies=[0, 10, 20], generators=["0", "10", "20"], rounds=[0, 10, 20], values={"gap": values})
    found = staleness_of(grid, "gap")
    assert found["older"][0] == pytest.approx(0.25)  # round 10 on 20; the untrained evaluator does not count
    assert found["newer"][0] == pytest.approx(-0.25)


@pytest.mark.parametrize("weight", [1.0, 2.0])
def test_diagnose(run, weight, tmp_path, capsys):
    diagnose(str(run), variants=[f"twin={run}"], prompts=8, anchor_weight=weight, out=str(tmp_path / "out"))
    result = json.loads((tmp_path / "out" / "diagnose.json").read_text())
    assert set(result["sets"]) == {
        f"{name}, {when}" for name in ("own generators", "generators of twin", "all together") for when in ("all rounds", "late training")
    }
    own, twin = (result["sets"][f"{name}, all rounds"] for name in ("own generators", "generators of twin"))
    assert len(own["intercepts_at_tightest"]) == 3
    for key in ("tightest_coefficient", "slack_removed", "largest_coefficient", "misordered"):
        assert own[key]["interval"][0] <= own[key]["interval"][1]
    # the twin has no round 0, its two other generators are the same
    assert own["pairs"] == 3 * 3
    assert twin["pairs"] == 3 * 1
    gaps = {(row["policy"], row["generator"]): row["gap"] for row in result["rounds"]}
    assert gaps[(4, "2")] == gaps[(4, "twin 2")]
    assert "## In words" in capsys.readouterr().out
    assert (tmp_path / "out" / "diagnose.png").stat().st_size > 5000


def test_without_a_reference_the_pairs_are_those_of_the_anchors(run, tmp_path, monkeypatch):
    monkeypatch.setattr(RunFolder, "reference", lambda self: None)
    diagnose(str(run), prompts=8, out=str(tmp_path))
    assert json.loads((tmp_path / "diagnose.json").read_text())["pairs"] == "of the anchor lists, by rank"
    crossplay(str(run), prompts=8, out=str(tmp_path))
    assert set(json.loads((tmp_path / "crossplay.json").read_text())["cells"]) == {"anchor_accuracy"}


def test_words_follow_the_numbers():
    def found(low, wrong, clear):
        return {
            "tightest_coefficient": {"value": 1.0, "interval": [low, 2.0]},
            "slack_removed": {"value": 0.5, "interval": [0.1, 0.8]},
            "resolved_misordered": wrong,
            "resolved_pairs": clear,
            "misordered_by_round": {"10": 0.1, "20": 0.6},
        }

    assert "holds as far as can be told" in sentence("own", found(0.2, 0, 10))
    assert "on the policies of rounds 20 at least half" in sentence("own", found(0.2, 0, 10))
    assert "fails in part" in sentence("own", found(0.2, 3, 10))
    assert "not shown to hold" in sentence("own", found(0.0, 0, 10))


def test_run_folder_mistakes(run, tmp_path):
    with pytest.raises(FileNotFoundError, match="must be the folder of a run"):
        RunFolder(tmp_path)
    (tmp_path / "config.yaml").write_text("{}")
    with pytest.raises(FileNotFoundError, match="must have saved adapters"):
        _ = RunFolder(tmp_path).checkpoints
    with pytest.raises(ValueError, match=r"`rounds` must be among the saved ones, \[0, 2, 4\], got \[3\]"):
        crossplay(str(run), rounds=[0, 3])
    with pytest.raises(SystemExit, match="lightning-dr crossplay: 'nowhere' must be the folder of a run"):
        run_experiment("crossplay", ["nowhere"])


def test_rounds_are_spread_over_the_saved_ones():
    saved = dict.fromkeys(range(10, 110, 10))
    assert pick_rounds(saved, None, 6) == [0, 20, 40, 60, 80, 100]
    assert pick_rounds({5: 1}, None, 6) == [0, 5]
    assert pick_rounds(saved, [50, 0], 6) == [0, 50]


def test_held_out_prompts(run):
    _, data = RunFolder(run).load()
    batches = held_out(data, 3)
    assert sum(len(batch.prompts) for batch in batches) == 4
    assert sum(len(batch.prompts) for batch in held_out(data, 100)) == 8
