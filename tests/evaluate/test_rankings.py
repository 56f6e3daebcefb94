"""Official rows to response sets, and scores to what the authors report: small examples by hand, real files by plain Python."""

import copy
import json
import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from lightning_dr.datamodules.sources import RowFiltered, RowProblem
from lightning_dr.evaluate.evaluator import read_sets, scored_set
from lightning_dr.evaluate.rankings import BENCHMARKS
from lightning_dr.evaluate.rankings.reward_bench import SECTIONS, SIZES
from lightning_dr.evaluate.sets import Scored, accuracy, best, tabulate, with_intervals
from lightning_dr.evaluators import LengthEvaluator

DATA = Path(__file__).parents[2].parent / "shared" / "data"
NAN = math.nan


def real(path):
    if not (DATA / path).exists():
        pytest.skip(f"needs ../shared/data/{path}")
    return DATA / path


def report(name, *scored):
    return BENCHMARKS[name].report(tabulate(scored, BENCHMARKS[name]))


def pair(*orders, id="0:x", group="g", quality=(1.0, 0.0)):  # noqa: A002
    return Scored(id=id, group=group, quality=quality, orders=orders)


RIGHT, WRONG, TIE, UNKNOWN = (0.9, 0.1), (0.1, 0.9), (0.5, 0.5), (NAN, 0.5)

ROWS = {
    "llmbar": {"input": "Q", "output_1": "a", "output_2": "b", "label": 2},
    "judge_bench": {
        **{"pair_id": "p", "question": "Q", "response_A": "a", "response_B": "b", "source": "mmlu-pro-law", "label": "B>A"},
    },
    "rm_bench": {"id": 8, "prompt": "Q", "chosen": ["a", "b", "c"], "rejected": ["d", "e", "f"], "domain": "math"},
    "reward_bench": {"id": 3, "prompt": "Q", "chosen": "a", "rejected": "b", "subset": "hep-js"},
    "reward_bench_2": {"id": "tied:3", "prompt": "Q", "chosen": ["a", "b"], "rejected": ["c"], "subset": "Ties"},
    "ppe_human": {"question_id": "q", "prompt": "Q", "response_1": "a", "response_2": "b", "winner": "model_b", "language": "English"},
    "ppe_correctness": {
        **{"question_id": 7, "prompt": "Q", "response_1": "a", "response_2": "b", "response_3": "c"},
        **{"scores": [True, False, False], "sampled_conflict_pairs": [[2, 0]]},
    },
    "nectar": {"prompt": "\n\nHuman: Q\n\nAssistant: ", "answers": [{"answer": "a", "rank": 2.0}, {"answer": "b", "rank": 1.0}]},
}
READ = {  # group, responses, quality
    "llmbar": ("file", ("a", "b"), (0, 1)),
    "judge_bench": ("Knowledge", ("a", "b"), (0, 1)),
    "rm_bench": ("math", tuple("abcdef"), (1, 1, 1, 0, 0, 0)),
    "reward_bench": ("hep-js", ("a", "b"), (1, 0)),
    "reward_bench_2": ("Ties", ("a", "b", "c"), (1, 1, 0)),
    "ppe_human": ("English", ("a", "b"), (0, 1)),
    "ppe_correctness": ("file", ("a", "b", "c"), (1, 0, 0)),
    "nectar": ("file", ("a", "b"), (-2, -1)),
}
OPTIONAL = {"id", "question_id", "language", "domain"}
OFFICIAL_ID = {"judge_bench", "rm_bench", "reward_bench", "reward_bench_2", "ppe_human", "ppe_correctness"}
NEEDED = [
    (name, column) for name, row in ROWS.items() for column in row if column not in OPTIONAL or (name, column) == ("reward_bench_2", "id")
]


class TestRead:
    def test_every_benchmark_is_here(self):
        assert set(ROWS) == set(BENCHMARKS) == set(READ)

    @pytest.mark.parametrize("name", ROWS)
    def test_official_rows(self, name):
        row = copy.deepcopy(ROWS[name])
        found = BENCHMARKS[name].read(row, "file")
        assert row == ROWS[name]
        assert (found.group, found.responses, found.quality) == READ[name]
        assert found.prompt.messages == ({"role": "user", "content": "Q"},)

    @pytest.mark.parametrize(("name", "column"), NEEDED)
    def test_a_missing_column_is_named(self, name, column):
        row = {key: value for key, value in ROWS[name].items() if key != column}
        with pytest.raises(RowProblem, match=f"`{column}`"):
            BENCHMARKS[name].read(row, "file")

    @pytest.mark.parametrize("name", ROWS)
    def test_ids_are_official_or_tell_prompts_apart(self, name):
        column = "input" if name == "llmbar" else "question" if name == "judge_bench" else "prompt"
        one, other = (BENCHMARKS[name].read(ROWS[name] | {column: text}, "file") for text in ("Q", "R"))
        official = {str(value) for key, value in ROWS[name].items() if key in ("id", "question_id", "pair_id")}
        assert one.id == "file" if name == "llmbar" else one.prompt.id in one.id
        if name in OFFICIAL_ID:
            assert {one.prompt.id} == {other.prompt.id} == official
        else:
            assert len({one.prompt.id, other.prompt.id}) == 2

    def test_a_prompt_without_its_id_gets_one(self):
        row = {key: value for key, value in ROWS["rm_bench"].items() if key != "id"}
        one, other = (BENCHMARKS["rm_bench"].read(row | {"prompt": text}, "file").prompt.id for text in ("Q", "R"))
        assert len(one) == len(other) == 12
        assert one != other

    @pytest.mark.parametrize(
        ("name", "change", "message"),
        [
            ("llmbar", {"label": 3}, "`label` must be 1 or 2, got 3"),
            ("llmbar", {"label": "1"}, "`label` must be 1 or 2, got '1'"),
            ("llmbar", {"label": True}, "`label` must be 1 or 2, got True"),
            ("llmbar", {"output_1": " \n"}, "`output_1` is empty"),
            ("llmbar", {"output_2": None}, "`output_2` must be text, got NoneType"),
            ("llmbar", {"output_1": "ab\ud800"}, "`output_1` holds half of a surrogate pair at character 3"),
            ("llmbar", {"input": "\udfff"}, "`input` holds half of a surrogate pair at character 1"),
            ("llmbar", {"input": ...}, "`input` is missing; the columns are"),
            ("judge_bench", {"label": "A=B"}, "`label` must be 'A>B' or 'B>A', got 'A=B'"),
            ("judge_bench", {"source": "other"}, "`source` must begin with one of"),
            ("judge_bench", {"response_B": ""}, "`response_B` is empty"),
            ("rm_bench", {"chosen": ["a", "b"]}, "`chosen` must be a list of 3 texts"),
            ("rm_bench", {"rejected": ["a", "", "c"]}, r"`rejected\[2\]` is empty"),
            ("rm_bench", {"domain": "poetry"}, "`domain` must be one of .* got 'poetry'"),
            ("reward_bench", {"subset": "new"}, "`subset` must be one of"),
            ("reward_bench_2", {"id": "x"}, "`id` must be ref:<n> or tied:<n>"),
            ("reward_bench_2", {"rejected": []}, "`rejected` must be a list of some texts"),
            ("ppe_human", {"winner": "a"}, "`winner` must be one of"),
            ("ppe_correctness", {"scores": [1, 2, 0]}, "`scores` must be a list of right or wrong"),
            ("ppe_correctness", {"scores": []}, "`scores` must be a list of right or wrong"),
            ("ppe_correctness", {"sampled_conflict_pairs": [[0.0, 1.0]]}, "`sampled_conflict_pairs` must be pairs"),
            ("rm_bench", {"domain": ["math"]}, "`domain` must be one of"),
            ("ppe_correctness", {"sampled_conflict_pairs": [[1, 2]]}, "`sampled_conflict_pairs` must be pairs of a right and a wrong"),
            ("ppe_correctness", {"sampled_conflict_pairs": [[0, 9]]}, "`sampled_conflict_pairs` must be pairs"),
            ("ppe_correctness", {"response_3": ...}, "`response_3` is missing"),
            ("nectar", {"answers": [{"answer": "a", "rank": 1}, {"answer": "b", "rank": 1}]}, "no two answers of different rank"),
            ("nectar", {"answers": [{"answer": "\ud83d", "rank": 1}]}, r"`answers\[1\].answer` holds half of a surrogate pair"),
            ("nectar", {"answers": [{"answer": "", "rank": 1}]}, r"`answers\[1\].answer` is not text"),
        ],
    )
    def test_bad_rows_are_named(self, name, change, message):
        row = {key: value for key, value in (ROWS[name] | change).items() if value is not ...}
        with pytest.raises(RowProblem, match=message):
            BENCHMARKS[name].read(row, "file")

    def test_rows_that_the_authors_leave_out(self):
        for name, change in (("ppe_human", {"winner": "tie (bothbad)"}), ("ppe_correctness", {"sampled_conflict_pairs": []})):
            with pytest.raises(RowFiltered):
                BENCHMARKS[name].read(ROWS[name] | change, "file")

    def test_the_domain_may_be_in_the_name_of_the_file(self):
        row = {key: value for key, value in ROWS["rm_bench"].items() if key != "domain"}
        assert BENCHMARKS["rm_bench"].read(row, "safety-refuse_filtered").group == "safety-refuse"


class TestHub:
    def test_llmbar_is_read_from_where_its_script_takes_it(self):
        hub = BENCHMARKS["llmbar"].hub
        start = "https://raw.githubusercontent.com/princeton-nlp/LLMBar/main/Dataset/LLMBar/"
        assert hub["Natural"].url == start + "Natural/dataset.json"
        assert hub["Adversarial_GPTOut"].url == start + "Adversarial/GPTOut/dataset.json"


class TestNumbers:
    @pytest.mark.parametrize("orders", [1, 2])
    @pytest.mark.parametrize("name", ROWS)
    def test_an_unjudged_row_has_no_numbers(self, name, orders):
        one = BENCHMARKS[name].read(ROWS[name], "file")
        known = tuple(0.5 + quality / 10 for quality in one.quality)
        scores = [(NAN, *known[1:]), known][:orders]
        row = Scored(id=f"0:{one.id}", group=one.group, quality=one.quality, pairs=one.pairs, orders=tuple(scores))
        assert all(math.isnan(value) for value in report(name, row).values())

    def test_accuracy_is_the_mean_over_orders_and_pairs(self):
        assert accuracy(pair(RIGHT, WRONG)) == accuracy(pair(TIE)) == 0.5
        assert accuracy(pair(TIE), tie=0.0) == 0.0
        assert math.isnan(accuracy(pair(RIGHT, UNKNOWN)))
        # of three pairs one is right, one tied, one wrong; the unranked last response counts for nothing
        four = Scored(id="", group="", quality=(3.0, 2.0, 1.0, NAN), orders=((0.5, 0.2, 0.5, NAN),))
        assert accuracy(four) == pytest.approx((1 + 0.5 + 0) / 3)

    def test_best_is_shared_among_tied_ones(self):
        assert best(Scored(id="", group="", quality=(1.0, 0.0, 0.0), orders=((0.7, 0.7, 0.1), (0.9, 0.2, 0.1)))) == 0.75
        assert math.isnan(best(pair(UNKNOWN)))

    def test_llmbar(self):
        found = report(
            "llmbar", pair(RIGHT, RIGHT), pair(RIGHT, WRONG), pair(TIE, RIGHT), pair(RIGHT, UNKNOWN), pair((0.6, 0.4), (0.1, 0.9))
        )
        assert found["accuracy, mean of both orders"] == pytest.approx((1 + 0.5 + 0.75 + 0.5) / 4)
        assert found["agreement of both orders"] == 0.25
        assert found["accuracy of the mean score of both orders"] == pytest.approx((1 + 0.5 + 1 + 0) / 4)

    def test_a_tie_is_no_agreement_for_llmbar_but_one_for_judge_bench(self):
        # LLMBar takes the first output of two equal ratings, so each order names another one; JudgeBench has a verdict A=B
        assert report("llmbar", pair(TIE))["agreement of both orders"] == 0
        assert report("llmbar", pair(TIE))["accuracy, mean of both orders"] == 0.5
        assert report("judge_bench", pair(TIE, TIE))["inconsistent between orders"] == 0

    def test_llmbar_by_subset(self):
        found = report("llmbar", pair(RIGHT, group="Natural"), pair(WRONG, group="Adversarial_Manual"))
        assert (found["Natural: accuracy"], found["Adversarial_Manual: accuracy"]) == (1, 0)

    def test_judge_bench_counts_a_pair_whose_orders_add_up(self):
        orders = [(RIGHT, RIGHT), (RIGHT, TIE), (RIGHT, WRONG), (TIE, TIE), (WRONG, WRONG), (RIGHT, UNKNOWN)]
        found = report("judge_bench", *(pair(*both, group="Math") for both in orders), pair(RIGHT, RIGHT, group="Coding"))
        assert found["correct over both orders"] == 3 / 6
        assert found["Math: correct over both orders"] == 2 / 5
        assert found["inconsistent between orders"] == pytest.approx(2 / 6)
        assert found["accuracy, mean of both orders, ties half"] == pytest.approx((1 + 0.75 + 0.5 + 0.5 + 0 + 1) / 6)

    def test_rm_bench_by_the_matrix(self):
        # right answers 5, 3, 1 in rising style; wrong ones 4, 3, 2
        one = Scored(id="", group="chat", quality=(1, 1, 1, 0, 0, 0), orders=((5, 3, 1, 4, 3, 2),))
        # wins: row 1: all three; row 2: tie with the second, beats the third; row 3: none
        found = report("rm_bench", one)
        assert found["easy"] == 0  # (2,1), (3,1), (3,2)
        assert found["normal"] == pytest.approx(1 / 3)  # (1,1) won, (2,2) tied, (3,3) lost
        assert found["hard"] == 1  # (1,2), (1,3), (2,3)
        assert found["average"] == pytest.approx((0 + 1 / 3 + 1) / 3)
        assert found["average, ties half"] == pytest.approx((0 + 1.5 / 3 + 1) / 3)

    def test_rm_bench_weighs_domains_alike_and_the_two_kinds_of_safety_as_one(self):
        won, lost = (1, 1, 1, 0, 0, 0), (0, 0, 0, 1, 1, 1)
        rows = [("chat", won), ("chat", won), ("chat", won), ("math", lost), ("safety-refuse", won), ("safety-response", lost)]
        found = report("rm_bench", *(Scored(id="", group=group, quality=won, orders=(scores,)) for group, scores in rows))
        assert (found["chat"], found["math"], found["safety"]) == (1, 0, 0.5)
        assert found["average"] == found["hard"] == 0.5

    def test_reward_bench_weighs_subsets_as_its_authors(self):
        rows = [
            pair(RIGHT, group="math-prm"),
            pair(RIGHT, group="math-prm"),
            pair(WRONG, group="hep-js"),
            pair(TIE, group="alpacaeval-easy"),
        ]
        found = report("reward_bench", *rows, pair(UNKNOWN, group="hep-js"))
        assert found["Reasoning"] == pytest.approx(984 / (984 + 164))
        assert found["Chat"] == 0, "a tie is wrong for reward models"
        assert found["score"] == pytest.approx((984 / 1148 + 0) / 2)
        assert found["score, ties half"] == pytest.approx((984 / 1148 + 0.5) / 2)
        assert sorted(subset for subsets in SECTIONS.values() for subset in subsets) == sorted(SIZES)
        assert sum(SIZES.values()) == 2985 + 984 - 447  # the filtered set, with math-prm at its weight

    def test_reward_bench_2_is_the_mean_of_its_subsets(self):
        four = (1.0, 0.0, 0.0, 0.0)
        rows = [
            Scored(id="0:a", group="Math", quality=four, orders=((0.9, 0.1, 0.2, 0.3),)),
            Scored(id="1:b", group="Math", quality=four, orders=((0.9, 0.9, 0.2, 0.3),)),
            Scored(id="2:c", group="Focus", quality=four, orders=((0.1, 0.9, 0.2, 0.3),)),
        ]
        found = report("reward_bench_2", *rows)
        assert (found["Math"], found["Focus"], found["score"]) == (0.75, 0, 0.375)
        assert "Ties" not in found

    def test_the_ties_of_reward_bench_2(self):
        def ties(name, good, bad):
            quality = (1.0,) * len(good) + (0.0,) * len(bad)
            return Scored(id=f"7:{name}", group="Ties", quality=quality, orders=((*good, *bad),))

        rows = [
            ties("ref:1", [0.7], [0.5]),  # right, by 0.2
            ties("tied:1", [0.9, 0.8], [0.3]),  # right, by 0.5, more than the spread of 0.1; so are the 0.2
            ties("ref:2", [0.2], [0.6]),  # wrong, by 0.4
            ties("tied:2", [0.9, 0.4], [0.5]),  # wrong, by 0.1, spread 0.5
            ties("ref:3", [0.6], [0.5]),  # right, by 0.1
            ties("tied:3", [0.8, 0.6], [0.2]),  # right, by 0.4, more than the spread of 0.2; the 0.1 are not
            ties("ref:4", [0.6], [0.3]),  # right, by 0.3
            ties("tied:4", [0.6, 0.6], [0.6]),  # wrong, by 0, not more than the spread of 0, by which nothing can be divided
            ties("tied:5", [0.9, 0.7], [0.1]),  # right, without a reference
            ties("ref:6", [0.9], [NAN]),  # unknown
            ties("tied:6", [0.9, 0.8], [0.1]),  # right
        ]
        tied, ref, preferred, both = 4 / 6, 3 / 4, 2 / 4, 1 / 4
        ratio = (math.tanh(0.2 / 0.1 - 1) + math.tanh(-0.4 / 0.5 - 1) + math.tanh(0.1 / 0.2 - 1)) / 3
        found = report("reward_bench_2", *rows)
        assert found["Ties"] == found["score"] == pytest.approx(0.3 * tied + 0.3 * ref + 0.2 * preferred + 0.2 * both + 0.01 * ratio)

    def test_ppe(self):
        found = report("ppe_human", pair(RIGHT, group="English"), pair(TIE, group="English"), pair(WRONG, group="other languages"))
        assert found["accuracy"] == pytest.approx(1 / 3)
        assert (found["English: accuracy"], found["accuracy, ties half"]) == (0.5, 0.5)
        three = {"quality": (1.0, 0.0, 0.0), "orders": ((0.5, 0.4, 0.9),)}
        rows = [Scored(id="", group="MATH", pairs=((0, 1),), **three), Scored(id="", group="GPQA", pairs=((2, 0), (0, 1)), **three)]
        found = report("ppe_correctness", *rows)
        assert (found["MATH: accuracy"], found["GPQA: accuracy"], found["accuracy"]) == (1, 0.5, 0.75)
        assert found["best of K is right"] == 0
        shared = Scored(id="", group="MATH", pairs=((0, 1),), quality=(1.0, 0.0, 0.0), orders=((0.9, 0.1, 0.9),))
        found = report("ppe_correctness", *rows, shared)
        assert (found["MATH: best of K is right"], found["GPQA: best of K is right"], found["best of K is right"]) == (0.25, 0, 0.125)

    def test_ranked_lists(self):
        rows = [
            Scored(id="", group="f", quality=(-1.0, -2.0, -3.0), orders=((0.9, 0.1, 0.5),)),  # pairs: right, right, wrong
            Scored(
                id="", group="f", quality=(-1.0, -1.0, NAN), orders=((0.9, 0.1, 0.95),)
            ),  # nothing is ordered; the unranked one is on top
        ]
        found = report("nectar", rows[0])
        assert found == {"pairs ordered right, ties half": pytest.approx(2 / 3), "best answer scored highest": 1}
        assert math.isnan(accuracy(rows[1]))


def test_intervals_hold_the_value_and_narrow_with_more_rows():
    def made(n):
        rng = np.random.default_rng(0)
        return [pair(RIGHT if right else WRONG) for right in rng.random(n) < 0.7]

    few, many = (with_intervals(tabulate(made(n), BENCHMARKS["llmbar"]), BENCHMARKS["llmbar"].report) for n in (25, 400))
    for found in (few, many):
        assert all(value.low <= value.mean <= value.high for value in found.values())
    name = "accuracy, mean of both orders"
    assert few[name].high - few[name].low > 2.5 * (many[name].high - many[name].low)
    half = 1.96 * math.sqrt(many[name].mean * (1 - many[name].mean) / 400)
    assert many[name].high - many[name].mean == pytest.approx(half, rel=0.2)


def length_report(name, *paths):
    sets = read_sets(BENCHMARKS[name], [str(path) for path in paths], None)
    scores = LengthEvaluator().scores([], [one.responses for one in sets])
    return len(sets), report(name, *(scored_set(one, [values.tolist()]) for one, values in zip(sets, scores, strict=True)))


def half(one, other):
    return 1.0 if one > other else 0.5 if one == other else 0.0


class TestRealFiles:
    """What preferring the longer answer gets, by the package and by a few lines of plain Python on the raw file."""

    @pytest.mark.parametrize(("file", "rows"), [("Natural", 100), ("Adversarial_Neighbor", 134)])
    def test_llmbar(self, file, rows):
        path = real(f"llmbar/{file}.json")
        count, found = length_report("llmbar", path)
        lengths = [(len(r["output_1"]), len(r["output_2"]), r["label"]) for r in json.loads(path.read_text())]
        assert count == len(lengths) == rows
        plain = sum(half(a, b) if label == 1 else half(b, a) for a, b, label in lengths) / rows
        assert found["accuracy, mean of both orders"] == pytest.approx(plain, abs=1e-12)

    def test_rm_bench(self):
        path = real("rm_bench/chat_filtered.json")
        count, found = length_report("rm_bench", path)
        rows = json.loads(path.read_text())
        assert count == len(rows) == 129
        cells = {(i, j): sum(len(r["chosen"][i]) > len(r["rejected"][j]) for r in rows) / 129 for i in range(3) for j in range(3)}
        levels = {"easy": [(1, 0), (2, 0), (2, 1)], "normal": [(0, 0), (1, 1), (2, 2)], "hard": [(0, 1), (0, 2), (1, 2)]}
        for level, places in levels.items():
            assert found[level] == pytest.approx(sum(cells[place] for place in places) / 3, abs=1e-12)
        assert found["average"] == pytest.approx(sum(cells[place] for places in levels.values() for place in places) / 9, abs=1e-12)

    def test_judge_bench(self):
        path = real("judgebench/dataset=judgebench,response_model=claude-3-5-sonnet-20240620.jsonl")
        count, found = length_report("judge_bench", path)
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert count == len(rows) == 270
        right = [(len(r["response_A"]) - len(r["response_B"])) * (1 if r["label"] == "A>B" else -1) for r in rows]
        assert found["correct over both orders"] == pytest.approx(sum(d > 0 for d in right) / 270, abs=1e-12)
        maths = [d for d, r in zip(right, rows, strict=True) if r["source"] == "livebench-math"]
        assert found["Math: correct over both orders"] == pytest.approx(sum(d > 0 for d in maths) / len(maths), abs=1e-12)

    @pytest.mark.parametrize(("file", "rows"), [("alpaca_eval_ranked", 470), ("alpaca_eval_length_balanced", 200)])
    def test_ranked_lists(self, file, rows):
        path = real(f"ranked/{file}.jsonl")
        count, found = length_report("nectar", path)
        lists = [json.loads(line)["answers"] for line in path.read_text().split("\n") if line]
        assert count == len(lists) == rows
        plain = []
        for answers in lists:
            pairs = [sorted(two, key=lambda a: a["rank"]) for two in combinations(answers, 2) if two[0]["rank"] != two[1]["rank"]]
            plain.append(sum(half(len(a["answer"]), len(b["answer"])) for a, b in pairs) / len(pairs))
        assert found["pairs ordered right, ties half"] == pytest.approx(sum(plain) / rows, abs=1e-12)
