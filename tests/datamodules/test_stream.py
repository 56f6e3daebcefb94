import subprocess
import sys
from pathlib import Path

import lightning
import pytest
import torch
from lightning import Trainer
from lightning.pytorch.callbacks import Callback

from lightning_dr.datamodules import RoundDataModule
from lightning_dr.datamodules.stream import differences
from lightning_dr.records import Batch, Prompt

ROOT = Path(__file__).parents[2]


class Numbers(RoundDataModule):
    """Rows that are numbers; the prompt of a row is its number."""

    def __init__(self, size=7, **kwargs):
        super().__init__(**{"batch_size": 3} | kwargs)
        self.size = size

    def setup(self, stage):
        self.hold_out(range(self.size))

    def make_batch(self, index, rows):
        prompts = tuple(Prompt(id=str(row), messages=({"role": "user", "content": str(row)},)) for row in rows)
        return Batch(index=index, prompts=prompts, anchors=(None,) * len(rows))


class Recorder(lightning.LightningModule):
    """Two optimizers stepped by hand; stops after ``rounds`` batches, or raises in batch ``crash_at``."""

    def __init__(self, rounds, crash_at=None):
        super().__init__()
        self.automatic_optimization = False
        self.layers = torch.nn.ModuleList([torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)])
        self.rounds, self.crash_at = rounds, crash_at
        self.seen, self.positions, self.validated = [], [], []

    def training_step(self, batch, batch_idx):
        if batch.index == self.crash_at:
            raise RuntimeError("crash")
        for layer, optimizer in zip(self.layers, self.optimizers(), strict=True):
            optimizer.zero_grad()
            self.manual_backward(layer(torch.ones(1, 1)).sum())
            optimizer.step()
        self.seen.append((batch.index, [prompt.id for prompt in batch.prompts]))
        self.positions.append(self.trainer.datamodule.position)
        if batch.index + 1 == self.rounds:
            self.trainer.should_stop = True

    def validation_step(self, batch, batch_idx):
        self.validated.append([prompt.id for prompt in batch.prompts])

    def configure_optimizers(self):
        return [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in self.layers]


class SaveAfter(Callback):
    def __init__(self, index, path):
        self.index, self.path = index, path

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if batch.index == self.index:
            trainer.save_checkpoint(self.path)


def fit(module, data, ckpt_path=None, callbacks=(), **kwargs):
    options = {"limit_val_batches": 0, "num_sanity_val_steps": 0, "enable_checkpointing": False, "enable_model_summary": False}
    options |= {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "max_epochs": 1}
    Trainer(callbacks=list(callbacks), **options | kwargs).fit(module, datamodule=data, ckpt_path=ckpt_path)
    return module


@pytest.fixture(scope="module")
def unbroken():
    return fit(Recorder(9), Numbers(num_val=2)).seen


class TestResume:
    def test_an_unbroken_run_sees_the_batches_of_the_stream(self, unbroken):
        data = Numbers(num_val=2)
        data.setup("fit")
        assert unbroken == [(index, [prompt.id for prompt in data.batch(index).prompts]) for index in range(9)]

    def test_the_position_follows_the_batch_that_is_trained_on(self):
        assert fit(Recorder(4), Numbers()).positions == [1, 2, 3, 4]

    @pytest.mark.parametrize("stop", [1, 4, 8])
    def test_a_run_that_was_stopped_goes_on_with_the_next_batch(self, stop, unbroken, tmp_path):
        first = fit(Recorder(stop), Numbers(num_val=2), callbacks=[SaveAfter(stop - 1, tmp_path / "a.ckpt")])
        second = fit(Recorder(9), Numbers(num_val=2), tmp_path / "a.ckpt")
        assert len(first.seen) == stop
        assert first.seen + second.seen == unbroken

    def test_a_run_that_crashed_goes_on_after_its_checkpoint(self, unbroken, tmp_path):
        crashing = Recorder(9, crash_at=5)
        with pytest.raises(RuntimeError, match="crash"):
            fit(crashing, Numbers(num_val=2), callbacks=[SaveAfter(3, tmp_path / "a.ckpt")])
        resumed = fit(Recorder(9), Numbers(num_val=2), tmp_path / "a.ckpt")
        assert crashing.seen[:4] + resumed.seen == unbroken

    def test_validation_does_not_move_the_position(self, unbroken):
        module = fit(Recorder(9), Numbers(num_val=2), limit_val_batches=1.0, num_sanity_val_steps=1, val_check_interval=2)
        assert module.seen == unbroken
        assert len(module.validated) > 1
        assert {tuple(ids) for ids in module.validated} == {tuple(module.validated[0])}

    def test_a_checkpoint_of_other_data_is_refused(self, tmp_path):
        fit(Recorder(2), Numbers(), callbacks=[SaveAfter(1, tmp_path / "a.ckpt")])
        with pytest.raises(ValueError, match="differ \\(rows: 7 then, 8 now; seed: 0 then, 1 now\\). Resume with the same data config"):
            fit(Recorder(4), Numbers(size=8, seed=1), tmp_path / "a.ckpt")


class TestState:
    def state(self, **kwargs):
        data = Numbers(**kwargs)
        data.setup("fit")
        data.position = 5
        return data.state_dict()

    def test_loaded_before_setup(self):
        data = Numbers()
        data.load_state_dict(self.state())
        data.setup("fit")
        assert next(iter(data.train_dataloader())).index == 5

    def test_loaded_before_setup_other_data_are_refused_when_the_loader_is_made(self):
        data = Numbers()
        data.load_state_dict(self.state(seed=3))
        data.setup("fit")
        with pytest.raises(ValueError, match="seed: 3 then, 0 now"):
            data.train_dataloader()

    def test_refused_after_setup_the_position_stays(self):
        data = Numbers()
        data.setup("fit")
        with pytest.raises(ValueError, match="batch_size: 2 then, 3 now"):
            data.load_state_dict(self.state(batch_size=2))
        assert data.position == 0

    def test_differences_name_what_only_one_side_has_and_what_is_nested(self):
        assert differences({"a": 1, "b": 2}, {"b": 2, "c": 3}) == ["a: 1 then, None now", "c: None then, 3 now"]
        assert differences({"part": {"seed": 1, "rows": 4}}, {"part": {"seed": 2, "rows": 4}}) == ["part.seed: 1 then, 2 now"]


class TestBatches:
    def test_a_batch_may_be_longer_than_an_epoch(self):
        data = Numbers(size=2, batch_size=5)
        data.setup("fit")
        assert sorted(prompt.id for index in range(2) for prompt in data.batch(index).prompts) == ["0"] * 5 + ["1"] * 5

    def test_the_stream_has_no_end_and_validation_has_one(self):
        data = Numbers(size=11, num_val=4)
        data.setup("fit")
        stream = iter(data.train_dataloader())
        assert [next(stream).index for _ in range(20)] == list(range(20))
        held = [batch.index for batch in data.val_dataloader()]
        assert held == [0, 1]
        assert len(data.val_dataloader()) == 2
        with pytest.raises(TypeError, match="no end"):
            len(data.train_dataloader().dataset)

    def test_loaders_leave_the_random_stream_alone(self):
        data = Numbers(num_val=2)
        data.setup("fit")
        before = torch.get_rng_state()
        next(iter(data.train_dataloader()))
        list(data.val_dataloader())
        assert torch.equal(before, torch.get_rng_state())


@pytest.mark.skipif(not (ROOT / "datamodules").exists(), reason="needs the links of a checkout")
def test_the_folder_can_not_be_imported_on_its_own():
    done = subprocess.run([sys.executable, "-c", "import datamodules"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "beyond top-level package" in done.stderr
