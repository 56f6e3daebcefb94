"""A whole round, by the engine and row by row, in turns of one run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

import torch
from lightning import LightningDataModule, Trainer
from torch.utils.data import DataLoader

from lightning_dr.callbacks import DRCallback
from lightning_dr.modules import (
    Backbone,
    BackboneConfig,
    CoEvolutionModule,
    GeneratorModule,
    LLMVerifier,
    Phase,
    PolicyModule,
    SamplingConfig,
)  # fmt: skip
from lightning_dr.modules.sampling import Sample
from lightning_dr.modules.self_check import PackingCheck
from lightning_dr.objectives import ObjectiveConfig
from lightning_dr.records import AnchorList, Batch, Completion, Prompt, Round, RubricDraw
from lightning_dr.rollout import RoundConfig
from lightning_dr.rubric import Rubric, RubricItem
from lightning_dr.toy import ToyVerifier
from lightning_dr.toy.data import ToyDataModule

from .measure import markdown, synchronise
from .steps import LORA, unbounded

ITEMS = 4
"""Items of each rubric."""


class FixedRubrics(GeneratorModule):
    """Whatever was sampled counts as a rubric of some items, so that every round is as much work as the next."""

    def read(self, completion: Completion) -> RubricDraw:
        """Questions made of the sampled tokens: no two rubrics share one."""
        numbers = completion.token_ids[:ITEMS]
        questions = [f"Does the response make clear why the number {number} matters here?" for number in dict.fromkeys(numbers)]
        return RubricDraw(completion=completion, rubric=Rubric(tuple(RubricItem(question, 1.0) for question in questions)))


class FixedData(LightningDataModule):
    """One prompt a round, with seven ranked answers."""

    def __init__(self, rounds: int, words: int) -> None:
        super().__init__()
        self.rounds = rounds
        self.words = words

    def train_dataloader(self) -> DataLoader[Batch]:
        """Batches without end, nearly."""
        text = lambda start, count: " ".join(f"word{(start + number) % 97}" for number in range(count))  # noqa: E731
        batches = [
            Batch(
                index=number,
                prompts=(Prompt(id=str(number), messages=({"role": "user", "content": text(number, self.words)},)),),
                anchors=(AnchorList(answers=tuple(text(rank, self.words) for rank in range(7)), ranks=tuple(map(float, range(1, 8)))),),
            )
            for number in range(self.rounds)
        ]
        return DataLoader(batches, batch_size=None)  # type: ignore[arg-type]


@contextmanager
def by_rows(backbone: Backbone) -> Iterator[None]:
    """The same backbone with one row per branch, and every continuation sampled after a prefix of its own."""
    packing = backbone.packing

    def sample(prefixes: Sequence[Sequence[int]], num: int, config: SamplingConfig, adapter: str | None) -> list[list[Sample]]:
        drawn = Backbone.sample(backbone, [prefix for prefix in prefixes for _ in range(num)], 1, config, adapter)
        flat = [one for group in drawn for one in group]
        return [flat[start : start + num] for start in range(0, len(flat), num)]

    backbone.packing = PackingCheck(0, math.nan, math.nan)
    backbone.sample = sample  # type: ignore[method-assign]
    try:
        yield
    finally:
        backbone.packing = packing
        del backbone.sample


class Turns(DRCallback):
    """Odd rounds go row by row; the first two do not count."""

    def __init__(self) -> None:
        self.seconds: tuple[list[dict[str, float]], list[dict[str, float]]] = ([], [])
        self.peaks: tuple[list[float], list[float]] = ([], [])
        """GiB on the GPU."""

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Take the other way."""
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        self.rows = by_rows(pl_module.backbone)
        if pl_module.round % 2:
            self.rows.__enter__()

    def on_round_end(self, trainer: Trainer, module: Any, round: Round) -> None:
        """Note the seconds of each stage."""
        synchronise()
        if module.round % 2:
            self.rows.__exit__(None, None, None)
        if module.round > 1:
            self.seconds[module.round % 2].append(dict(round.seconds))
            self.peaks[module.round % 2].append(torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else math.nan)


def adam(params: Any) -> torch.optim.Optimizer:
    """The optimizer of both roles."""
    return torch.optim.AdamW(params, lr=1e-5)


def run(config: BackboneConfig, repeats: int, responses: int = 8, rubrics: int = 4, tokens: int = 48, rubric_tokens: int = 100) -> None:
    """Print the table of a round of one prompt."""
    module = CoEvolutionModule(
        config,
        PolicyModule(LORA, adam, SamplingConfig(max_new_tokens=tokens), ObjectiveConfig(kl_weight=0.01)),
        FixedRubrics(LORA, adam, SamplingConfig(max_new_tokens=rubric_tokens)),
        LLMVerifier(verdict="probability"),
        RoundConfig(num_responses=responses, num_rubrics=rubrics),
        [Phase(rounds=2 * repeats + 2)],
    )
    module.configure_model()
    unbounded(module.backbone)
    print(
        f"\nWhole round: 1 prompt, K = {responses} responses of {tokens} tokens, 7 anchor answers, G = {rubrics} rubrics of "
        f"{rubric_tokens} tokens and {ITEMS} items."
    )
    compare(module, FixedData(2 * repeats + 2, tokens))


def toy(repeats: int) -> None:
    """Print the table of the toy's own round, with rubrics as they come."""
    module = CoEvolutionModule(
        BackboneConfig(name_or_path="toy"),
        PolicyModule(LORA, adam, SamplingConfig(max_new_tokens=10), ObjectiveConfig(kl_weight=0.01)),
        GeneratorModule(LORA, adam, SamplingConfig(max_new_tokens=20), template="toy", max_items=3, duplicate_items="mask"),
        ToyVerifier(),
        RoundConfig(num_responses=8, num_rubrics=8),
        [Phase(rounds=2 * repeats + 2)],
    )
    print("\nWhole round of the toy: 8 prompts, K = G = 8, verdicts from rules.")
    compare(module, ToyDataModule(batch_size=8))


def compare(module: CoEvolutionModule, data: LightningDataModule) -> None:
    """Run the rounds of a module in turns, and print the seconds of each stage."""
    turns = Turns()
    trainer = Trainer(
        max_epochs=1, limit_val_batches=0, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[turns], accelerator="auto", devices=1,
    )  # fmt: skip
    trainer.fit(module, datamodule=data)
    ours, rows = turns.seconds
    stages = (
        (
            stage,
            median(one[stage] for one in ours),
            median(other[stage] for other in rows),
            median(other[stage] / one[stage] for one, other in zip(ours, rows, strict=True)),
        )
        for stage in ours[0]
    )
    markdown(["stage", "seconds", "seconds by rows", "times faster"], stages)
    if torch.cuda.is_available():
        print(f"\nPeak memory of a round: {max(turns.peaks[0]):.1f} GiB, by rows {max(turns.peaks[1]):.1f} GiB.")
