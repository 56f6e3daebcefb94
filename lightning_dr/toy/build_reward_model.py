"""Train a scalar reward model for the toy: ``python -m lightning_dr.toy.build_reward_model``.

A classifier with one label on the toy's base, trained (Bradley-Terry) on pairs of the ranked anchor answers that a run trains on too.
It takes about half a minute, and is what ``configs/ablations/reward_model.yaml`` scores the policy with.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.nn.functional import logsigmoid
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from lightning_dr.records import AnchorList
from lightning_dr.toy import BASE
from lightning_dr.toy.data import ToyDataModule

OUT = Path("models/toy-reward-model")


def pairs_of(rows: Sequence[tuple[str, AnchorList]]) -> list[tuple[str, str, str]]:
    """(topic, better answer, worse answer) of all pairs of different rank in lists of (topic, ranked answers)."""
    found = []
    for topic, ranked in rows:
        order = sorted(zip(ranked.ranks, ranked.answers, strict=True))
        found += [(topic, better, worse) for n, (rank, better) in enumerate(order) for other, worse in order[n + 1 :] if rank < other]
    return found


def build(out: Path = OUT, steps: int = 400, seed: int = 0, batch_size: int = 32, lr: float = 2e-3) -> float:
    """Train and write the model and its tokenizer; returns the share of held-out pairs that it orders right."""
    torch.manual_seed(seed)
    rng, data = random.Random(seed), ToyDataModule()
    data.setup("fit")
    train, held_out = pairs_of(data.train_rows), pairs_of(data.val_rows)
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForSequenceClassification.from_pretrained(BASE, num_labels=1, pad_token_id=tokenizer.pad_token_id)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=max(2, steps))

    def margins(pairs: list[tuple[str, str, str]]) -> torch.Tensor:
        """Reward of the better answer less that of the worse one ``[n]``."""
        answers = [(topic, better) for topic, better, _ in pairs] + [(topic, worse) for topic, _, worse in pairs]
        texts = [
            tokenizer.apply_chat_template(
                [*map(dict, data.world.prompt(topic).messages), {"role": "assistant", "content": text}], tokenize=False
            )
            for topic, text in answers
        ]
        rewards = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits.squeeze(-1)
        return rewards[: len(pairs)] - rewards[len(pairs) :]

    for _ in range(steps):
        loss = -logsigmoid(margins(rng.sample(train, batch_size))).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    model.eval().save_pretrained(out)
    tokenizer.save_pretrained(out)
    with torch.no_grad():
        return (margins(held_out) > 0).float().mean().item()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(f"{build(args.out, args.steps, args.seed):.3f} of the held-out pairs ordered right; written to {args.out}")


if __name__ == "__main__":
    main()
