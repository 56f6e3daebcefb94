import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.utilities.exceptions import SIGTERMException

from lightning_dr.callbacks import AdapterCheckpoint, CheckpointSwap, DRCallback, GapMonitor, RubricLogger, RunSummary, StaleEvaluator
from lightning_dr.callbacks.rubric_logger import rubric_table
from lightning_dr.callbacks.run_summary import means, summary_sentence
from lightning_dr.callbacks.stale_evaluator import ADAPTER
from lightning_dr.modules import Phase
from lightning_dr.toy import ToyQuality
from tests.conftest import fit, same, states, toy_data, toy_module, trainer
from tests.modules.test_coevolution import Watch

STAGES = ["on_responses", "on_rubrics", "on_verdicts", "on_scores", "on_rewards", "on_advantages"]


def built(rounds=3, **kwargs):
    module = toy_module(schedule=[Phase(rounds=rounds)], **kwargs)
    module.configure_model()
    return module


class TestHooks:
    def test_order_and_count(self, tmp_path):
        calls = []

        class Count(DRCallback):
            def on_before_update(self, trainer, module, round, role):
                calls.append(f"update {role}")

        def note(name):
            def hook(self, trainer, module, round):
                calls.append(name)

            return hook

        for name in [*STAGES, "on_round_end"]:
            setattr(Count, name, note(name))
        fit(built(rounds=2), tmp_path, [Count()])
        assert calls == [*STAGES, "update generator", "update policy", "on_round_end"] * 2

    def test_a_replaced_record_is_what_the_round_goes_on_with(self, tmp_path):
        class Constant(DRCallback):
            def on_rewards(self, trainer, module, round):
                return replace(round, policy_rewards_BK=torch.ones_like(round.policy_rewards_BK))

        module, watch = built(), Watch()
        before = states(module)[0]["policy"]
        fit(module, tmp_path, [Constant(), watch])
        assert all(m["policy/dead_groups"] == 1.0 for m in watch.metrics)
        assert not watch.rounds[0].policy_advantages_BK.any()
        assert "policy/grad_norm" in watch.metrics[0]  # the KL term is left
        assert before.keys() == states(module)[0]["policy"].keys()

    def test_a_faulty_hook_fails_where_it_is(self, tmp_path):
        class Faulty(DRCallback):
            def on_scores(self, trainer, module, round):
                return replace(round, scores_BK=round.scores_BK[:, :1])

        with pytest.raises(ValueError, match=r"`scores_BK` must have shape \[B=2, K=4\], got \[2, 1\]"):
            fit(built(), tmp_path, [Faulty()])


class TestStaleEvaluator:
    def test_frozen_evaluator_stays_while_the_generator_learns(self, tmp_path):
        module, seen = built(rounds=4), []

        class Look(DRCallback):
            def on_round_end(self, trainer, module, round):
                held = module.backbone.adapter_state(ADAPTER) if ADAPTER in module.backbone.adapters else None
                seen.append((round.parted, held, module.generator.role_state()))

        fit(module, tmp_path, [StaleEvaluator(freeze_at=2), Look()])
        assert [parted for parted, _, _ in seen] == [False, False, True, True]
        # what is held is the generator as round 1 left it, and the live one has moved on
        assert same(seen[2][1], seen[1][2])
        assert same(seen[3][1], seen[1][2])
        assert not same(seen[3][2], seen[1][2])
        assert module.evaluator_writer is None

    def test_lag(self, tmp_path):
        module, seen = built(rounds=4), []

        class Look(DRCallback):
            def on_round_end(self, trainer, module, round):
                seen.append((module.backbone.adapter_state(ADAPTER), module.generator.role_state()))

        start = module.generator.role_state()
        fit(module, tmp_path, [StaleEvaluator(lag=2), Look()])
        assert same(seen[0][0], start)
        assert same(seen[1][0], start)
        assert same(seen[2][0], start)  # round 2 is scored by the generator at the start of round 0
        assert same(seen[3][0], seen[0][1])  # round 3 by that at the start of round 1

    @pytest.mark.parametrize("kwargs", [{"freeze_at": 3}, {"lag": 3}])
    def test_a_round_that_never_comes_is_refused(self, kwargs, tmp_path):
        with pytest.raises(ValueError, match=r"must be less than the 3 rounds of `model\.schedule`, got 3"):
            fit(built(), tmp_path, [StaleEvaluator(**kwargs)])

    def test_a_round_that_a_resumed_run_has_left_behind_is_refused(self, tmp_path):
        fit(built(rounds=2), tmp_path, [AdapterCheckpoint()])
        checkpoint = tmp_path / "checkpoints" / "round-00002" / "trainer.ckpt"
        with pytest.raises(ValueError, match="`freeze_at` must be at least 2, the round from which this run goes on, got 1"):
            fit(built(rounds=4), tmp_path, [StaleEvaluator(freeze_at=1)], ckpt_path=checkpoint)

    @pytest.mark.parametrize(("kwargs", "ages"), [({"freeze_at": 1}, [None, 0, 1, 2]), ({"lag": 2}, [0, 1, 2, 2])])
    def test_the_age_of_the_evaluator_is_logged(self, kwargs, ages, tmp_path):
        watch = Watch()
        fit(built(rounds=4), tmp_path, [StaleEvaluator(**kwargs), watch])
        assert [metrics.get("evaluator/rounds_old") for metrics in watch.metrics] == ages
        assert [metrics["evaluator/parted"] for metrics in watch.metrics] == [float(age is not None) for age in ages]

    def test_validation_reports_the_live_and_the_old_evaluator_in_the_fit_and_from_its_checkpoint(self, tmp_path):
        callbacks = lambda: [StaleEvaluator(freeze_at=0), AdapterCheckpoint()]  # noqa: E731
        torch.manual_seed(2)
        module = built(rounds=3)
        found = fit(module, tmp_path, callbacks(), limit_val_batches=1.0).callback_metrics
        assert found["val/accuracy"] != found["val/evaluator_accuracy"]
        again = built(rounds=3)
        checkpoint = tmp_path / "checkpoints" / "round-00003" / "trainer.ckpt"
        validator = trainer(tmp_path, callbacks(), limit_val_batches=1.0)
        validator.validate(again, datamodule=toy_data(), ckpt_path=checkpoint, weights_only=False)
        for key in ("val/accuracy", "val/evaluator_accuracy", "val/evaluator_j_anchor", "val/score"):
            assert validator.callback_metrics[key] == found[key]
        assert again.evaluator_writer is None

    def test_undone_after_an_exception(self, tmp_path):
        class Boom(DRCallback):
            def on_round_end(self, trainer, module, round):
                raise RuntimeError("boom")

        module = built()
        with pytest.raises(RuntimeError, match="boom"):
            fit(module, tmp_path, [StaleEvaluator(freeze_at=0), Boom()])
        assert module.evaluator_writer is None

    def test_a_resumed_run_holds_the_same_evaluator(self, tmp_path):
        def run(rounds, where, ckpt_path=None):
            torch.manual_seed(4)
            module = built(rounds=rounds)
            fit(module, tmp_path / where, [StaleEvaluator(freeze_at=1), AdapterCheckpoint(every_n_rounds=2)], ckpt_path=ckpt_path)
            return module

        whole = run(4, "whole")
        run(2, "part")
        rest = run(4, "rest", tmp_path / "part" / "checkpoints" / "round-00002" / "trainer.ckpt")
        assert same(states(whole)[0]["policy"], states(rest)[0]["policy"])

    def test_a_resumed_run_must_keep_the_arguments_of_what_it_holds(self, tmp_path):
        fit(built(rounds=2), tmp_path, [StaleEvaluator(freeze_at=1), AdapterCheckpoint()])
        checkpoint = tmp_path / "checkpoints" / "round-00002" / "trainer.ckpt"
        for kwargs in ({"freeze_at": 3}, {"lag": 1}):
            with pytest.raises(ValueError, match=r"must have the arguments of the run .* freeze_at=1 and lag=None, got"):
                fit(built(rounds=4), tmp_path, [StaleEvaluator(**kwargs)], ckpt_path=checkpoint)

    def test_validated_from_its_checkpoint_and_then_trained_on(self, tmp_path):
        fit(built(rounds=2), tmp_path, [StaleEvaluator(freeze_at=1), AdapterCheckpoint()])
        checkpoint = tmp_path / "checkpoints" / "round-00002" / "trainer.ckpt"
        module = built(rounds=3)
        made = trainer(tmp_path, [StaleEvaluator(freeze_at=1)], limit_val_batches=1)
        made.validate(module, datamodule=toy_data(), ckpt_path=checkpoint, weights_only=False)
        made.fit(module, datamodule=toy_data(), ckpt_path=checkpoint)
        assert module.round == 3

    @pytest.mark.parametrize("kwargs", [{}, {"freeze_at": 1, "lag": 1}, {"freeze_at": -1}, {"lag": 0}])
    def test_bad_arguments(self, kwargs):
        with pytest.raises(ValueError, match="must be"):
            StaleEvaluator(**kwargs)

    def test_needs_an_adapter(self, tmp_path):
        with pytest.raises(ValueError, match="must have a generator with a LoRA adapter"):
            fit(built(generator={"lora": None}), tmp_path, [StaleEvaluator(freeze_at=0)])


class TestCheckpointSwap:
    @pytest.fixture
    def saved(self, tmp_path):
        module = built(rounds=2)
        fit(module, tmp_path / "source", [AdapterCheckpoint()])
        return tmp_path / "source" / "checkpoints" / "round-00002", states(module)[0]

    @pytest.mark.parametrize("role", ["policy", "generator"])
    def test_at_a_round(self, role, saved, tmp_path):
        folder, want = saved
        seen = []

        class Look(DRCallback):
            def on_responses(self, trainer, module, round):
                seen.append(same(module.roles[role].role_state(), want[role]))

        torch.manual_seed(9)
        fit(built(), tmp_path, [CheckpointSwap(role, str(folder / role), at_round=1), Look()])
        assert seen == [False, True, False]

    def test_as_the_evaluator(self, saved, tmp_path):
        folder, _ = saved
        watch, module = Watch(), built()
        fit(module, tmp_path, [CheckpointSwap("evaluator", str(folder / "generator"), at_round=1), watch])
        assert [round_.parted for round_ in watch.rounds] == [False, True, True]
        assert module.evaluator_writer is None

    def test_of_several_evaluators_the_latest_scores_the_policy(self, saved, tmp_path):
        folder, want = saved
        other = tmp_path / "other"
        torch.manual_seed(8)
        module = built(rounds=1)
        fit(module, other, [AdapterCheckpoint()])
        paths = [folder / "generator", other / "checkpoints" / "round-00001" / "generator"]
        states_of = [want["generator"], module.generator.role_state()]
        seen = []

        class Look(DRCallback):
            def on_responses(self, trainer, module, round):
                seen.append(module.backbone.adapter_state(module.evaluator_writer.adapter))

        swaps = [CheckpointSwap("evaluator", str(path), at_round=at) for at, path in enumerate(paths)]
        module = built(rounds=3)
        fit(module, tmp_path, [*reversed(swaps), Look()])
        assert [same(state, states_of[0]) for state in seen] == [True, False, False]
        assert [same(state, states_of[1]) for state in seen] == [False, True, True]
        assert module.evaluator_writer is None

    def test_a_round_that_never_comes_is_refused(self, saved, tmp_path):
        folder, _ = saved
        for role in ("policy", "evaluator"):
            swap = CheckpointSwap(role, str(folder / ("policy" if role == "policy" else "generator")), at_round=3)
            with pytest.raises(ValueError, match="`at_round` must be less than the 3 rounds"):
                fit(built(), tmp_path, [swap])
        swap = CheckpointSwap("policy", str(folder / "policy"), at_round=1)
        with pytest.raises(ValueError, match="`at_round` must be at least 2, the round from which this run goes on"):
            fit(built(rounds=4), tmp_path, [swap], ckpt_path=folder / "trainer.ckpt")

    def test_a_swap_that_was_done_is_not_done_again_by_a_resumed_run(self, saved, tmp_path):
        folder, _ = saved
        swap = lambda: CheckpointSwap("policy", str(folder / "policy"), at_round=1)  # noqa: E731
        runs = []
        for rounds, path in ((2, None), (3, tmp_path / "checkpoints" / "round-00002" / "trainer.ckpt")):
            torch.manual_seed(9)
            runs.append(built(rounds=rounds))
            fit(runs[-1], tmp_path, [swap(), AdapterCheckpoint()], ckpt_path=path)
        torch.manual_seed(9)
        whole = built(rounds=3)
        fit(whole, tmp_path / "whole", [swap()])
        assert same(whole.policy.role_state(), runs[-1].policy.role_state())

    def test_the_adapter_of_another_role_is_refused(self, saved, tmp_path):
        folder, _ = saved
        with pytest.raises(ValueError, match="must be of a policy, but a generator saved it"):
            CheckpointSwap("policy", str(folder / "generator"), at_round=0)
        with pytest.raises(ValueError, match="must be of a generator, but a policy saved it"):
            built(generator={"adapter_path": str(folder / "policy")})
        (folder / "generator" / "lightning_dr.json").unlink()
        CheckpointSwap("policy", str(folder / "generator"), at_round=0)

    def test_for_validation_only(self, saved, tmp_path):
        folder, want = saved
        seen = []

        class Look(DRCallback):
            def on_validation_round(self, trainer, module, round):
                seen.append(same(module.policy.role_state(), want["policy"]))

            def on_responses(self, trainer, module, round):
                assert not same(module.policy.role_state(), want["policy"])

        torch.manual_seed(9)
        module = built()
        fit(
            module,
            tmp_path,
            [CheckpointSwap("policy", str(folder / "policy"), validation=True), Look()],
            limit_val_batches=1,
            val_check_interval=2,
        )
        assert seen
        assert all(seen)
        assert not same(module.policy.role_state(), want["policy"])

    @pytest.mark.parametrize("role", ["policy", "generator", "evaluator"])
    def test_a_validation_before_the_fit(self, role, saved, tmp_path):
        folder, _ = saved
        swap = CheckpointSwap(role, str(folder / ("policy" if role == "policy" else "generator")), validation=True)
        runs = []
        for validated in (False, True):
            torch.manual_seed(9)
            runs.append(built())
            made = trainer(tmp_path, [swap], limit_val_batches=1)
            if validated:
                made.validate(runs[-1], datamodule=toy_data())
            torch.manual_seed(10)
            made.fit(runs[-1], datamodule=toy_data())
        assert all(
            same(one.role_state(), other.role_state()) for one, other in zip(runs[0].roles.values(), runs[1].roles.values(), strict=True)
        )

    def test_not_beside_a_stale_evaluator(self, saved, tmp_path):
        folder, _ = saved
        pair = [StaleEvaluator(freeze_at=0), CheckpointSwap("evaluator", str(folder / "generator"), at_round=1)]
        for callbacks in (pair, pair[::-1]):
            with pytest.raises(ValueError, match="must not be in one run"):
                fit(built(), tmp_path, callbacks)

    def test_a_run_that_is_done_says_so(self, saved, tmp_path, caplog):
        folder, _ = saved
        module = built(rounds=2)
        fit(module, tmp_path, [CheckpointSwap("evaluator", str(folder / "generator"), at_round=1)], ckpt_path=folder / "trainer.ckpt")
        assert module.round == 2
        assert "All 2 rounds of `model.schedule` are done" in caplog.text
        with pytest.raises(ValueError, match="`at_round` must be less than the 2 rounds of `model.schedule`, got 2"):
            fit(
                built(rounds=2),
                tmp_path,
                [CheckpointSwap("evaluator", str(folder / "generator"), at_round=2)],
                ckpt_path=folder / "trainer.ckpt",
            )

    def test_swapped_back_when_validation_fails(self, saved, tmp_path):
        folder, _ = saved

        class Boom(DRCallback):
            def on_validation_round(self, trainer, module, round):
                raise RuntimeError("boom")

        module = built(rounds=1)
        before = module.policy.role_state()
        swap = CheckpointSwap("policy", str(folder / "policy"), validation=True)
        with pytest.raises(RuntimeError, match="boom"):
            trainer(tmp_path, [swap, Boom()], limit_val_batches=1).validate(module, datamodule=toy_data())
        assert same(before, module.policy.role_state())

    def test_bad_arguments(self, saved, tmp_path):
        folder, _ = saved
        with pytest.raises(ValueError, match="Exactly one of `at_round` and `validation`"):
            CheckpointSwap("policy", str(folder / "policy"))
        with pytest.raises(FileNotFoundError, match="No adapter in"):
            CheckpointSwap("policy", str(tmp_path), at_round=0)


class TestLogging:
    def run(self, tmp_path, callbacks, rounds=2):
        from lightning.pytorch.loggers import CSVLogger

        watch = Watch()
        logger = CSVLogger(tmp_path, name="run")
        fit(built(rounds=rounds), tmp_path, [*callbacks, watch], logger=logger)
        return Path(logger.log_dir), watch

    def test_rubric_logger_writes_what_happened(self, tmp_path, capsys):
        folder, watch = self.run(tmp_path, [RubricLogger(console_every_n_rounds=1)])
        entries = [json.loads(line) for line in (folder / "rubrics.jsonl").read_text().splitlines()]
        assert [entry["round"] for entry in entries] == [0, 0, 1, 1]
        first, round_ = entries[0], watch.rounds[0]
        assert first["responses"] == [response.text for response in round_.responses[0]]
        assert first["scores"] == pytest.approx(round_.scores_BK[0].tolist(), abs=1e-4)
        assert first["highest"] == first["responses"][max(range(4), key=lambda k: first["scores"][k])]
        assert first["lowest"] == first["responses"][min(range(4), key=lambda k: first["scores"][k])]
        rubric = first["rubrics"][0]
        assert [item["question"] for item in rubric["items"]] == list(round_.live.rubrics[0][0].rubric.questions)
        assert rubric["items"][0]["verdicts"] == round_.live.verdicts_BGKM[0, 0, :, 0].tolist()
        assert "evaluator_rubrics" not in first
        assert "highest" in capsys.readouterr().out

    def test_table_shows_model_text_as_it_is(self):
        entry = {
            "round": 0,
            "prompt": [{"content": "[bold]x[/bold]"}],
            "highest": "[red]y",
            "lowest": None,
            "rubrics": [{"items": [], "error": "no [item] in it"}],
        }
        from rich.console import Console

        console = Console(width=120, record=True)
        console.print(rubric_table(entry))
        text = console.export_text()
        assert "[bold]x[/bold]" in text
        assert "no [item] in it" in text

    def test_gap_monitor(self, tmp_path):
        _, watch = self.run(tmp_path, [GapMonitor(ToyQuality())])
        round_ = watch.rounds[0]
        quality = torch.tensor(
            [
                [ToyQuality().quality(p, [r.text])[0].item() for r in group]
                for p, group in zip(round_.batch.prompts, round_.responses, strict=True)
            ]
        )
        gaps = []
        for scores, truth in zip(round_.scores_BK.tolist(), quality.tolist(), strict=True):
            pairs = [scores[i] - scores[j] for i in range(4) for j in range(4) if truth[i] > truth[j]]
            gaps += [sum(pairs) / len(pairs)] if pairs else []
        assert watch.metrics[0]["gap/policy"] == pytest.approx(sum(gaps) / len(gaps), abs=1e-5)
        assert watch.metrics[0]["gap/reference_quality"] == pytest.approx(quality.mean().item(), abs=1e-5)
        assert "gap/policy" not in GapMonitor().measure(round_)
        assert "gap/saturation" in GapMonitor().measure(round_)

    def test_run_summary(self, tmp_path, capsys):
        folder, watch = self.run(tmp_path, [GapMonitor(ToyQuality()), RunSummary(window=0.5)], rounds=4)
        summary = json.loads((folder / "summary.json").read_text())
        assert summary["rounds"] == 4
        assert summary["window_rounds"] == 2
        assert summary["policy_steps"] == 4
        want = sum(m["policy/score"] for m in watch.metrics[2:]) / 2
        assert summary["end"]["policy/score"] == pytest.approx(want)
        assert "In words" in capsys.readouterr().out

    def test_a_run_that_fails_still_has_a_summary(self, tmp_path):
        from lightning.pytorch.loggers import CSVLogger

        class Boom(DRCallback):
            def on_responses(self, trainer, module, round):
                if round.index == 2:
                    raise RuntimeError("boom")

        logger = CSVLogger(tmp_path, name="run")
        with pytest.raises(RuntimeError, match="boom"):
            fit(built(rounds=4), tmp_path, [RunSummary(), Boom()], logger=logger)
        assert json.loads((Path(logger.log_dir) / "summary.json").read_text())["rounds"] == 2

    def test_sentence_says_which_way_it_went(self):
        text = summary_sentence(
            {"start": {"gap/policy": 0.2, "generator/j_disc": 0.1}, "end": {"gap/policy": 0.1, "generator/j_disc": 0.1}}
        )
        assert "fell from 0.200 to 0.100" in text
        assert "stayed at 0.100" in text
        assert means([{"a": 1.0}, {"a": 3.0, "b": 5.0}]) == {"a": 2.0, "b": 5.0}


class TestAdapterCheckpoint:
    def test_files_and_keep(self, tmp_path):
        fit(built(rounds=5), tmp_path, [AdapterCheckpoint(every_n_rounds=2, keep=2)])
        folders = sorted((tmp_path / "checkpoints").iterdir())
        assert [folder.name for folder in folders] == ["round-00004", "round-00005"]
        for role in ("policy", "generator"):
            assert (folders[0] / role / "adapter_model.safetensors").is_file()

    @pytest.mark.parametrize("kwargs", [{"limit_train_batches": 3}, {"callbacks": True}])
    def test_a_run_that_ends_early_is_saved_and_goes_on(self, kwargs, tmp_path):
        class Stop(DRCallback):
            def on_round_end(self, trainer, module, round):
                trainer.should_stop = round.index == 2

        stop = [Stop()] if kwargs.pop("callbacks", False) else []
        torch.manual_seed(4)
        fit(built(rounds=5), tmp_path, [*stop, AdapterCheckpoint()], **kwargs)
        assert [folder.name for folder in (tmp_path / "checkpoints").iterdir()] == ["round-00003"]
        rest, whole = built(rounds=5), built(rounds=5)
        fit(rest, tmp_path, ckpt_path=tmp_path / "checkpoints" / "round-00003" / "trainer.ckpt")
        torch.manual_seed(4)
        whole = built(rounds=5)
        fit(whole, tmp_path)
        assert rest.round == 5
        assert same(rest.policy.role_state(), whole.policy.role_state())

    @pytest.mark.parametrize("hook", ["on_validation_end", "on_validation_start", "on_train_batch_end"])
    @pytest.mark.parametrize("how", ["should_stop", "received_sigterm"])
    def test_told_to_stop_in_a_validation_or_between_two_rounds(self, hook, how, tmp_path):
        def stop(self, trainer, module, *args):
            if module.round == 4:
                setattr(trainer if how == "should_stop" else trainer._signal_connector, how, True)

        options = {"limit_val_batches": 1, "val_check_interval": 2}
        torch.manual_seed(4)
        # a plain callback before the checkpoint, or after it as Ctrl-C between two rounds would be
        saver = [AdapterCheckpoint(every_n_rounds=3)]
        stopper = [type("Stop", (DRCallback if hook != "on_train_batch_end" else Checkpoint,), {hook: stop})()]
        run = lambda: fit(built(rounds=6), tmp_path, [*saver, *stopper], **options)  # noqa: E731
        if how == "received_sigterm":
            with pytest.raises(SIGTERMException):
                run()
        else:
            run()
        assert sorted(folder.name for folder in (tmp_path / "checkpoints").iterdir()) == ["round-00003", "round-00004"]
        rest, watch = built(rounds=6), Watch()
        fit(rest, tmp_path, [watch], ckpt_path=tmp_path / "checkpoints" / "round-00004" / "trainer.ckpt", **options)
        torch.manual_seed(4)
        whole = built(rounds=6)
        fit(whole, tmp_path / "whole", **options)
        assert watch.batches == [4, 5]
        assert rest.round == 6
        assert same(rest.policy.role_state(), whole.policy.role_state())

    def test_another_library_can_load_the_adapter(self, tmp_path):
        from peft import PeftModel
        from transformers import AutoModelForCausalLM

        module = built(rounds=2)
        fit(module, tmp_path, [AdapterCheckpoint()])
        base = AutoModelForCausalLM.from_pretrained(module.backbone.config.location)
        loaded = PeftModel.from_pretrained(base, tmp_path / "checkpoints" / "round-00002" / "policy")
        ids = torch.tensor([[4, 5, 6]])
        with torch.no_grad(), module.backbone.active("policy") as model:
            torch.testing.assert_close(loaded(input_ids=ids).logits, model(input_ids=ids).logits)

    def test_bad_arguments(self):
        with pytest.raises(ValueError, match="`every_n_rounds` must be at least 1"):
            AdapterCheckpoint(every_n_rounds=0)
