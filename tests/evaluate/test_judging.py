"""In which orders sets are shown, and what is done with a set that can't be judged."""

import math
from types import SimpleNamespace

import pytest
import torch

from lightning_dr.evaluate.journal import Journal
from lightning_dr.evaluate.judging import describe, fill, judge
from lightning_dr.evaluate.sets import ResponseSet
from lightning_dr.evaluators import LengthEvaluator
from lightning_dr.modules.backbone import Backbone, BackboneConfig, ContextError
from lightning_dr.modules.judges import GEval
from lightning_dr.prompts import FOLDER
from lightning_dr.records import Prompt


def response_set(name, *responses):
    prompt = Prompt(id=name, messages=({"role": "user", "content": f"about {name}"},))
    return ResponseSet(id=name, group="", prompt=prompt, responses=responses, quality=(math.nan,) * len(responses))


class Place:
    """Scores a response by the place at which it is shown, and keeps what it was shown."""

    def __init__(self):
        self.shown = []

    def scores(self, prompts, responses):
        self.shown += [tuple(texts) for texts in responses]
        return [torch.arange(len(texts)) for texts in responses]


class Fussy(LengthEvaluator):
    """Can't read prompts about long things."""

    def scores(self, prompts, responses):
        if any("long" in prompt.messages[0]["content"] for prompt in prompts):
            raise ContextError("too long")
        return super().scores(prompts, responses)


def test_both_orders_are_shown_and_put_back():
    evaluator = Place()
    (found,) = judge(evaluator, [response_set("x", "a", "b", "c")], both_orders=True)
    assert evaluator.shown == [("a", "b", "c"), ("c", "b", "a")]
    assert found == ((0, 1, 2), (2, 1, 0))


def test_one_order_is_shuffled_by_the_id():
    evaluator = Place()
    sets = [response_set(str(number), "a", "b", "c") for number in range(40)]
    found = judge(evaluator, sets, both_orders=False)
    for orders, shown in zip(found, evaluator.shown, strict=True):
        assert [dict(zip("abc", orders[0], strict=True))[text] for text in shown] == [0, 1, 2]
    assert len({shown for shown in evaluator.shown}) == 6, "all orders come up"
    again = Place()
    judge(again, sets[::-1], both_orders=False)
    assert again.shown == evaluator.shown[::-1], "and depend on nothing but the id"


def test_responses_that_are_looked_at_alone_are_scored_once():
    (found,) = judge(LengthEvaluator(half=1), [response_set("x", "a", "bcd")], both_orders=True)
    assert found == ((0.5, 0.75),)


def test_a_pairwise_judge_is_asked_about_both_orders_at_once():
    judged = SimpleNamespace(in_both_orders=lambda prompts, pairs: [torch.tensor([[0.75, 0.25], [0.5, 0.5]]) for _ in pairs])
    assert judge(judged, [response_set("x", "a", "b")], both_orders=True) == [((0.75, 0.25), (0.5, 0.5))]


def test_a_set_beyond_the_context_is_not_judged_and_the_others_are(caplog):
    sets = [response_set("one", "a", "bb"), response_set("long", "a", "bb"), response_set("two", "a", "bb")]
    one, long, two = judge(Fussy(), sets, both_orders=True)
    assert one == two == judge(LengthEvaluator(), sets[:1], both_orders=True)[0]
    assert all(map(math.isnan, long[0]))
    assert "long is not judged" in caplog.text


def test_the_context_of_the_model_is_what_counts():
    backbone = Backbone(BackboneConfig(name_or_path="toy", dtype="float32"))
    backbone.check_context(1024)
    with pytest.raises(ContextError, match=r"The context of 'toy' is 1024 tokens, got 1025"):
        backbone.check_context(1025)


def test_rows_are_written_a_batch_at_a_time_and_not_judged_twice(tmp_path):
    class Dies(Place):
        def scores(self, prompts, responses):
            if len(self.shown) >= 4:
                raise KeyboardInterrupt
            return super().scores(prompts, responses)

    sets = [response_set(name, "a", "b") for name in "uvwxyz"]
    path, device = tmp_path / "rows.jsonl", torch.device("cpu")
    with pytest.raises(KeyboardInterrupt):
        fill(Journal(path, {}), Dies(), sets, False, "name", 2, 0, device)
    assert list(Journal(path, {}).entries) == ["u", "v", "w", "x"]
    rest = Place()
    fill(Journal(path, {}), rest, sets, False, "name", 2, 0, device)
    assert len(rest.shown) == 2
    assert list(Journal(path, {}).entries) == list("uvwxyz")


def test_a_row_draws_the_same_whether_the_run_was_stopped_or_not(tmp_path):
    class Random:
        def scores(self, prompts, responses):
            return [torch.rand(len(texts)) for texts in responses]

    sets = [response_set(name, "a", "b") for name in "uvwxyz"]
    whole, parts, device = Journal(tmp_path / "whole", {}), Journal(tmp_path / "parts", {}), torch.device("cpu")
    fill(whole, Random(), sets, False, "name", 2, 0, device)
    fill(parts, Random(), sets[:2], False, "name", 2, 0, device)
    fill(parts, Random(), sets, False, "name", 2, 0, device)
    scores = [[entry["scores"] for entry in journal.entries.values()] for journal in (whole, parts)]
    assert scores[0] == scores[1]
    assert len({str(row) for row in scores[0]}) == 6


def test_an_evaluator_is_described_by_its_settings():
    one, other = describe(GEval(scale=5)), describe(GEval(scale=7))
    assert one["class"] == "lightning_dr.modules.judges.GEval"
    assert one == describe(GEval(scale=5))
    assert {key for key in one if one[key] != other[key]} == {"labels", "scale"}
    assert str(FOLDER) not in str(one), "where the package lies makes no difference"
    assert "Answer with one number" in str(one["template"])
    assert describe(GEval(backbone=BackboneConfig(name_or_path="x")))["own"]["name_or_path"] == "x"
