import json
import math

import pytest

from lightning_dr.datamodules import BadRowError, NectarAnchorDataModule
from lightning_dr.datamodules.nectar import parse_answers
from lightning_dr.datamodules.sources import RowProblem


def row(*answers, prompt="\n\nHuman: Hi\n\nAssistant: "):
    return {"prompt": prompt, "answers": [{"answer": text, "model": "same", "rank": rank} for text, rank in answers]}


GOOD = row(("a", 2.0), ("b", 1.0))
TIED = row(("a", 1.0), ("b", 1.0))


@pytest.fixture
def build(tmp_path):
    def build(rows, **kwargs):
        path = tmp_path / "lists.jsonl"
        path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in rows) + "\n")
        return NectarAnchorDataModule(str(path), **{"batch_size": 1} | kwargs)

    return build


def only(module):
    module.setup("fit")
    return module.batch(0).anchors[0]


def test_the_order_of_the_row_is_kept_and_ranks_are_floats(build):
    ranked = only(build([row(("a", 3), ("b", 1), ("c", 2))]))
    assert ranked.answers == ("a", "b", "c")
    assert ranked.ranks == (3.0, 1.0, 2.0)
    assert all(isinstance(rank, float) for rank in ranked.ranks)


def test_several_answers_of_one_model_are_all_kept(build):
    assert len(only(build([row(*((f"a{n}", float(n)) for n in range(1, 8)))])).answers) == 7


def test_a_seventh_answer_that_repeats_another_is_dropped_at_its_worse_rank(build):
    answers = [(f"a{n}", float(n)) for n in range(1, 7)] + [("a2", 7.0)]
    ranked = only(build([row(*answers)]))
    assert ranked.answers == ("a1", "a2", "a3", "a4", "a5", "a6")
    assert ranked.ranks == (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)


def test_a_repeated_answer_without_a_rank_stays_unranked(build):
    ranked = only(build([row(("a", 2.0), ("b", 1.0), ("c", None), ("c", None))]))
    assert ranked.answers == ("a", "b", "c")
    assert math.isnan(ranked.ranks[2])


def test_a_list_whose_only_different_ranks_are_missing_is_bad(build):
    with pytest.raises(BadRowError, match=r"lists\.jsonl, row 1: `answers` has no two answers of different rank"):
        build([row(("a", 1.0), ("b", None))]).setup("fit")


def test_lists_that_cleaning_makes_too_short_are_left_out_and_counted(build, caplog):
    module = build([GOOD, row(("a", 1.0), ("a", 2.0))])
    with caplog.at_level("WARNING"):
        module.setup("fit")
    assert module.train_rows == [0]
    assert "1 of 2 rows left out: 1 × fewer than min_answers = 2 different answers" in caplog.text


def test_counts_are_logged_once_by_reason(build, caplog):
    module = build([GOOD, TIED, TIED, "{broken"], bad_rows="skip")
    with caplog.at_level("WARNING", logger="lightning_dr"):
        module.setup("fit")
        module.setup("fit")
    (record,) = [record for record in caplog.records if record.name.startswith("lightning_dr")]
    assert "3 of 4 rows left out: 2 × `answers` has no two answers of different rank; 1 × the row is not a JSON object" in record.message


def test_a_blank_line_is_no_row_even_in_a_file_with_a_broken_one(build, caplog):
    module = build([GOOD, "", "{broken", GOOD, ""], bad_rows="skip")
    with caplog.at_level("WARNING"):
        module.setup("fit")
    assert module.train_rows == [0, 2]
    assert "1 of 3 rows left out" in caplog.text


def test_a_second_setup_does_not_hide_a_bad_row(build):
    module = build([GOOD, TIED])
    for _ in range(2):
        with pytest.raises(BadRowError, match="row 2"):
            module.setup("fit")


def test_rows_stay_in_the_dataset(build):
    module = build([GOOD] * 5)
    module.setup("fit")
    assert type(module.rows).__name__ == "Dataset"
    assert module.train_rows == [0, 1, 2, 3, 4]


def test_answers_as_columns():
    assert parse_answers({"answer": ["a", "b"], "rank": [1.0, None]})[0] == ("a", 1.0)
    for columns in ({"answer": ["a"], "rank": [1.0, 2.0]}, {"answer": "a", "rank": 1.0}):
        with pytest.raises(RowProblem, match="`answers` has columns that are not lists of the same length"):
            parse_answers(columns)


@pytest.mark.parametrize("rank", [True, math.inf, "1"])
def test_ranks_that_are_no_numbers(rank):
    with pytest.raises(RowProblem, match=r"`answers\[1\].rank` is not a number"):
        parse_answers([{"answer": "a", "rank": rank}])
