"""Generators of some rounds on the responses of policies of some rounds: what cross-play and diagnosis look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import track
from torch import Tensor

from ..gap import pairwise_accuracy, score_gap
from ..modules import CoEvolutionModule
from ..modules.random_state import seeded
from ..records import Batch, Prompt, Responses, Round
from ..roles import ReferenceRanking, attach
from ..rollout import Roles, anchor_ranks, collect_round, reference_quality
from .runs import RunFolder, held_out, pick_rounds
from .statistics import Values

MEASURES = ("gap", "accuracy", "anchor_gap", "anchor_accuracy", "j_disc", "j_anchor")


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Measures of S generators on the responses of T policies to N prompts."""

    policies: list[int]
    """Rounds after which the T policies were saved; 0: untrained."""
    generators: list[str]
    """Names of the S generators: the round, with the name of a variant before it."""
    rounds: list[int]
    """Their rounds."""
    values: dict[str, Values]
    """Measure -> ``[T, S, N]``; NaN where a prompt has none."""

    def on(self, prompts: NDArray[np.intp]) -> Grid:
        """The same for other prompts, such as a bootstrap resample."""
        return replace(self, values={name: value[..., prompts] for name, value in self.values.items()})


class FixedResponses:
    """A :class:`~lightning_dr.roles.Responder` that repeats what was sampled."""

    def __init__(self, responses: Responses) -> None:
        self.responses = responses

    def respond(self, prompts: Sequence[Prompt], num_responses: int) -> Responses:
        """The response sets."""
        return self.responses


def evaluate_grid(
    run: RunFolder,
    rounds: list[int] | None,
    num_rounds: int,
    prompts: int,
    reference: ReferenceRanking | None,
    seed: int,
    variants: Mapping[str, RunFolder] | None = None,
) -> Grid:
    """Measure all generators on all policies.

    Every policy answers the held-out prompts once, and all generators see the same responses.

    Args:
        run: Where the policies come from, and the generators.
        rounds: Which; by default ``num_rounds`` of the saved ones.
        num_rounds: See ``rounds``.
        prompts: Held-out prompts, N.
        reference: Orders the responses (the pair distribution P); by default what the run was monitored with. Without any there is no gap
            on the responses.
        seed: Of all sampling.
        variants: More runs with the same base and LoRA config, whose generators of these rounds are measured too.
    """
    if prompts < 1:
        raise ValueError(f"`prompts` must be at least 1, got {prompts}.")
    picked = pick_rounds(run.checkpoints, rounds, num_rounds)
    module, data = run.load()
    reference = reference or run.reference()
    attach(reference, module)
    batches = held_out(data, prompts)
    states = {str(number): state_of(run, module, number, "generator") for number in picked}
    numbers = list(picked)
    for name, other in (variants or {}).items():
        same = [number for number in picked if number in other.checkpoints]
        if not same:
            raise ValueError(f"{other.path} must have checkpoints of some of the rounds {picked}, got {list(other.checkpoints)}.")
        states |= {f"{name} {number}": other.adapter(number, "generator") for number in same}
        numbers += same
    policies = [state_of(run, module, number, "policy") for number in picked]
    rows = []
    with torch.no_grad():
        for policy in track(policies, description="policies", disable=len(policies) < 2):
            module.policy.load_role_state(policy)
            with seeded(seed, module.device):
                drawn = [module.policy.respond(batch.prompts, module.config.num_responses) for batch in batches]
            quality = [quality_of(reference, batch, responses) for batch, responses in zip(batches, drawn, strict=True)]
            rows.append([measure(module, state, batches, drawn, quality, seed) for state in states.values()])
    values = {name: np.array([[cell[name] for cell in row] for row in rows]) for name in MEASURES}
    return Grid(policies=picked, generators=list(states), rounds=numbers, values=values)


def state_of(run: RunFolder, module: CoEvolutionModule, number: int, role: str) -> Mapping[str, Tensor]:
    """The adapter of a role after a round; before the first one, the one that it starts with."""
    return module.roles[role].role_state() if number == 0 else run.adapter(number, role)


def quality_of(reference: ReferenceRanking | None, batch: Batch, responses: Responses) -> Tensor:
    """Reference quality of a batch's responses ``[B, K]``; NaN without a reference."""
    if reference is None:
        return torch.full((len(responses), len(responses[0])), torch.nan)
    return reference_quality(reference, Round(index=0, batch=batch, responses=responses))


def measure(
    module: CoEvolutionModule,
    generator: Mapping[str, Tensor],
    batches: Sequence[Batch],
    drawn: Sequence[Responses],
    quality: Sequence[Tensor],
    seed: int,
) -> dict[str, Values]:
    """One generator on one policy's responses: measure -> one value per prompt ``[N]``."""
    module.generator.load_role_state(generator)
    found: dict[str, list[Tensor]] = {name: [] for name in MEASURES}
    for number, (batch, responses, truth) in enumerate(zip(batches, drawn, quality, strict=True)):
        roles = Roles(responder=FixedResponses(responses), writer=module.generator, verifier=module.verifier)
        with seeded(seed + 1 + number, module.device):
            round_ = collect_round(batch, roles, module.config)
        for name, values in measures(round_, truth).items():
            found[name].append(values)
    return {name: torch.cat(values).double().numpy() for name, values in found.items()}


def measures(round_: Round, quality: Tensor) -> dict[str, Tensor]:
    """Measure -> one value per prompt ``[B]`` of a round whose responses have a quality ``[B, K]``."""
    scores, live = round_.scores_BK, round_.live
    unknown = torch.full((len(scores),), torch.nan)
    anchors = round_.anchor_scores_BR
    ranks = None if anchors is None else -anchor_ranks(round_.batch, anchors.shape[-1])
    return {
        "gap": score_gap(scores, quality),
        "accuracy": pairwise_accuracy(scores, quality),
        "anchor_gap": unknown if ranks is None else score_gap(anchors, ranks),
        "anchor_accuracy": unknown if ranks is None else pairwise_accuracy(anchors, ranks),
        "j_disc": live.disc_BG.nanmean(-1),
        "j_anchor": live.anchor_BG.nanmean(-1),
    }
