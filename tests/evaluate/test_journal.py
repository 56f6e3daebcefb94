"""Rows on disk: resumed, never doubled, never mixed."""

import json
import subprocess
import sys

import pytest

from lightning_dr.evaluate.journal import Journal, alone_in, waiting_batches

SETTINGS = {"seed": 0, "evaluator": {"class": "x"}}


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_rows_are_on_disk_when_they_are_added_and_come_back(tmp_path):
    journal = Journal(tmp_path / "new" / "rows.jsonl", SETTINGS)
    journal.add([{"id": "0:a", "scores": [[None, 0.5]]}])
    assert lines(journal.path) == [{"settings": SETTINGS}, {"id": "0:a", "scores": [[None, 0.5]]}]
    again = Journal(journal.path, SETTINGS)
    assert again.entries == journal.entries
    again.add([{"id": "1:b  c"}])
    assert list(Journal(journal.path, SETTINGS).entries) == ["0:a", "1:b  c"]


@pytest.mark.parametrize("cut", [1, 5, 12])
def test_a_cut_last_line_is_taken_out_and_its_row_waits(tmp_path, cut):
    journal = Journal(tmp_path / "rows.jsonl", SETTINGS)
    journal.add([{"id": "a"}, {"id": "b", "text": "ü"}])
    whole = journal.path.read_bytes()
    journal.path.write_bytes(whole[:-cut])
    again = Journal(journal.path, SETTINGS)
    assert list(again.entries) == ["a"]
    again.add([{"id": "b", "text": "ü"}])
    assert journal.path.read_bytes() == whole


def test_a_cut_first_line_begins_the_file_again(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"settings": {"se')
    assert Journal(path, SETTINGS).entries == {}
    assert lines(path) == [{"settings": SETTINGS}]


def test_other_settings_are_named(tmp_path):
    Journal(tmp_path / "rows.jsonl", SETTINGS).add([{"id": "a"}])
    with pytest.raises(ValueError, match=r"rows\.jsonl holds rows that were made with another `seed` and another `size`.*another `--out`"):
        Journal(tmp_path / "rows.jsonl", SETTINGS | {"seed": 1, "size": 2})


def test_lines_that_are_no_rows_are_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('[1]\n{"id": "a"}\n')
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 1: must hold the settings"):
        Journal(path, SETTINGS)
    Journal(tmp_path / "other.jsonl", SETTINGS).add([{"id": "a"}])
    with (tmp_path / "other.jsonl").open("a") as file:
        file.write('{"scores": 1}\n')
    with pytest.raises(ValueError, match=r"other\.jsonl, line 3: must be a row of results with an `id`"):
        Journal(tmp_path / "other.jsonl", SETTINGS)


def test_batches_begin_at_fixed_rows_whatever_is_done(tmp_path, capsys):
    journal = Journal(tmp_path / "rows.jsonl", SETTINGS)
    ids = list("abcdefg")
    assert list(waiting_batches(journal, ids, 3, "name")) == [(0, [0, 1, 2]), (3, [3, 4, 5]), (6, [6])]
    journal.add([{"id": "a"}, {"id": "b"}, {"id": "c"}, {"id": "e"}])
    assert list(waiting_batches(journal, ids, 3, "name")) == [(3, [3, 5]), (6, [6])]
    bar = capsys.readouterr().err
    assert "4/7" in bar, "the bar begins at what is done"
    assert "row/s" in bar


def test_two_processes_do_not_write_into_one_folder(tmp_path):
    hold = f"""from pathlib import Path
from lightning_dr.evaluate.journal import alone_in
with alone_in(Path({str(tmp_path)!r})):
    print(flush=True)
    input()"""
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with pytest.raises(ValueError, match="is being written by another process.*another `--out`"), alone_in(tmp_path):
            pass
        other.kill()
    with alone_in(tmp_path):
        assert (tmp_path / ".lock").exists()
