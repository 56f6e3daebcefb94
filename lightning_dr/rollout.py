"""One round up to the advantages: respond, write, verify, score, reward, advantage, over the protocols of the roles."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from lightning_dr.advantages import Scale, group_advantages
from lightning_dr.records import Batch, Evaluation, Round
from lightning_dr.rewards import PairWeights, Spread, anchor_agreement, discriminability, format_reward, with_floor
from lightning_dr.roles import Responder, RubricWriter, Verifier
from lightning_dr.rubric import normalise_question
from lightning_dr.scoring import mean_scores, set_scores

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
        for name in ("disc_weight", "anchor_weight", "format_weight"):
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
    writer: RubricWriter
    """The live generator, which learns from its own rubrics."""
    verifier: Verifier
    evaluator_writer: RubricWriter | None = None
    """Who writes the rubrics that score the policy, when that is not the live generator."""


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
        evaluator_anchors: Apply the evaluator's rubrics to the anchor lists too where they are not the live generator's; training
            has no need of it.

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
        ("scores", _score),
        ("rewards", lambda r: _reward(r, config)),
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
    prompts = round_.batch.prompts
    live = Evaluation(rubrics=roles.writer.write(prompts, round_.responses, config.num_rubrics))
    if roles.evaluator_writer is None:
        return replace(round_, live=live, evaluator=live)
    rubrics = roles.evaluator_writer.write(prompts, round_.responses, config.num_rubrics)
    return replace(round_, live=live, evaluator=Evaluation(rubrics=rubrics))


def _verify(round_: Round, verifier: Verifier, config: RoundConfig, evaluator_anchors: bool) -> Round:
    """Verdicts on C for both draws, and on the anchor lists for the live one (for both if asked)."""
    live = verify_rubrics(round_, round_.live, verifier, anchors=True)
    if not round_.parted:
        round_ = replace(round_, live=live, evaluator=live)
    else:
        round_ = replace(round_, live=live, evaluator=verify_rubrics(round_, round_.evaluator, verifier, evaluator_anchors))
    for name, draw in (("live", round_.live), ("evaluator", round_.evaluator)):
        if draw.verdict_failures > config.max_verdict_failures:
            raise VerifierFailureError(
                f"Round {round_.index}: {draw.verdict_failures:.0%} of the verdicts on the {name} rubrics can't be read, more than "
                f"`max_verdict_failures` = {config.max_verdict_failures:.0%}. Check the verifier's template and model, or raise the limit."
            )
    return round_


def verify_rubrics(round_: Round, draw: Evaluation, verifier: Verifier, anchors: bool) -> Evaluation:
    """Ask every different question of a prompt's rubrics once, and lay the verdicts out by rubric and item."""
    texts, num_anchors = [], []
    for group, ranked in zip(round_.responses, round_.batch.anchors, strict=True):
        extra = list(ranked.answers) if anchors and ranked is not None else []
        texts.append([response.text for response in group] + extra)
        num_anchors.append(len(extra))
    questions = [list(dict.fromkeys(q for rubric in group if rubric.rubric for q in rubric.rubric.questions)) for group in draw.rubrics]
    found = verifier.verify(round_.batch.prompts, texts, questions)
    for verdicts, rows, columns in zip(found, texts, questions, strict=True):
        if verdicts.shape != (len(rows), len(columns)):
            raise ValueError(f"A verifier must return verdicts of shape {(len(rows), len(columns))}, got {tuple(verdicts.shape)}.")
    size = max((len(rubric.rubric.items) for group in draw.rubrics for rubric in group if rubric.rubric), default=1)
    b, g, k, r = len(draw.rubrics), len(draw.rubrics[0]), len(round_.responses[0]), max(num_anchors)
    weights, mask = torch.ones(b, g, size), torch.zeros(b, g, size, dtype=torch.bool)
    verdicts_bgkm, anchors_bgrm = torch.full((b, g, k, size), torch.nan), torch.full((b, g, r, size), torch.nan)
    for row, (rubrics, asked, answers) in enumerate(zip(draw.rubrics, questions, found, strict=True)):
        column = {question: number for number, question in enumerate(asked)}
        for number, rubric in enumerate(rubrics):
            if rubric.rubric is None:
                continue
            items = rubric.rubric.items
            where = [column[item.question] for item in items]
            weights[row, number, : len(items)] = torch.tensor([item.weight for item in items])
            mask[row, number, : len(items)] = first_of_each(rubric.rubric.questions)
            verdicts_bgkm[row, number, :, : len(items)] = answers[:k, where]
            anchors_bgrm[row, number, : num_anchors[row], : len(items)] = answers[k:, where]
    asked_total = sum(answers.numel() for answers in found)
    failures = sum(int(torch.isnan(answers).sum()) for answers in found) / asked_total if asked_total else 0.0
    return replace(
        draw,
        weights_BGM=weights,
        item_mask_BGM=mask,
        verdicts_BGKM=verdicts_bgkm,
        anchor_verdicts_BGRM=anchors_bgrm,
        verdict_failures=failures,
    )


def first_of_each(questions: Sequence[str]) -> Tensor:
    """True for the first occurrence of each question, up to case, blanks and punctuation: a repeated item earns nothing."""
    seen: set[str] = set()
    first = []
    for question in map(normalise_question, questions):
        first.append(question not in seen)
        seen.add(question)
    return torch.tensor(first)


def _score(round_: Round) -> Round:
    """Scores of C and of the anchor lists under every rubric; the policy's score is the mean over the readable rubrics."""

    def scored(draw: Evaluation) -> Evaluation:
        return replace(
            draw,
            scores_BGK=set_scores(draw.verdicts_BGKM, draw.weights_BGM, draw.item_mask_BGM),
            anchor_scores_BGR=set_scores(draw.anchor_verdicts_BGRM, draw.weights_BGM, draw.item_mask_BGM),
        )

    live = scored(round_.live)
    evaluator = scored(round_.evaluator) if round_.parted else live
    return replace(round_, live=live, evaluator=evaluator, scores_BK=mean_scores(evaluator.scores_BGK))


def anchor_ranks(batch: Batch, width: int) -> Tensor:
    """Ranks of the anchor lists ``[B, R]``, NaN in padding and where a prompt has none; R is 0 where they were not scored."""
    ranks = torch.full((len(batch.anchors), width), torch.nan)
    for row, ranked in enumerate(batch.anchors if width else ()):
        if ranked is not None:
            ranks[row, : len(ranked.ranks)] = torch.tensor(ranked.ranks)
    return ranks


def _reward(round_: Round, config: RoundConfig) -> Round:
    """The policy's rewards are the scores; a rubric's are J_disc, J_anchor and format, kept apart."""

    def rewarded(draw: Evaluation) -> Evaluation:
        ranks = anchor_ranks(round_.batch, draw.anchor_scores_BGR.shape[-1]).unsqueeze(1).expand_as(draw.anchor_scores_BGR)
        return replace(
            draw,
            disc_BG=discriminability(draw.verdicts_BGKM, draw.weights_BGM, draw.item_mask_BGM, config.disc_spread),
            anchor_BG=anchor_agreement(draw.anchor_scores_BGR, ranks, config.anchor_temperature, config.anchor_pair_weights),
            format_BG=format_reward(draw.readable_BG),
        )

    live = rewarded(round_.live)
    evaluator = rewarded(round_.evaluator) if round_.parted else live
    rewards, valid = _policy_rewards(round_, config.truncated_responses)
    return replace(round_, live=live, evaluator=evaluator, policy_rewards_BK=rewards, policy_valid_BK=valid)


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
    live = round_.live
    readable = live.readable_BG
    terms = [
        (config.disc_weight, with_floor(live.disc_BG, readable)),
        (config.anchor_weight, with_floor(live.anchor_BG, readable)),
        (config.format_weight, live.format_BG),
    ]
    # A readable rubric whose verdicts are all missing has no discriminability: nobody's fault, so it leaves the update.
    valid = ~torch.isnan(terms[0][1])
    if config.combine == "advantages":
        parts = [weight * group_advantages(reward, valid & ~torch.isnan(reward), config.scale) for weight, reward in terms]
        advantages = torch.stack(parts).sum(0)
    else:
        if config.anchor_weight > 0:
            # So does one without the J_anchor that others of its group have: their sums can't be compared.
            listed = (readable & ~torch.isnan(live.anchor_BG)).any(-1, keepdim=True)
            valid &= ~(listed & torch.isnan(terms[1][1]))
        total = torch.stack([weight * torch.nan_to_num(reward) for weight, reward in terms]).sum(0)
        advantages = group_advantages(total, valid, config.scale)
    return replace(
        round_,
        policy_advantages_BK=group_advantages(round_.policy_rewards_BK, round_.policy_valid_BK, config.scale),
        generator_advantages_BG=advantages,
        generator_valid_BG=valid,
    )
