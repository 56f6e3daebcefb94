import json

import pytest

from lightning_dr.datamodules.sources import BadRowError, load_rows, usable_rows

ROW = {"prompt": "hi", "answers": [{"answer": "a", "rank": 1}, {"answer": "b", "rank": 2}]}
MIXED = [{**ROW, "answers": [{"answer": "a", "rank": rank}]} for rank in (1, "one", 1.5)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.jsonl", b"", r"empty\.jsonl holds no rows"),
        ("blank.jsonl", b"\n\n", r"blank\.jsonl holds no rows"),
        ("empty.json", b"", r"empty\.json holds no rows"),
        ("none.json", b"[]", r"none\.json holds no rows"),
        ("cut.json", json.dumps([ROW, ROW], indent=1).encode()[:-30], r"cut\.json, line \d+, column \d+: "),
        ("rows.csv", b"a,b\n1,2\n", r"`path` must be a \.parquet, \.json, \.jsonl file, got '.*rows\.csv'"),
        ("cut.parquet", b"PAR1xx", r"cut\.parquet can't be read as parquet"),
        ("bytes.jsonl", b"\xff\xfe\x00\x01" * 9, r"bytes\.jsonl must be UTF-8 text, got another byte at position 0"),
    ],
)
def test_a_file_that_can_not_be_read_is_named(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_rows(str(tmp_path / name))


@pytest.mark.parametrize("name", ["nowhere.jsonl", "nowhere.parquet"])
def test_a_file_that_is_not_there(name, tmp_path):
    with pytest.raises(FileNotFoundError, match=rf"`path` must be a file or .* got '.*{name}', which is not there"):
        load_rows(str(tmp_path / name))


def test_a_folder_and_a_name_that_hold_no_dataset(tmp_path):
    for path in (str(tmp_path), "nobody/nothing"):
        with pytest.raises(ValueError, match=rf"`path` must be a .* or the name of a dataset on the Hub, got '{path}': "):
            load_rows(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [("mixed.jsonl", "\n".join(map(json.dumps, MIXED))), ("mixed.json", json.dumps(MIXED))],
)
def test_rows_without_a_common_schema_are_read_one_by_one(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    assert list(load_rows(str(tmp_path / name))) == MIXED


def test_a_byte_order_mark_and_windows_line_ends(tmp_path):
    (tmp_path / "rows.jsonl").write_bytes(b"\xef\xbb\xbf" + "\r\n".join([json.dumps(ROW)] * 2 + ["{broken"]).encode())
    assert list(load_rows(str(tmp_path / "rows.jsonl"))) == [ROW, ROW, None]


def test_text_that_is_not_utf_8_in_a_file_that_can_be_read(tmp_path, caplog):
    rows = [{"prompt": "Name a colour."}, {"prompt": "Nenne die größte Stadt."}]
    (tmp_path / "latin.jsonl").write_bytes("\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode("latin-1"))
    found = load_rows(str(tmp_path / "latin.jsonl"))
    with pytest.raises(BadRowError, match=r"latin\.jsonl, row 2: the text is not UTF-8"):
        usable_rows(found, "latin.jsonl", lambda row: None, "error")
    assert usable_rows(found, "latin.jsonl", lambda row: None, "skip") == [0]
    assert "1 of 2 rows left out" in caplog.text
