"""Which benchmarks, from which files, and what is wrong with a file."""

import json
import logging

import datasets
import pytest

from lightning_dr.evaluate.evaluator import read_sets
from lightning_dr.evaluate.files import choose, identify
from lightning_dr.evaluate.rankings import BENCHMARKS

LLMBAR = [{"input": f"Q{number}\u2028?", "output_1": "a", "output_2": "bb", "label": 1} for number in range(3)]
JUDGE = [
    {"pair_id": str(number), "question": "Q", "response_A": "a", "response_B": "b", "source": "livecodebench", "label": "A>B"}
    for number in range(3)
]


def lines(rows, end="\n"):
    return "".join(json.dumps(row, ensure_ascii=False) + end for row in rows)


def read(name, path):
    return read_sets(BENCHMARKS[name], [str(path)], None)


@pytest.mark.parametrize(
    "text", [lines(JUDGE), "\ufeff" + lines(JUDGE), lines(JUDGE, "\r\n"), lines(JUDGE)[:-1], "\n" + lines(JUDGE) + "\n\n"]
)
def test_a_mark_or_other_line_ends_do_no_harm(tmp_path, text):
    (tmp_path / "x.jsonl").write_bytes(text.encode())
    found = read("judge_bench", tmp_path / "x.jsonl")
    assert [one.id for one in found] == ["0:0", "1:1", "2:2"]
    assert found[0].responses == ("a", "b")


@pytest.mark.parametrize("text", [json.dumps(LLMBAR), "\ufeff" + json.dumps(LLMBAR, indent=1).replace("\n", "\r\n")])
def test_arrays_too(tmp_path, text):
    (tmp_path / "Natural.json").write_bytes(text.encode())
    found = read("llmbar", tmp_path / "Natural.json")
    assert [one.group for one in found] == ["Natural"] * 3
    assert found[0].prompt.messages[0]["content"] == "Q0\u2028?"


def test_parquet(tmp_path):
    datasets.Dataset.from_list(JUDGE).to_parquet(tmp_path / "x.parquet")
    assert len(read("judge_bench", tmp_path / "x.parquet")) == 3


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.jsonl", lines(JUDGE)[:-9], r"x\.jsonl, line 3: must be a JSON object, got '\{\"pair_id\": \"2\""),
        (
            "x.jsonl",
            lines([JUDGE[0], {**JUDGE[1], "label": "A"}]),
            r"x\.jsonl, line 2: `label` must be 'A>B' or 'B>A', got 'A'\. Mend the row",
        ),
        ("x.jsonl", lines([JUDGE[0], {**JUDGE[1], "response_A": "  "}]), r"x\.jsonl, line 2: `response_A` is empty"),
        ("x.jsonl", "\n" + lines([{"pair_id": "1"}]), r"x\.jsonl, line 2: `question` is missing; the columns are \['pair_id'\]"),
        ("x.jsonl", "[1]\n", r"x\.jsonl, line 1: must be a JSON object, got '\[1\]'"),
        ("x.jsonl", "\n", r"x\.jsonl holds no rows"),
        ("x.json", json.dumps(JUDGE)[:-4], r"x\.json, line 1, column \d+: "),
        ("x.json", json.dumps([JUDGE[0], {**JUDGE[0], "source": 3}]), r"x\.json, row 2: `source` must be text, got int"),
        ("x.json", json.dumps(JUDGE[0]), r"x\.json must be an array of rows, got a JSON dict"),
        ("x.json", "", r"x\.json holds no rows"),
        ("x.csv", "a,b\n", r"x\.csv must be a \.parquet, \.json, \.jsonl file"),
        ("x.parquet", "no", r"x\.parquet can't be read as parquet"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_row(tmp_path, name, text, message):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read("judge_bench", tmp_path / name)


@pytest.mark.parametrize("name", ["x.json", "x.jsonl"])
def test_bytes_that_are_no_text_are_named(tmp_path, name):
    (tmp_path / name).write_bytes(b'[{"pair_id": "\xff"}]')
    with pytest.raises(ValueError, match=rf"{name.replace('.', '[.]')} must be UTF-8 text, got another byte at position 14"):
        read("judge_bench", tmp_path / name)


def test_rows_that_the_authors_leave_out_are_counted(tmp_path, caplog):
    row = {"question_id": "q", "prompt": "Q", "response_1": "a", "response_2": "b", "winner": "tie", "language": "English"}
    (tmp_path / "x.jsonl").write_text(lines([row, {**row, "winner": "model_a"}, row]))
    with caplog.at_level(logging.WARNING):
        (found,) = read("ppe_human", tmp_path / "x.jsonl")
    assert found.id == "1:q"
    assert "PPE, human preference: 2 rows left out: a tie" in caplog.text


def test_max_rows_are_the_first_ones_over_all_files(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps(LLMBAR))
    found = read_sets(BENCHMARKS["llmbar"], [str(tmp_path / "a.json"), str(tmp_path / "b.json")], 4)
    assert [(one.id, one.group) for one in found] == [("0:a", "a"), ("1:a", "a"), ("2:a", "a"), ("3:b", "b")]


def test_files_add_up_and_a_name_alone_is_the_hub(tmp_path):
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text("[]")
    one, other = str(tmp_path / "a.json"), str(tmp_path / "b.json")
    found = choose([f"llmbar={one}", "nectar", f"llmbar={other}"], BENCHMARKS)
    assert [(benchmark.name, paths) for benchmark, paths in found] == [("llmbar", [one, other]), ("nectar", [])]
    assert "berkeley-nest/Nectar" in identify(BENCHMARKS["nectar"], [])["files"][0]
    assert identify(BENCHMARKS["llmbar"], [one])["files"] == identify(BENCHMARKS["llmbar"], [other])["files"] != []


@pytest.mark.parametrize(
    ("wanted", "error", "message"),
    [
        ([], ValueError, "`benchmarks` must name some of"),
        (["mmlu"], ValueError, "`benchmarks` must be among .*, as <name> or <name>=<file>, got 'mmlu'"),
        (["llmbar=nothing.json"], FileNotFoundError, "'llmbar=nothing.json' names a file that is not there"),
        (["llmbar", "llmbar"], ValueError, "must name 'llmbar' once for the Hub, or once for each of its files"),
    ],
)
def test_what_is_wrong_with_the_choice_is_named(wanted, error, message):
    with pytest.raises(error, match=message):
        choose(wanted, BENCHMARKS)


def test_from_the_hub_by_name(monkeypatch):
    asked = []

    def load(path, name, split, revision):
        asked.append((path, name, split, revision))
        return datasets.Dataset.from_list(JUDGE)

    monkeypatch.setattr(datasets, "load_dataset", load)
    found = read_sets(BENCHMARKS["judge_bench"], [], None)
    assert asked == [("ScalerLab/JudgeBench", None, "gpt", None), ("ScalerLab/JudgeBench", None, "claude", None)]
    assert len({one.id for one in found}) == 6
