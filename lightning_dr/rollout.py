"""One round up to the advantages: respond, write, verify, score, reward, advantage, over the protocols of the roles."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from lightning_dr.advantages import Scale, group_advantages
from lightning_dr.evaluation import score_rubrics, verify_rubrics
from lightning_dr.gap import score_gap
from lightning_dr.records import UNSET, Batch, Evaluation, Responses, Round
from lightning_dr.rewards import PairWeights, Spread, anchor_agreement, discriminability, format_reward, with_floor
from lightning_dr.roles import Evaluator, ReferenceRanking, Responder, RubricWriter, Verifier
from lightning_dr.scoring import mean_scores

Combine = Literal["advantages", "rewards"]
Truncated = Literal["score", "mask", "floor"]


class VerifierFailureError(RuntimeError):
    """Too many verdicts of a round could not be read."""


@dataclass(frozen=True, kw_only=True)
class RoundConfig:
    """Sizes and rewards of a round."""

    num_responses: int = 8
    """K, the responses per prompt."""
    num_rubrics: int = 8
    """G, the rubrics per prompt. Not given in the source."""
    disc_weight: float = 1.0
    """Weight of J_disc; 0 trains the generator on the anchors alone."""
    disc_spread: Spread = "between"
    """What J_disc counts of verdicts that are P(yes): ``"between"``: their variance over the responses; ``"bernoulli"``: Eq. 14, in which a
    verifier's doubt counts too. With yes/no verdicts both are the same."""
    anchor_weight: float = 1.0
    """λ, the weight of J_anchor; 0 trains the generator on discriminability alone."""
    gap_weight: float = 0.0
    """Weight of a third reward, the score gap of the rubric on C itself, over the pairs that a reference ranking orders: the direct
    surrogate of Δgap. Not in the source."""
    format_weight: float = 1.0
    """Weight of the format term, which makes an unreadable rubric worse than any readable one. Not given in the source."""
    combine: Combine = "advantages"
    """``"advantages"``: each reward is normalised inside its group before they are added (the paper's). ``"rewards"``: add,
    then normalise."""
    scale: Scale = "std"
    """Denominator of the advantages: the group's standard deviation, or none."""
    anchor_temperature: float = 1.0
    """τ of J_anchor."""
    anchor_pair_weights: PairWeights = "paper"
    """Weights of the pairs of J_anchor."""
    truncated_responses: Truncated = "score"
    """A response that the length limit cut: score it as it is, mask it out of the update, or give it its group's lowest score.
    Not given in the source."""
    max_verdict_failures: float = 0.5
    """Stop with an error when a larger share of the verdicts of a round can't be read."""

    def __post_init__(self) -> None:
        for name in ("num_responses", "num_rubrics"):
            if getattr(self, name) < 2:
                raise ValueError(f"`{name}` must be at least 2, got {getattr(self, name)}: advantages compare the members of a group.")
        for name in ("disc_weight", "anchor_weight", "gap_weight", "format_weight"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"`{name}` must be at least 0, got {getattr(self, name)}.")
        if not self.anchor_temperature > 0:
            raise ValueError(f"`anchor_temperature` must be positive, got {self.anchor_temperature}.")
        if not 0 <= self.max_verdict_failures <= 1:
            raise ValueError(f"`max_verdict_failures` must be in [0, 1], got {self.max_verdict_failures}.")
        choices = {
            "combine": Combine,
            "scale": Scale,
            "disc_spread": Spread,
            "anchor_pair_weights": PairWeights,
            "truncated_responses": Truncated,
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in get_args(allowed):
                raise ValueError(f"`{name}` must be one of {get_args(allowed)}, got {getattr(self, name)!r}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """Who plays what in a round."""

    responder: Responder
    writer: RubricWriter | None
    """The live generator, which learns from its own rubrics; ``None`` where another evaluator makes it superfluous."""
    verifier: Verifier
    evaluator_writer: RubricWriter | None = None
    """Who writes the rubrics that score the policy, when that is not the live generator."""
    evaluator: Evaluator | None = None
    """Who scores the policy, when that is no rubric writer of the round."""
    reference: ReferenceRanking | None = None
    """Orders the responses for the gap reward."""

    def __post_init__(self) -> None:
        if self.evaluator is not None and self.evaluator_writer is not None:
            raise ValueError("`evaluator` and `evaluator_writer` must not both be given: one of them scores the policy.")
        if self.writer is None and self.evaluator is None:
            raise ValueError("`writer` must be given where no `evaluator` is: somebody must score the policy.")


Hook = Callable[[str, Round], Round]
"""Called with the name of a stage and the round after it; returns the round to go on with."""


def collect_round(
    batch: Batch,
    roles: Roles,
    config: RoundConfig,
    index: int = 0,
    hook: Hook = lambda _, round_: round_,
    evaluator_anchors: bool = False,
) -> Round:
    """Run one round up to the advantages.

    Args:
        batch: B prompts with their anchor lists.
        roles: Who responds, writes and verifies.
        config: Sizes and rewards.
        index: Number of the round.
        hook: Called after each stage.
        evaluator_anchors: Score the anchor lists too by what scores the policy, where that is not the live generator; training has no
            need of it.

    Returns:
        The record of the round, with the seconds that each stage took.

    Raises:
        VerifierFailureError: If more verdicts than allowed could not be read.
    """
    round_ = Round(index=index, batch=batch)
    stages: list[tuple[str, Callable[[Round], Round]]] = [
        ("responses", lambda r: replace(r, responses=roles.responder.respond(batch.prompts, config.num_responses))),
        ("rubrics", lambda r: _write(r, roles, config)),
        ("verdicts", lambda r: _verify(r, roles.verifier, config, evaluator_anchors)),
        ("scores", lambda r: _score(r, roles.evaluator, evaluator_anchors)),
        ("rewards", lambda r: _reward(r, roles, config)),
        ("advantages", lambda r: _advantage(r, config)),
    ]
    for name, stage in stages:
        start = time.perf_counter()
        round_ = stage(round_)
        round_.seconds[name] = time.perf_counter() - start
        round_ = hook(f"on_{name}", round_)
    return round_


def _write(round_: Round, roles: Roles, config: RoundConfig) -> Round:
    """The live generator's rubrics, and the evaluator's where they are parted."""

    def written(writer: RubricWriter) -> Evaluation:
        return Evaluation(rubrics=writer.write(round_.batch.prompts, round_.responses, config.num_rubrics))

    live = UNSET if roles.writer is None else written(roles.writer)
    if roles.evaluator is not None:
        return replace(round_, live=live)
    return replace(round_, live=live, evaluator=live if roles.evaluator_writer is None else written(roles.evaluator_writer))


def _judge(round_: Round, change: Callable[[Evaluation, bool], Evaluation]) -> Round:
    """Change both draws of rubrics where they are there, once if they are the same; the change is told whether it is the live one."""
    live = change(round_.live, True) if round_.live else UNSET
    if not round_.parted:
        return replace(round_, live=live, evaluator=live)
    return replace(round_, live=live, evaluator=change(round_.evaluator, False) if round_.evaluator else UNSET)


def _verify(round_: Round, verifier: Verifier, config: RoundConfig, evaluator_anchors: bool) -> Round:
    """Verdicts on C for both draws, and on the anchor lists for the live one (for both if asked)."""
    texts = response_texts(round_.responses)
    answers = [[] if ranked is None else list(ranked.answers) for ranked in round_.batch.anchors]

    def verified(draw: Evaluation, is_live: bool) -> Evaluation:
        return verify_rubrics(draw, round_.batch.prompts, texts, answers if is_live or evaluator_anchors else [[]] * len(texts), verifier)

    round_ = _judge(round_, verified)
    for name, draw in (("live", round_.live), ("evaluator", round_.evaluator)):
        if draw and draw.verdict_failures > config.max_verdict_failures:
            raise VerifierFailureError(
                f"Round {round_.index}: {draw.verdict_failures:.0%} of the verdicts on the {name} rubrics can't be read, more than "
                f"`max_verdict_failures` = {config.max_verdict_failures:.0%}. Check the verifier's template and model, or raise the limit."
            )
    return round_


def _score(round_: Round, evaluator: Evaluator | None, evaluator_anchors: bool) -> Round:
    """Scores of C and of the anchor lists: the mean over the readable rubrics, or what the evaluator gives."""
    round_ = _judge(round_, lambda draw, _: score_rubrics(draw))
    if evaluator is None:
        draw = round_.evaluator
        scored = replace(round_, scores_BK=mean_scores(draw.scores_BGK))
        return replace(scored, anchor_scores_BR=mean_scores(draw.anchor_scores_BGR)) if draw.anchor_scores_BGR.shape[-1] else scored
    prompts = round_.batch.prompts
    round_ = replace(round_, scores_BK=torch.stack(evaluator.scores(prompts, response_texts(round_.responses))))
    listed = [(row, ranked.answers) for row, ranked in enumerate(round_.batch.anchors) if ranked is not None]
    if not (evaluator_anchors and listed):
        return round_
    anchors = torch.full((len(prompts), max(len(answers) for _, answers in listed)), torch.nan)
    found = evaluator.scores([prompts[row] for row, _ in listed], [answers for _, answers in listed])
    for (row, answers), scores in zip(listed, found, strict=True):
        anchors[row, : len(answers)] = scores
    return replace(round_, anchor_scores_BR=anchors)


def response_texts(responses: Responses) -> list[list[str]]:
    """The texts of each response set."""
    return [[response.text for response in group] for group in responses]


def anchor_ranks(batch: Batch, width: int) -> Tensor:
    """Ranks of the anchor lists ``[B, R]``, NaN in padding and where a prompt has none; R is 0 where they were not scored."""
    ranks = torch.full((len(batch.anchors), width), torch.nan)
    for row, ranked in enumerate(batch.anchors if width else ()):
        if ranked is not None:
            ranks[row, : len(ranked.ranks)] = torch.tensor(ranked.ranks)
    return ranks


def _reward(round_: Round, roles: Roles, config: RoundConfig) -> Round:
    """The policy's rewards are the scores; a rubric's are J_disc, J_anchor, format and, if wanted, its gap, kept apart."""

    def rewarded(draw: Evaluation, is_live: bool) -> Evaluation:
        ranks = anchor_ranks(round_.batch, draw.anchor_scores_BGR.shape[-1]).unsqueeze(1).expand_as(draw.anchor_scores_BGR)
        draw = replace(
            draw,
            disc_BG=discriminability(draw.verdicts_BGKM, draw.weights_BGM, draw.item_mask_BGM, config.disc_spread),
            anchor_BG=anchor_agreement(draw.anchor_scores_BGR, ranks, config.anchor_temperature, config.anchor_pair_weights),
            format_BG=format_reward(draw.readable_BG),
        )
        if roles.reference is None or not (is_live and config.gap_weight):
            return draw
        quality = reference_quality(roles.reference, round_).unsqueeze(1).expand_as(draw.scores_BGK)
        return replace(draw, gap_BG=score_gap(draw.scores_BGK, quality))

    round_ = _judge(round_, rewarded)
    rewards, valid = _policy_rewards(round_, config.truncated_responses)
    return replace(round_, policy_rewards_BK=rewards, policy_valid_BK=valid)


def reference_quality(reference: ReferenceRanking, round_: Round) -> Tensor:
    """Quality of each response ``[B, K]``."""
    groups = zip(round_.batch.prompts, response_texts(round_.responses), strict=True)
    return torch.stack([reference.quality(prompt, texts).float() for prompt, texts in groups])


def _policy_rewards(round_: Round, truncated: Truncated) -> tuple[Tensor, Tensor]:
    """Scores after the rule for cut responses, and which responses take part in the update."""
    scores = round_.scores_BK
    cut = torch.tensor([[not response.finished for response in group] for group in round_.responses])
    if truncated == "floor":
        lowest = torch.where(torch.isnan(scores), torch.inf, scores).amin(-1, keepdim=True)
        scores = torch.where(cut & ~torch.isnan(scores), lowest, scores)
    valid = ~torch.isnan(scores)
    return scores, valid & ~cut if truncated == "mask" else valid


def _advantage(round_: Round, config: RoundConfig) -> Round:
    """Group-relative advantages: within a prompt over K, and within a prompt over G."""
    round_ = replace(round_, policy_advantages_BK=group_advantages(round_.policy_rewards_BK, round_.policy_valid_BK, config.scale))
    if not round_.live:
        return round_
    advantages, valid = generator_advantages(round_.live, config)
    return replace(round_, generator_advantages_BG=advantages, generator_valid_BG=valid)


def generator_advantages(live: Evaluation, config: RoundConfig) -> tuple[Tensor, Tensor]:
    """Advantages of the rubrics ``[B, G]``, and which of them take part in the update."""
    readable = live.readable_BG
    terms = [
        (config.disc_weight, with_floor(live.disc_BG, readable)),
        (config.anchor_weight, with_floor(live.anchor_BG, readable)),
        (config.format_weight, live.format_BG),
    ]
    if live.gap_BG is not None:
        terms.append((config.gap_weight, with_floor(live.gap_BG, readable)))
    # A readable rubric whose verdicts are all missing has no discriminability: nobody's fault, so it leaves the update.
    valid = ~torch.isnan(terms[0][1])
    if config.combine == "advantages":
        parts = [weight * group_advantages(reward, valid & ~torch.isnan(reward), config.scale) for weight, reward in terms]
        return torch.stack(parts).sum(0), valid
    for weight, reward in terms[1:]:
        # So does one without a reward that others of its group have: their sums can't be compared.
        if weight > 0:
            earned = (readable & ~torch.isnan(reward)).any(-1, keepdim=True)
            valid = valid & ~(earned & torch.isnan(reward))
    total = torch.stack([weight * torch.nan_to_num(reward) for weight, reward in terms]).sum(0)
    return group_advantages(total, valid, config.scale), valid
