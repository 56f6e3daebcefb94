import json

import pytest

from lightning_dr.datamodules import CoEvolutionDataModule, NectarAnchorDataModule, PromptDataModule
from tests.datamodules.test_stream import Recorder, SaveAfter, fit


@pytest.fixture
def files(tmp_path):
    ranked, asks = tmp_path / "ranked.jsonl", tmp_path / "asks.jsonl"
    lists = [{"prompt": f"r{n}", "answers": [{"answer": "a", "rank": 1.0}, {"answer": f"b{n}", "rank": 2.0}]} for n in range(7)]
    ranked.write_text("\n".join(json.dumps(row) for row in lists) + "\n")
    asks.write_text("\n".join(json.dumps({"prompt": f"p{n}"}) for n in range(5)) + "\n")
    return str(ranked), str(asks)


@pytest.fixture
def anchors(files):
    return lambda **kwargs: NectarAnchorDataModule(files[0], **{"batch_size": 2, "num_val": 3} | kwargs)


@pytest.fixture
def prompts(files):
    return lambda **kwargs: PromptDataModule(files[1], **{"batch_size": 1, "num_val": 1} | kwargs)


def ready(module):
    module.setup("fit")
    return module


def test_a_batch_is_that_of_the_anchors_and_that_of_the_prompts(anchors, prompts):
    module, ranked, asks = ready(CoEvolutionDataModule(anchors(), prompts())), ready(anchors()), ready(prompts())
    for index in range(6):
        batch = module.batch(index)
        assert batch.index == index
        assert batch.prompts == ranked.batch(index).prompts + asks.batch(index).prompts
        assert batch.anchors == (*ranked.batch(index).anchors, None)


@pytest.mark.parametrize("kept", ["anchors", "prompts"])
def test_one_part_alone_gives_its_own_batches(kept, anchors, prompts):
    part = {"anchors": anchors, "prompts": prompts}[kept]
    module, alone = ready(CoEvolutionDataModule(**{kept: part()})), ready(part())
    assert [module.batch(index) for index in range(5)] == [alone.batch(index) for index in range(5)]
    assert list(module.val_dataloader()) == list(alone.val_dataloader())


def test_validation_is_the_held_out_rows_in_a_fixed_order(anchors, prompts):
    module = ready(CoEvolutionDataModule(anchors(), prompts()))
    batches = list(module.val_dataloader())
    assert [batch.index for batch in batches] == [0, 1]
    assert [[ranked is None for ranked in batch.anchors] for batch in batches] == [[False, False, True], [False]]
    assert batches == list(module.val_dataloader())


def test_without_held_out_rows_there_is_no_validation(anchors, prompts):
    assert ready(CoEvolutionDataModule(anchors(num_val=0), prompts(num_val=0))).val_dataloader() == []


def test_a_stopped_run_goes_on_with_the_next_batch_of_both(anchors, prompts, tmp_path):
    unbroken = fit(Recorder(7), CoEvolutionDataModule(anchors(), prompts()))
    first = fit(Recorder(3), CoEvolutionDataModule(anchors(), prompts()), callbacks=[SaveAfter(2, tmp_path / "a.ckpt")])
    second = fit(Recorder(7), CoEvolutionDataModule(anchors(), prompts()), tmp_path / "a.ckpt")
    assert first.seen + second.seen == unbroken.seen
    held = {prompt.id for batch in ready(CoEvolutionDataModule(anchors(), prompts())).val_dataloader() for prompt in batch.prompts}
    assert not held & {one for _, ids in unbroken.seen for one in ids}


def test_a_state_is_loaded_before_or_after_setup(anchors, prompts):
    saved = ready(CoEvolutionDataModule(anchors(), prompts()))
    saved.position = 4
    early = CoEvolutionDataModule(anchors(), prompts())
    early.load_state_dict(saved.state_dict())
    late = ready(CoEvolutionDataModule(anchors(), prompts()))
    late.load_state_dict(saved.state_dict())
    assert next(iter(ready(early).train_dataloader())) == next(iter(late.train_dataloader())) == saved.batch(4)


def test_what_differs_is_named_within_its_part(anchors, prompts):
    state = ready(CoEvolutionDataModule(anchors(), prompts(seed=5))).state_dict()
    with pytest.raises(ValueError, match=r"differ \(PromptDataModule\.seed: 5 then, 0 now\)"):
        ready(CoEvolutionDataModule(anchors(), prompts())).load_state_dict(state)
    with pytest.raises(ValueError, match=r"differ \(PromptDataModule: .* then, None now\)"):
        ready(CoEvolutionDataModule(anchors())).load_state_dict(state)
