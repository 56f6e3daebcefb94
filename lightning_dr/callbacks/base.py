"""The hooks of a round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from lightning import Callback, Trainer

from ..records import Round

if TYPE_CHECKING:
    from ..modules.coevolution import CoEvolutionModule

Role = Literal["policy", "generator"]


def check_round_ahead(name: str, value: int, module: CoEvolutionModule, past: bool = False) -> None:
    """Refuse a round at which a callback should act but can't; with ``past``, it can still act after it.

    Raises:
        ValueError: If the schedule ends before it, or the run goes on from a checkpoint behind it; the message names the option.
    """
    if value >= module.num_rounds:
        raise ValueError(
            f"`{name}` must be less than the {module.num_rounds} rounds of `model.schedule`, got {value}: it would never act. "
            "Lower it, or lengthen the schedule."
        )
    if value < module.round and not past:
        raise ValueError(
            f"`{name}` must be at least {module.round}, the round from which this run goes on, got {value}. "
            "Raise it, or go on from an earlier checkpoint."
        )


class DRCallback(Callback):
    """A Lightning callback that also sees the stages of a round.

    Each hook gets the record after its stage and returns a replaced record, or ``None`` to leave it. Records check
    their own shapes, so a faulty hook fails where it is.

    Example::

        class ShuffledScores(DRCallback):
            def on_scores(self, trainer, module, round):
                order = torch.randperm(round.scores_BK.shape[1])
                return replace(round, scores_BK=round.scores_BK[:, order])
    """

    def on_responses(self, trainer: Trainer, module: CoEvolutionModule, round: Round) -> Round | None:
        """After the policy has sampled ``round.responses``."""

    def on_rubrics(self, trainer: Trainer, module: CoEvolutionModule, round: Round) -> Round | None:
        """After the rubrics of ``round.live`` and ``round.evaluator`` are written."""

    def on_verdicts(self, trainer: Trainer, module: CoEvolutionModule, round: Round) -> Round | None:
        """After the verifier has answered: ``verdicts_BGKM``, ``anchor_verdicts_BGRM``."""

    def on_scores(self, trainer: Trainer, module: CoEvolutionModule, round: Round) -> Round | None:
        """After ``scores_BK`` and the scores of each rubric."""

    def on_rewards(self, trainer: Trainer, module: CoEvolutionModule, round: Round) -> Round | None:
        """After ``policy_rewards_BK`` and the generator's ``disc_BG``, ``anchor_BG``, ``format_BG``."""

    def on_advantages(self, trainer: Trainer, module: CoEvolutionModule, round: Round) -> Round | None:
        """After ``policy_advantages_BK`` and ``generator_advantages_BG``."""

    def on_before_update(self, trainer: Trainer, module: CoEvolutionModule, round: Round, role: Role) -> bool | None:
        """Before a role learns from the round. ``False`` skips the role in this round."""

    def on_round_end(self, trainer: Trainer, module: CoEvolutionModule, round: Round) -> Round | None:
        """After both updates, before ``round.metrics`` are logged: add to them here."""

    def on_validation_round(self, trainer: Trainer, module: CoEvolutionModule, round: Round) -> None:
        """After each validation batch; nothing is learned from it. Log with ``module.log``."""
