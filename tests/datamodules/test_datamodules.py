import json
import math
import os
from pathlib import Path

import datasets
import pytest

from lightning_dr.datamodules import BadRowError, CoEvolutionDataModule, NectarAnchorDataModule, PromptDataModule, sources

SHARED = Path(os.environ.get("LIGHTNING_DR_SHARED_DATA", Path(__file__).parents[3] / "shared" / "data"))
ONE = "\n\nHuman: {}\n\nAssistant: "


def answer(text, rank, model="m"):
    return {"answer": text, "model": model, "rank": rank}


def row(n=0, prompt=None, answers=None):
    answers = [answer(f"a{n}", 2.0), answer(f"b{n}", 1.0), answer(f"c{n}", 3.0)] if answers is None else answers
    return {
        "prompt": ONE.format(f"question {n}") if prompt is None else prompt,
        "answers": answers,
        "turns": 1,
        "num_responses": len(answers),
        "source": ["x"],
        "good_natured": True,
    }


@pytest.fixture
def write(tmp_path):
    def write(rows, kind="jsonl"):
        path = tmp_path / f"rows.{kind}"
        if kind == "parquet":
            datasets.Dataset.from_list(rows).to_parquet(str(path))
        elif kind == "json":
            path.write_text(json.dumps(rows))
        else:
            path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows) + "\n")
        return str(path)

    return write


def nectar(path, **kwargs):
    module = NectarAnchorDataModule(path, **{"batch_size": 1} | kwargs)
    module.setup("fit")
    return module


def only(path, **kwargs):
    """Prompt and list of a file with one row."""
    batch = nectar(path, **kwargs).batch(0)
    return batch.prompts[0], batch.anchors[0]


class TestNectar:
    @pytest.mark.parametrize("kind", ["jsonl", "json", "parquet"])
    def test_reads_its_schema(self, kind, write):
        prompt, ranked = only(write([row()], kind))
        assert prompt.messages == ({"role": "user", "content": "question 0"},)
        assert prompt.id == "rows:0"
        assert dict(zip(ranked.answers, ranked.ranks, strict=True)) == {"a0": 2.0, "b0": 1.0, "c0": 3.0}

    def test_from_the_hub_by_name(self, monkeypatch):
        calls = []

        def load(path, **kwargs):
            calls.append((path, kwargs))
            return datasets.Dataset.from_list([row(n) for n in range(3)])

        monkeypatch.setattr(sources.datasets, "load_dataset", load)
        module = NectarAnchorDataModule(revision="abc")
        module.setup("fit")
        module.setup("fit")
        assert calls == [("berkeley-nest/Nectar", {"name": None, "split": "train", "revision": "abc"})]
        assert len(module.train_rows) == 3

    def test_several_turns_become_chat_messages(self, write):
        text = "\n\nHuman: Hi\n\nAssistant: Hello.\nHow are you?\n\nHuman: Fine: and you?\n\nAssistant: "
        prompt, _ = only(write([row(prompt=text)]))
        assert [m["role"] for m in prompt.messages] == ["user", "assistant", "user"]
        assert prompt.messages[1]["content"] == "Hello.\nHow are you?"

    def test_ties_and_missing_ranks(self, write):
        answers = [answer("a", 1.0), answer("b", 1.0), answer("c", None), {"answer": "d"}, answer("e", 3)]
        _, ranked = only(write([row(answers=answers)]))
        found = dict(zip(ranked.answers, ranked.ranks, strict=True))
        assert (found["a"], found["b"], found["e"]) == (1.0, 1.0, 3.0)
        assert math.isnan(found["c"])
        assert math.isnan(found["d"])

    def test_repeated_answers(self, write):
        path = write([row(answers=[answer("a", 5.0), answer("b", 2.0), answer("a", 1.0), answer("c", None), answer("c", 4.0)])])
        _, ranked = only(path)
        assert dict(zip(ranked.answers, ranked.ranks, strict=True)) == {"a": 1.0, "b": 2.0, "c": 4.0}
        _, ranked = only(path, repeated_answers="keep")
        assert len(ranked.answers) == 5

    @pytest.mark.parametrize("apostrophe", ["'", "’"])
    def test_fixed_refusals(self, apostrophe, write):
        refusal = f"I apologize, but I can{apostrophe}t assist with that request."
        path = write([row(answers=[answer("a", 1.0), answer("b", 2.0), answer(refusal, 3.0)])])
        assert len(only(path)[1].answers) == 3
        assert only(path, refusals="drop")[1].answers == ("a", "b")

    def test_filters_are_counted_and_not_errors(self, write, caplog):
        rows = [
            row(0),
            row(1, prompt=ONE.format("x" * 50)),
            row(2, answers=[answer("y" * 50, 1.0), answer("b", 2.0)]),
            row(3, answers=row()["answers"][:2]),
        ]
        with caplog.at_level("WARNING"):
            module = nectar(write(rows), max_prompt_chars=20, max_answer_chars=20, min_answers=3)
        assert module.train_rows == [0]
        assert "3 of 4 rows left out" in caplog.text
        assert "max_prompt_chars = 20" in caplog.text

    @pytest.mark.parametrize(
        ("bad", "message"),
        [
            (row(prompt=""), "`prompt` has an empty turn"),
            (row(prompt="\n\nHuman: a\n\nAssistant: b"), "does not end with a turn of the user"),
            (row(prompt="\n\nHuman: a\n\nHuman: b\n\nAssistant: "), "two turns of the same speaker"),
            (row(answers=[]), "`answers` is not a list with entries"),
            (row(answers=[answer("a", 1.0), answer("", 2.0)]), r"`answers\[2\].answer` is not text"),
            (row(answers=[answer("a", 1.0), answer("b", 1.0)]), "no two answers of different rank"),
            (row(answers=[answer("a", "first"), answer("b", 1.0)]), r"`answers\[1\].rank` is not a number: 'first'"),
            ({"answers": row()["answers"]}, "nothing under `prompt`; the columns are"),
            ("{broken", "the row is not a JSON object"),
        ],
    )
    def test_a_bad_row_is_named_or_skipped(self, bad, message, write, caplog):
        path = write([row(0), bad, row(2)])
        with pytest.raises(BadRowError, match=rf"rows\.jsonl, row 2: .*{message}.*`bad_rows: skip`"):
            nectar(path)
        with caplog.at_level("WARNING"):
            assert nectar(path, bad_rows="skip").train_rows == [0, 2]
        assert "1 of 3 rows left out" in caplog.text

    def test_missing_file_and_bad_arguments(self):
        with pytest.raises(FileNotFoundError, match=r"`path` must be a file .* got 'nowhere\.jsonl'"):
            nectar("nowhere.jsonl")
        for kwargs in ({"min_answers": 1}, {"bad_rows": "ignore"}, {"repeated_answers": "x"}, {"batch_size": 0}, {"num_val": -1}):
            with pytest.raises(ValueError, match="must be"):
                NectarAnchorDataModule("x", **kwargs)

    @pytest.mark.skipif(not (SHARED / "ranked").is_dir(), reason=f"needs the ranked lists in {SHARED}")
    def test_real_lists(self):
        module = nectar(str(SHARED / "ranked" / "alpaca_eval_ranked.jsonl"), num_val=100, min_answers=7)
        assert len(module.train_rows) + len(module.val_rows) == 470
        batch = module.batch(3)
        assert sorted(batch.anchors[0].ranks) == [1, 2, 3, 4, 5, 6, 7]


class TestPrompts:
    def test_text_turns_and_messages(self, write):
        rows = [{"q": "plain"}, {"q": ONE.format("turn")}, {"q": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}]
        module = PromptDataModule(write(rows), prompt_column="q", batch_size=3)
        module.setup("fit")
        batch = module.batch(0)
        assert batch.anchors == (None, None, None)
        assert {prompt.messages[-1]["content"] for prompt in batch.prompts} == {"plain", "turn", "u"}

    def test_max_rows(self, write):
        module = PromptDataModule(write([{"prompt": str(n)} for n in range(9)]), max_rows=4, batch_size=1)
        module.setup("fit")
        assert len(module.train_rows) == 4


class TestStream:
    def build(self, write, **kwargs):
        return nectar(write([row(n) for n in range(10)]), **kwargs)

    def ids(self, batch):
        return [prompt.id for prompt in batch.prompts]

    def test_every_epoch_sees_every_row_once_in_its_own_order(self, write):
        module = self.build(write, batch_size=3)
        seen = [one for index in range(10) for one in self.ids(module.batch(index))]
        epochs = [seen[start : start + 10] for start in (0, 10, 20)]
        assert all(len(set(epoch)) == 10 for epoch in epochs)
        assert epochs[0] != epochs[1] != epochs[2]

    def test_a_batch_is_a_function_of_the_seed_and_its_number(self, write):
        one, same, other = (self.build(write, batch_size=3, seed=seed) for seed in (1, 1, 2))
        assert self.ids(one.batch(7)) == self.ids(same.batch(7))
        assert [self.ids(one.batch(n)) for n in range(3)] != [self.ids(other.batch(n)) for n in range(3)]

    def test_held_out_rows_are_never_trained_on(self, write):
        module = self.build(write, batch_size=2, num_val=3)
        held = {one for batch in module.val_dataloader() for one in self.ids(batch)}
        trained = {one for index in range(20) for one in self.ids(module.batch(index))}
        assert len(held) == 3
        assert not held & trained
        with pytest.raises(ValueError, match="`num_val` must be less than the number of usable rows, got 10 of 10"):
            self.build(write, num_val=10)

    def test_the_loader_goes_on_from_the_position(self, write):
        module = self.build(write)
        module.load_state_dict({"position": 4, "identity": module.identity()})
        assert next(iter(module.train_dataloader())).index == 4

    def test_other_data_are_refused_with_what_differs(self, write):
        module = self.build(write)
        with pytest.raises(ValueError, match="seed: 5 then, 0 now"):
            module.load_state_dict({"position": 1, "identity": module.identity() | {"seed": 5}})


class TestCoEvolution:
    def test_anchors_then_prompts_with_one_position(self, write, tmp_path):
        ranked = write([row(n) for n in range(6)])
        prompts = tmp_path / "prompts.jsonl"
        prompts.write_text("\n".join(json.dumps({"prompt": f"p{n}"}) for n in range(5)))
        module = CoEvolutionDataModule(
            NectarAnchorDataModule(ranked, batch_size=2, num_val=3), PromptDataModule(str(prompts), batch_size=1, num_val=1)
        )
        module.setup("fit")
        batch = module.batch(3)
        assert [ranked is None for ranked in batch.anchors] == [False, False, True]
        assert [len(batch.prompts) for batch in module.val_dataloader()] == [3, 1]
        assert module.num_held_out == 4
        state = module.state_dict()
        module.load_state_dict(state)
        assert set(state["identity"]) == {"NectarAnchorDataModule", "PromptDataModule"}

    def test_needs_one_of_the_two(self):
        with pytest.raises(ValueError, match="At least one of `anchors` and `prompts`"):
            CoEvolutionDataModule()
