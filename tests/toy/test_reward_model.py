"""The reward model of the toy."""

import pytest

from lightning_dr.modules.reward_model import RewardModel
from lightning_dr.toy import ToyQuality, ToyWorld
from lightning_dr.toy.build_reward_model import build, pairs_of
from lightning_dr.toy.data import ToyDataModule
from tests.conftest import toy_module


def test_pairs_are_those_of_different_rank():
    data = ToyDataModule(lists_per_topic=4, num_val=2)
    data.setup("fit")
    quality = ToyQuality()
    for topic, better, worse in pairs_of(data.train_rows):
        found = quality.quality(ToyWorld().prompt(topic), [better, worse])
        assert found[0] > found[1]


@pytest.mark.slow
def test_it_learns_and_supervises(tmp_path):
    assert build(tmp_path / "rm", steps=150) > 0.65
    module = toy_module(evaluator=RewardModel(str(tmp_path / "rm"), dtype="float32"))
    module.configure_model()
    world = ToyWorld()
    texts = {
        topic: [" ".join(sorted(worths, key=worths.get, reverse=best)[:8]) for best in (True, False)]
        for topic, worths in world.worths.items()
    }
    scores = module.evaluator.scores([world.prompt(topic) for topic in texts], list(texts.values()))
    assert sum(bool(good > bad) for good, bad in scores) >= 7  # the best and the worst words of 8 topics
