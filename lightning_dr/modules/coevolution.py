"""Generator and policy, updated every round."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from typing import Any, cast

import torch
from lightning import LightningModule
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor

from ..callbacks.base import DRCallback, Role
from ..diagnostics import round_metrics
from ..records import UNSET, Batch, Round
from ..roles import Evaluator, ReferenceRanking, RubricWriter, Verifier, attach
from ..rollout import Roles, RoundConfig, collect_round
from .backbone import Backbone, BackboneConfig
from .generator import GeneratorModule
from .metrics import IntervalMetric
from .policy import PolicyModule
from .random_state import get_random_state, seeded, set_random_state
from .role import RoleModule
from .schedule import Phase, phase_at
from .validation import validation_values

CHECKPOINT_KEY = "co_evolution"

log = logging.getLogger(__name__)


class CoEvolutionModule(LightningModule):
    """A policy and the generator of its evaluator, trained together with manual optimisation.

    One training step is one round. Lightning's ``global_step`` counts the optimizer steps of both roles, so it drives nothing here:
    ``round``, ``policy_step`` and ``generator_step`` do.

    Args:
        backbone: The base model that all roles share.
        policy: The policy.
        generator: The rubric generator.
        verifier: Answers the items; frozen.
        rounds: Sizes and rewards of a round.
        schedule: The phases of the run, in order.
        evaluator: Scores the policy in the generator's place, which then neither writes nor learns. Callbacks that only change who writes
            the rubrics (a stale evaluator, a swap) have no need of it.
        reference: Orders the responses of a set for ``rounds.gap_weight``.
        validation_seed: Validation draws from its own random state, the same every time, and leaves that of training alone.
    """

    def __init__(
        self,
        backbone: BackboneConfig,
        policy: PolicyModule,
        generator: GeneratorModule,
        verifier: Verifier,
        rounds: RoundConfig = RoundConfig(),  # noqa: B008
        schedule: list[Phase] = [Phase(rounds=100)],  # noqa: B006, B008
        evaluator: Evaluator | None = None,
        reference: ReferenceRanking | None = None,
        validation_seed: int = 0,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        if not schedule:
            raise ValueError("`schedule` must have at least one phase, got none.")
        if rounds.gap_weight > 0 and reference is None:
            raise ValueError(
                f"`reference` must be given where `rounds.gap_weight` is not 0, got {rounds.gap_weight} and none: it orders the pairs."
            )
        self.backbone_config = backbone
        self.policy = policy
        self.generator = generator
        self.verifier = verifier
        self.config = rounds
        self.schedule = schedule
        self.evaluator = evaluator
        self.reference = reference
        self.validation_seed = validation_seed
        self.backbone: Backbone = UNSET
        self.evaluator_writer: RubricWriter | None = None
        """Who writes the rubrics that score the policy; ``None`` is the live generator. Callbacks set it."""
        self.round = 0
        self.steps = {"policy": 0, "generator": 0}
        self._random_state: dict[str, Any] | None = None
        self._validation: dict[str, IntervalMetric] = {}

    # -- set-up ---------------------------------------------------------------------------------------------------

    def configure_model(self) -> None:
        """Load the base and give each role what is its own."""
        if self.backbone is not UNSET:
            return
        self.backbone = Backbone(self.backbone_config)
        for role in self.roles.values():
            role.attach(self.backbone, self.backbone_config)
        if hasattr(self.verifier, "attach"):
            self.verifier.attach(self.backbone)
        for part in (self.evaluator, self.reference):
            attach(part, self)

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """The policy's optimizer and the generator's, each over its own parameters."""
        optimizers = [role.make_optimizer() for role in self.roles.values()]
        self._base_lrs = {name: opt.param_groups[0]["lr"] for name, opt in zip(self.roles, optimizers, strict=True)}
        return optimizers

    def on_fit_start(self) -> None:
        """Refuse Trainer settings that would be ignored or do harm."""
        trainer = self.trainer
        if trainer.max_steps != -1 and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            raise ValueError(
                f"`trainer.max_steps` must be -1, got {trainer.max_steps}: it counts the steps of both roles. "
                "Set the rounds in `model.schedule`."
            )
        if trainer.precision != "32-true":
            raise ValueError(
                f"`trainer.precision` must be 32-true, got {trainer.precision}: adapters stay in float32. "
                "Set the precision of the base in `model.backbone.dtype` or `model.backbone.quantization`."
            )
        if trainer.world_size > 1:
            raise ValueError(
                f"`trainer.devices` must be 1, got {trainer.world_size} processes. Training on several devices is not supported."
            )

    @property
    def roles(self) -> dict[str, RoleModule]:
        """The trained roles, in the order of their optimizers."""
        return {"policy": self.policy, "generator": self.generator}

    @property
    def players(self) -> Roles:
        """Who plays what in a round."""
        return Roles(
            responder=self.policy,
            writer=self.generator if self.evaluator is None else None,
            verifier=self.verifier,
            evaluator_writer=self.evaluator_writer,
            evaluator=self.evaluator,
            reference=self.reference,
        )

    @property
    def num_rounds(self) -> int:
        """Rounds of the whole schedule."""
        return sum(phase.rounds for phase in self.schedule)

    @property
    def phase(self) -> Phase:
        """The phase of the current round."""
        return phase_at(self.schedule, self.round)

    # -- training -------------------------------------------------------------------------------------------------

    def on_train_start(self) -> None:
        """Say it when there is nothing left to do."""
        if self.round >= self.num_rounds:
            log.warning("All %d rounds of `model.schedule` are done: lengthen it to go on.", self.num_rounds)

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> int | None:
        """Continue the random stream of the run that is resumed; end a run whose rounds are done."""
        if self._random_state is not None:
            set_random_state(self._random_state)
            self._random_state = None
        if self.round >= self.num_rounds:
            self.trainer.should_stop = True
            return -1
        return None

    def training_step(self, batch: Batch, batch_idx: int) -> None:
        """One round: collect it, update both roles, log it."""
        start = time.perf_counter()
        round_ = collect_round(batch, self.players, self.config, index=self.round, hook=self._hook)
        phase = self.phase
        order: tuple[Role, Role] = ("generator", "policy") if phase.first == "generator" else ("policy", "generator")
        for role in order:
            began = time.perf_counter()
            round_.metrics.update(self._update(role, round_, phase))
            round_.seconds[f"update_{role}"] = time.perf_counter() - began
        round_.seconds["round"] = time.perf_counter() - start
        round_.metrics.update(round_metrics(round_) | getattr(self.verifier, "metrics", {}) | getattr(self.evaluator, "metrics", {}))
        round_ = self._hook("on_round_end", round_)
        self.log_dict({"round": float(self.round), "step": float(self.round), **round_.metrics}, on_step=True, on_epoch=False)
        self.round += 1
        if self.round >= self.num_rounds:
            self.trainer.should_stop = True

    def _hook(self, name: str, round_: Round) -> Round:
        """Hand the record through the callbacks."""
        for callback in self._round_callbacks():
            changed = getattr(callback, name)(self.trainer, self, round_)
            if changed is not None:
                round_ = changed
        return round_

    def _round_callbacks(self) -> list[DRCallback]:
        return [callback for callback in getattr(self.trainer, "callbacks", ()) if isinstance(callback, DRCallback)]

    def _update(self, name: Role, round_: Round, phase: Phase) -> dict[str, float]:
        """All optimizer steps of one role on one round."""
        updates = phase.policy_updates if name == "policy" else phase.generator_updates if round_.live else 0
        if updates == 0 or any(cb.on_before_update(self.trainer, self, round_, name) is False for cb in self._round_callbacks()):
            return {}
        role = self.roles[name]
        if name == "policy":
            draw = role.make_draw(round_.responses, round_.policy_advantages_BK, round_.policy_valid_BK)
        else:
            completions = [[rubric.completion for rubric in group] for group in round_.live.rubrics]
            draw = role.make_draw(completions, round_.generator_advantages_BG, round_.generator_valid_BG)
        if not draw.trees:
            return {f"{name}/skipped_update": 1.0}
        optimizer = cast(list[LightningOptimizer], self.optimizers())[list(self.roles).index(name)]
        lr = getattr(phase, f"{name}_lr")
        for group in optimizer.param_groups:
            group["lr"] = self._base_lrs[name] if lr is None else lr
        metrics: dict[str, float] = {}
        for _ in range(updates):
            metrics = self._step(role, draw, optimizer) | {k: v for k, v in metrics.items() if k == "sampler_logprob_diff"}
            self.steps[name] += 1
        return {f"{name}/{key}": value for key, value in metrics.items()} | {f"{name}/step": float(self.steps[name])}

    def _step(self, role: RoleModule, draw: Any, optimizer: Any) -> dict[str, float]:
        """One optimizer step over all passes of a draw."""
        totals: dict[str, float] = {}
        optimizer.zero_grad()
        with role.learning():
            for loss, metrics in role.losses(draw):
                self.manual_backward(loss)
                for key, value in {"loss": loss.detach(), **metrics}.items():
                    merge = max if key == "sampler_logprob_diff" else float.__add__
                    totals[key] = merge(totals.get(key, 0.0), value.item())
        norm = torch.nn.utils.clip_grad_norm_(role.role_parameters().values(), role.max_grad_norm or math.inf).item()
        if not math.isfinite(norm):
            raise FloatingPointError(
                f"Round {self.round}: the gradient of the {role.role} is {norm}. Lower its learning rate or use float32."
            )
        optimizer.step()
        optimizer.zero_grad()
        return totals | {"grad_norm": norm}

    # -- validation -----------------------------------------------------------------------------------------------

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """A round on held-out prompts without updates: rubrics written from C, applied to the anchor lists."""
        with seeded(self.validation_seed + batch_idx, self.device):
            round_ = collect_round(batch, self.players, self.config, index=self.round, evaluator_anchors=True)
        for name, values in validation_values(round_).items():
            self._validation.setdefault(name, IntervalMetric()).update(values)
        for callback in self._round_callbacks():
            callback.on_validation_round(self.trainer, self, round_)

    def on_validation_epoch_end(self) -> None:
        """Log means, and the 95% interval over prompts."""
        found, self._validation = self._validation, {}
        for name, metric in found.items():
            result = metric.compute()
            if result.size:
                values = {f"val/{name}": result.mean, f"val/{name}_low": result.low, f"val/{name}_high": result.high}
                self.log_dict({key: value for key, value in values.items() if math.isfinite(value)})

    # -- state ----------------------------------------------------------------------------------------------------

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """What the roles train, and nothing of the frozen base."""
        if self.backbone is UNSET:
            return {}
        return {f"{name}.{key}": value for name, role in self.roles.items() for key, value in role.role_state().items()}

    def load_state_dict(self, state_dict: Mapping[str, Tensor], strict: bool = True, assign: bool = False) -> None:
        """Restore :meth:`state_dict`."""
        for name, role in self.roles.items():
            role.load_role_state({key.removeprefix(f"{name}."): value for key, value in state_dict.items() if key.startswith(f"{name}.")})

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add counters, random states and the identity of the base."""
        checkpoint[CHECKPOINT_KEY] = {
            "round": self.round,
            "steps": dict(self.steps),
            "random_state": get_random_state(),
            "base": self.backbone.fingerprint(),
        }
        as_after_a_round(checkpoint["loops"]["fit_loop"])

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore them; refuse the checkpoint of another base."""
        state = checkpoint[CHECKPOINT_KEY]
        if state["base"] != self.backbone.fingerprint():
            raise ValueError(
                f"The checkpoint must come from the base {self.backbone_config.name_or_path!r}, but the weights differ. "
                "Resume with the base and the quantization that it was trained with."
            )
        self.round = state["round"]
        self.steps = dict(state["steps"])
        self._random_state = state["random_state"]
        if self.trainer.state.fn == TrainerFn.VALIDATING:
            # Lightning restores callbacks for a fit only, but an old evaluator is what the run is validated with.
            for callback in self._round_callbacks():
                callback.load_state_dict(checkpoint["callbacks"].get(callback.state_key, callback.state_dict()))


def as_after_a_round(loops: Mapping[str, Any]) -> None:
    """Set Lightning's counters in a checkpoint to what they are when a round has just been done, in whichever hook the checkpoint is taken.

    A run is over when its rounds are done, not when it was told to stop or ``limit_train_batches`` was reached: another one may go on.
    """
    epoch, batch = loops["epoch_progress"], loops["epoch_loop.batch_progress"]
    batch["is_last_batch"] = False
    for counter in ("total", "current"):
        epoch[counter]["processed"] = epoch[counter]["completed"] = epoch[counter]["started"] - 1
        batch[counter]["completed"] = batch[counter]["processed"] - 1
