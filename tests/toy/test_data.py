import pytest

from lightning_dr.datamodules.stream import RoundDataModule
from lightning_dr.toy import ToyWorld
from lightning_dr.toy.data import ToyDataModule


def make(**kwargs):
    data = ToyDataModule(**({"num_topics": 4, "lists_per_topic": 8, "batch_size": 3, "num_val": 6} | kwargs))
    data.setup("fit")
    return data


def test_rows_are_split():
    data = make()
    assert isinstance(data, RoundDataModule)
    assert (len(data.train_rows), len(data.val_rows)) == (4 * 8 - 6, 6)
    assert not set(data.train_rows) & set(data.val_rows)
    assert {topic for topic, _ in data.train_rows} == set(data.world.topics)


def test_a_batch_pairs_each_prompt_with_a_list_of_its_topic():
    data = make()
    for index in range(20):
        batch = data.batch(index)
        assert batch.index == index
        assert len(batch.prompts) == len(batch.anchors) == 3
        for prompt, anchors in zip(batch.prompts, batch.anchors, strict=True):
            qualities = [data.world.quality(data.world.topic_of(prompt), answer) for answer in anchors.answers]
            assert list(anchors.ranks) == [1 + sum(other > quality for other in qualities) for quality in qualities]


def test_an_epoch_shows_every_training_row_once():
    data = make(batch_size=2)
    seen = [lists for index in range(13) for lists in data.batch(index).anchors]
    assert len(seen) == len(data.train_rows) == 26
    assert set(seen) == {lists for _, lists in data.train_rows}


def test_validation_shows_the_held_out_rows_once():
    data = make(batch_size=4)
    batches = list(data.val_dataloader())
    assert [len(batch.prompts) for batch in batches] == [4, 2]
    assert [lists for batch in batches for lists in batch.anchors] == [lists for _, lists in data.val_rows]


def test_batches_are_a_function_of_the_seeds():
    assert [make().batch(index) for index in range(5)] == [make().batch(index) for index in range(5)]
    assert make().batch(0) != make(seed=1).batch(0)
    assert make().batch(0) != make(world_seed=1).batch(0)


def test_the_world_is_that_of_its_seed():
    assert make(world_seed=5).world.worths == ToyWorld(4, 5).worths


def test_something_must_be_left_to_train_on():
    with pytest.raises(ValueError, match="`num_val` must be less than the number of usable rows, got 32 of 32"):
        make(num_val=32)
