import math

import pytest
import torch
from torch.utils.data import DataLoader

from lightning_dr.callbacks import AdapterCheckpoint, DRCallback
from lightning_dr.modules import Phase
from lightning_dr.modules.schedule import phase_at
from lightning_dr.objectives import ObjectiveConfig
from lightning_dr.records import Batch, Prompt, Round
from tests.conftest import fit, same, states, toy_data, toy_module, trainer


class Watch(DRCallback):
    """Keeps what a test wants to look at."""

    def __init__(self):
        self.metrics, self.batches, self.rounds = [], [], []

    def on_round_end(self, trainer, module, round):
        self.metrics.append(dict(round.metrics))
        self.batches.append(round.batch.index)
        self.rounds.append(round)


class Only(DRCallback):
    """Lets one role learn."""

    def __init__(self, role):
        self.role = role

    def on_before_update(self, trainer, module, round, role):
        return role == self.role


def built(**kwargs):
    module = toy_module(**kwargs)
    module.configure_model()
    return module


class TestIsolation:
    @pytest.mark.parametrize(("role", "other"), [("policy", "generator"), ("generator", "policy")])
    def test_a_step_of_one_role_leaves_the_other_and_the_base_bit_identical(self, role, other, tmp_path):
        module = built()
        adapters, base = states(module)
        trainer = fit(module, tmp_path, [Only(role)])
        after, base_after = states(module)
        assert same(base, base_after)
        assert same(adapters[other], after[other])
        assert not same(adapters[role], after[role])
        optimizers = dict(zip(module.roles, trainer.optimizers, strict=True))
        assert not optimizers[other].state
        assert module.steps == {role: 2, other: 0}

    def test_both_adapters_move_and_the_base_does_not(self, tmp_path):
        module = built()
        adapters, base = states(module)
        fit(module, tmp_path)
        after, base_after = states(module)
        assert same(base, base_after)
        assert all(not same(adapters[role], after[role]) for role in adapters)

    def test_each_optimizer_holds_its_own_parameters_and_no_others(self):
        module = built()
        policy, generator = module.configure_optimizers()
        ids = [{id(p) for group in opt.param_groups for p in group["params"]} for opt in (policy, generator)]
        assert not ids[0] & ids[1]
        assert ids[0] == {id(p) for p in module.policy.role_parameters().values()}
        assert all("lora_" in name and ".generator." in name for name in module.generator.role_parameters())

    def test_a_role_starts_as_the_base(self):
        module = built()
        assert all(not value.any() for key, value in module.policy.role_state().items() if "lora_B" in key)


class TestNumbers:
    def test_before_the_first_update_the_ratio_is_1_the_kl_0_and_sampler_and_learner_agree(self, tmp_path):
        watch = Watch()
        objective = {"objective": ObjectiveConfig(kl_weight=0.1)}
        fit(built(policy=objective, generator=objective, schedule=[Phase(rounds=1)]), tmp_path, [watch])
        (metrics,) = watch.metrics
        for role in ("policy", "generator"):
            assert metrics[f"{role}/ratio"] == pytest.approx(1.0, abs=1e-5)
            assert metrics[f"{role}/kl"] == pytest.approx(0.0, abs=1e-6)
            assert metrics[f"{role}/clip_fraction"] == 0
            assert metrics[f"{role}/sampler_logprob_diff"] < 1e-4
            assert math.isfinite(metrics[f"{role}/grad_norm"])

    def test_after_training_the_sampler_still_sees_the_weights_that_learn(self, tmp_path):
        watch = Watch()
        fit(built(schedule=[Phase(rounds=4)]), tmp_path, [watch])
        assert max(m[f"{role}/sampler_logprob_diff"] for m in watch.metrics for role in ("policy", "generator")) < 1e-3
        assert watch.metrics[-1]["policy/kl"] > 0

    def test_the_gradient_does_not_depend_on_the_number_of_passes(self):
        gradients = []
        for budget in (40, 150, 8192):
            torch.manual_seed(0)
            module = built(backbone={"max_tokens_per_pass": budget})
            data = toy_data()
            data.setup("fit")
            object.__setattr__(module.backbone.config, "max_tokens_per_pass", 8192)
            torch.manual_seed(1)
            for parameter in module.generator.role_parameters().values():
                torch.nn.init.normal_(parameter.data, std=0.1)
            torch.manual_seed(2)
            batch = data.batch(0)
            rubrics = module.generator.write(batch.prompts, module.policy.respond(batch.prompts, 4), 3)
            object.__setattr__(module.backbone.config, "max_tokens_per_pass", budget)
            advantages = torch.tensor([[1.0, -0.5, -0.5], [0.2, 0.8, -1.0]])
            draw = module.generator.make_draw(
                [[d.completion for d in group] for group in rubrics], advantages, torch.ones(2, 3, dtype=torch.bool)
            )
            with module.generator.learning():
                for loss, _ in module.generator.losses(draw):
                    loss.backward()
            gradients.append(torch.cat([p.grad.flatten() for p in module.generator.role_parameters().values()]))
        for other in gradients[1:]:
            assert (gradients[0] - other).norm() / other.norm() < 1e-5

    def test_several_updates_on_one_draw_move_the_ratio(self, tmp_path):
        watch = Watch()
        module = built(schedule=[Phase(rounds=1, policy_updates=3, generator_updates=2)])
        fit(module, tmp_path, [watch])
        assert module.steps == {"policy": 3, "generator": 2}
        assert abs(watch.metrics[0]["generator/ratio"] - 1) > 1e-4

    def test_with_dropout_the_updates_of_a_draw_compare_the_same_masks(self, tmp_path):
        # without a learning rate nothing changes between the updates, so neither may the ratio
        watch = Watch()
        still = {
            "lora": {"r": 4, "alpha": 8, "target_modules": "all-linear", "dropout": 0.5},
            "optimizer": lambda p: torch.optim.SGD(p, lr=0.0),
        }
        module = built(policy=still, schedule=[Phase(rounds=2, policy_updates=3)])
        for parameter in module.policy.role_parameters().values():
            torch.nn.init.normal_(parameter.data, std=0.2)
        fit(module, tmp_path, [watch])
        for metrics in watch.metrics:
            assert metrics["policy/ratio"] == pytest.approx(1.0, abs=1e-5)
            assert metrics["policy/sampler_logprob_diff"] > 0.01  # the masks do something

    def test_no_reference_is_asked_when_the_kl_weight_is_0(self, tmp_path, monkeypatch):
        from lightning_dr.modules import update

        monkeypatch.setattr(update, "fill_reference", lambda *_: pytest.fail("reference asked"))
        objective = {"objective": ObjectiveConfig(kl_weight=0.0)}
        fit(built(policy=objective, generator=objective, schedule=[Phase(rounds=1)]), tmp_path)

    def test_non_finite_gradient_stops_with_the_role_and_the_round(self, tmp_path):
        module = built()
        next(iter(module.generator.role_parameters().values())).register_hook(lambda grad: grad * float("nan"))
        with pytest.raises(FloatingPointError, match="Round 0: the gradient of the generator"):
            fit(module, tmp_path)


class TestSchedule:
    def test_phases(self, tmp_path):
        watch = Watch()
        module = built(schedule=[Phase(rounds=1, policy_updates=0, generator_lr=1e-4), Phase(rounds=2, generator_updates=0)])
        fit(module, tmp_path, [watch])
        assert ["policy/step" in m for m in watch.metrics] == [False, True, True]
        assert ["generator/step" in m for m in watch.metrics] == [True, False, False]
        assert module.round == 3

    def test_rounds_are_not_lightnings_global_step(self, tmp_path):
        module = built(schedule=[Phase(rounds=2, policy_updates=2)])
        trainer = fit(module, tmp_path)
        assert (module.round, trainer.global_step) == (2, 6)

    @pytest.mark.parametrize("first", ["generator", "policy"])
    def test_either_order(self, first, tmp_path):
        seen = []

        class Order(DRCallback):
            def on_before_update(self, trainer, module, round, role):
                seen.append(role)

        fit(built(schedule=[Phase(rounds=1, first=first)]), tmp_path, [Order()])
        assert seen[0] == first
        assert len(seen) == 2

    def test_phase_at(self):
        phases = [Phase(rounds=2, name="a"), Phase(rounds=1, name="b")]
        assert [phase_at(phases, n).name for n in range(5)] == ["a", "a", "b", "b", "b"]
        with pytest.raises(ValueError, match="`rounds` must be at least 1"):
            Phase(rounds=0)

    @pytest.mark.parametrize(
        ("kwargs", "message"),
        [({"max_steps": 5}, r"`trainer\.max_steps` must be -1"), ({"precision": "bf16-true"}, r"`trainer\.precision` must be")],
    )
    def test_trainer_settings_that_would_do_harm_are_refused(self, kwargs, message, tmp_path):
        with pytest.raises(ValueError, match=message):
            fit(built(), tmp_path, **kwargs)


class TestState:
    def test_a_resumed_run_is_the_unbroken_one_bit_by_bit(self, tmp_path):
        torch.manual_seed(5)
        whole, watch = built(schedule=[Phase(rounds=4)]), Watch()
        fit(whole, tmp_path / "whole", [watch])

        torch.manual_seed(5)
        first = built(schedule=[Phase(rounds=4)])

        class Stop(DRCallback):
            def on_round_end(self, trainer, module, round):
                trainer.should_stop = round.index == 1

        fit(first, tmp_path / "broken", [Stop(), AdapterCheckpoint(every_n_rounds=2)])
        path = tmp_path / "broken" / "checkpoints" / "round-00002" / "trainer.ckpt"
        assert path.is_file()

        torch.manual_seed(99)
        second, rest = built(schedule=[Phase(rounds=4)]), Watch()
        fit(second, tmp_path / "resumed", [rest, AdapterCheckpoint(every_n_rounds=2)], ckpt_path=path)
        assert rest.batches == [2, 3]
        assert watch.batches == [0, 1, 2, 3]
        for role in ("policy", "generator"):
            assert same(states(whole)[0][role], states(second)[0][role])
        timeless = lambda metrics: {k: v for k, v in metrics.items() if not k.startswith("seconds/")}  # noqa: E731
        assert [timeless(m) for m in rest.metrics] == [timeless(m) for m in watch.metrics[2:]]
        assert second.steps == {"policy": 4, "generator": 4}

    def test_a_checkpoint_holds_no_base(self, tmp_path):
        module = built(schedule=[Phase(rounds=1)])
        fit(module, tmp_path, [AdapterCheckpoint()])
        checkpoint = torch.load(tmp_path / "checkpoints" / "round-00001" / "trainer.ckpt", weights_only=True)
        trained = sum(p.numel() for role in module.roles.values() for p in role.role_parameters().values())
        assert sum(value.numel() for value in checkpoint["state_dict"].values()) == trained
        assert all("lora_" in key for key in checkpoint["state_dict"])

    def test_the_checkpoint_of_another_base_is_refused(self, tmp_path, random_model):
        fit(built(schedule=[Phase(rounds=1)]), tmp_path, [AdapterCheckpoint()])
        other = built(backbone={"name_or_path": random_model("llama")})
        with pytest.raises(ValueError, match="must come from the base"):
            fit(other, tmp_path, ckpt_path=tmp_path / "checkpoints" / "round-00001" / "trainer.ckpt")

    def test_validation_leaves_the_training_stream_alone(self, tmp_path):
        outcomes = []
        for limit in (0, 1):
            torch.manual_seed(3)
            module = built()
            fit(module, tmp_path, limit_val_batches=limit, val_check_interval=1)
            outcomes.append(states(module)[0])
        assert same(outcomes[0]["policy"], outcomes[1]["policy"])

    def test_validation_reports_intervals_and_the_length_heuristic(self, tmp_path):
        trainer = fit(built(), tmp_path, limit_val_batches=1.0, val_check_interval=2)
        found = {key for key in trainer.callback_metrics if key.startswith("val/")}
        assert {"val/accuracy", "val/accuracy_low", "val/accuracy_high", "val/length_accuracy", "val/covered"} <= found


class TestParts:
    def test_a_users_own_loader_of_batches(self, tmp_path):
        prompt = Prompt(id="mine", messages=({"role": "user", "content": "Write about ocean."},))
        batches = [Batch(index=number, prompts=(prompt,), anchors=(None,)) for number in range(3)]
        module = built(schedule=[Phase(rounds=2)])
        trainer(tmp_path).fit(module, DataLoader(batches, batch_size=None))
        assert module.round == 2

    def test_full_fine_tuning_of_the_policy(self, tmp_path):
        module = built(policy={"lora": None}, schedule=[Phase(rounds=1)])
        shared = {key: value.clone() for key, value in module.backbone.base.state_dict().items() if "lora_" not in key}
        before = module.policy.role_state()
        assert module.policy.backbone is not module.backbone
        fit(module, tmp_path, [AdapterCheckpoint()])
        assert not same(before, module.policy.role_state())
        assert all(torch.equal(shared[key], module.backbone.base.state_dict()[key]) for key in shared)
        assert (tmp_path / "checkpoints" / "round-00001" / "policy" / "config.json").is_file()

    def test_a_role_that_starts_from_a_saved_adapter_has_that_start_as_its_reference(self, tmp_path):
        fit(built(), tmp_path, [AdapterCheckpoint()])
        saved = tmp_path / "checkpoints" / "round-00002" / "policy"
        watch = Watch()
        module = built(policy={"adapter_path": str(saved)}, schedule=[Phase(rounds=1)])
        assert module.policy.reference_adapter == "policy_start"
        fit(module, tmp_path, [watch])
        assert watch.metrics[0]["policy/kl"] == pytest.approx(0.0, abs=1e-6)

    def test_parted_draws_teach_each_role_with_its_own_rubrics(self, tmp_path):
        watch = Watch()
        module = built(schedule=[Phase(rounds=1)])
        module.evaluator_writer = module.generator.writer("generator")
        fit(module, tmp_path, [watch])
        (round_,) = watch.rounds
        assert isinstance(round_, Round)
        assert round_.parted
        assert round_.live.rubrics != round_.evaluator.rubrics
        torch.testing.assert_close(round_.scores_BK, round_.evaluator.scores_BGK.nanmean(1), equal_nan=True)
        assert round_.live.anchor_scores_BGR.shape[-1] == 7
        assert round_.evaluator.anchor_scores_BGR.shape[-1] == 0

    def test_without_parting_the_two_draws_are_one(self, tmp_path):
        watch = Watch()
        fit(built(schedule=[Phase(rounds=1)]), tmp_path, [watch])
        assert watch.rounds[0].live is watch.rounds[0].evaluator
