"""Static rubrics and item dropout."""

import json
from dataclasses import replace

import pytest
import torch

from lightning_dr.callbacks import AdapterCheckpoint, DRCallback, ItemDropout, StaticRubrics
from lightning_dr.callbacks.static_rubrics import FILENAME
from lightning_dr.modules import Phase
from lightning_dr.rollout import Roles, RoundConfig, collect_round
from lightning_dr.stored import StoredRubrics
from lightning_dr.testing import ScriptedResponder, ScriptedVerifier, ScriptedWriter, scripted_batch
from tests.conftest import fit, same, toy_data, toy_module


class Look(DRCallback):
    def __init__(self):
        self.rounds = []

    def on_round_end(self, trainer, module, round):
        self.rounds.append(round)

    def texts(self):
        """Prompt -> the evaluator's rubrics in each round in which it comes."""
        found = {}
        for round_ in self.rounds:
            for prompt, group in zip(round_.batch.prompts, round_.evaluator.rubrics, strict=True):
                found.setdefault(prompt.id, []).append((round_.index, [draw.rubric and draw.rubric.questions for draw in group]))
        return found


def module(rounds):
    return toy_module(schedule=[Phase(rounds=rounds)])


def data():
    return toy_data(num_topics=2, num_val=0)


class TestStaticRubrics:
    def test_each_prompt_keeps_its_rubrics_while_the_generator_learns(self, tmp_path):
        look, made = Look(), module(5)
        fit(made, tmp_path, [StaticRubrics(freeze_at=2), look], data())
        assert [round_.parted for round_ in look.rounds] == [False, False, True, True, True]
        for seen in look.texts().values():
            static = [rubrics for index, rubrics in seen if index >= 2]
            assert all(rubrics == static[0] for rubrics in static)
        store = StoredRubrics(tmp_path / FILENAME)
        assert set(store.texts) == {"Write about ocean.", "Write about forest."}
        live = [[draw.completion.text for draw in round_.live.rubrics[0]] for round_ in look.rounds]
        assert live[2] != live[3]
        assert made.evaluator_writer is None

    def test_a_given_file_is_used_and_not_changed(self, tmp_path):
        path, question = tmp_path / "theirs.jsonl", "Does the response mention silk?"
        prompts = [f"Write about {topic}." for topic in ("ocean", "forest")]
        given = "".join(json.dumps({"prompt": prompt, "rubrics": [f"[2] {question}"]}) + "\n" for prompt in prompts)
        path.write_text(given)
        look = Look()
        fit(module(2), tmp_path / "run", [StaticRubrics(path=str(path)), look], data())
        assert [rubric for seen in look.texts().values() for _, group in seen for rubric in group] == [(question,)] * 12
        assert path.read_text() == given

    def test_a_resumed_run_has_the_same_rubrics(self, tmp_path):
        whole, cut, rest = Look(), Look(), Look()
        one, two = module(4), module(4)
        torch.manual_seed(0)
        fit(one, tmp_path / "whole", [StaticRubrics(), whole], data())
        torch.manual_seed(0)
        fit(module(2), tmp_path / "cut", [StaticRubrics(), cut, AdapterCheckpoint()], data())
        checkpoint = tmp_path / "cut" / "checkpoints" / "round-00002" / "trainer.ckpt"
        fit(two, tmp_path / "rest", [StaticRubrics(), rest], data(), ckpt_path=checkpoint)
        texts = whole.texts()
        for prompt, seen in rest.texts().items():
            assert [entry for entry in texts[prompt] if entry[0] >= 2] == seen
        assert all(same(one.roles[name].role_state(), two.roles[name].role_state()) for name in one.roles)


class TestItemDropout:
    def round(self, hook=lambda name, round_: round_):
        rubrics = ["[3] Has a?\n[1] Has b?\n[2] Has c?", "[1] Has a?"]
        roles = Roles(
            responder=ScriptedResponder(["a b", "a", "b c", ""]),
            writer=ScriptedWriter(rubrics),
            verifier=ScriptedVerifier(lambda question, text: question[4] in text),
        )
        return collect_round(scripted_batch(1), roles, RoundConfig(num_responses=4, num_rubrics=2), hook=hook)

    def test_share_and_at_least_one(self):
        torch.manual_seed(0)
        round_, dropout = self.round(), ItemDropout(0.5)
        kept = torch.stack([dropout.on_verdicts(None, None, round_).live.item_mask_BGM[0] for _ in range(400)])
        assert kept[:, 1, 0].all()  # the only item of its rubric
        assert not kept[:, 1, 1:].any()  # padding
        assert kept[:, 0].any(-1).all()
        # three items, each kept with 1/2, and one of them where none would be: 1/2 + 1/8 · 1/3
        assert kept[:, 0].float().mean().item() == pytest.approx(0.5 + 1 / 24, abs=0.04)

    def test_scores_follow_and_both_draws_stay_one(self):
        torch.manual_seed(0)
        dropout = ItemDropout(0.9)
        round_ = self.round(lambda name, r: dropout.on_verdicts(None, None, r) if name == "on_verdicts" else r)
        assert round_.live is round_.evaluator
        assert set(round_.live.scores_BGK[0, 0].tolist()) <= {0.0, 1.0}  # one item is left

    def test_parted_draws_are_dropped_apart(self):
        torch.manual_seed(0)
        round_ = self.round()
        parted = ItemDropout(0.5).on_verdicts(None, None, replace(round_, evaluator=replace(round_.live)))
        assert parted.live is not parted.evaluator

    @pytest.mark.parametrize("value", [-0.1, 1.0])
    def test_bad_probability(self, value):
        with pytest.raises(ValueError, match="`probability` must be in"):
            ItemDropout(value)
