"""Train the toy's base model again: ``python -m lightning_dr.toy.build_base``.

It learns the *form* of responses and rubrics from random text: responses of eight words, rubrics of three different items with
random weights and directions. So that it looks at its input at all, each topic has habits (some words are six times as frequent
under it), and a rubric asks mostly about words that some of the responses mention and some do not. Habits are drawn apart from the
worths of the topics, which take no part: the base knows no preference.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from lightning_dr.prompts import load_template, render_responses
from lightning_dr.rubric import Rubric, RubricItem, render_rubric
from lightning_dr.toy import BASE
from lightning_dr.toy.tokenizer import build_tokenizer
from lightning_dr.toy.world import ATTRIBUTES, FILLERS, NUM_WORDS, TOPICS, ToyWorld

NUM_ITEMS = 3
IGNORED = -100
TEMPLATE = load_template("toy")
PROMPT_ONLY = load_template("toy_prompt_only")


def draw_habits(seed: int) -> dict[str, dict[str, float]]:
    """How often each topic uses each word, relative to the others: 1 or 6."""
    rng = random.Random(seed)
    return {topic: {word: rng.choice((1.0, 6.0)) for word in ATTRIBUTES + FILLERS} for topic in TOPICS}


def random_words(habits: dict[str, float], words: Sequence[str], count: int, rng: random.Random) -> list[str]:
    """Words in the frequencies of a topic."""
    return rng.choices(words, weights=[habits[word] for word in words], k=count)


def random_rubric(habits: dict[str, float], responses: list[str], rng: random.Random) -> Rubric:
    """Three items about different attributes, with random weights and directions, mostly about what sets the responses apart."""
    mentioned = {word: sum(word in response.split() for response in responses) for word in ATTRIBUTES}
    mixed = [word for word, count in mentioned.items() if 0 < count < len(responses)]
    words: list[str] = []
    while len(words) < NUM_ITEMS:
        pool = mixed if rng.random() < 0.8 and mixed else ATTRIBUTES
        word = random_words(habits, pool, 1, rng)[0]
        if word not in words:
            words.append(word)
    return Rubric(
        tuple(RubricItem(f"Does the response {rng.choice(('mention', 'avoid'))} {word}?", float(rng.randint(1, 5))) for word in words)
    )


def example(rng: random.Random, world: ToyWorld, habits: dict[str, dict[str, float]]) -> tuple[list[dict[str, str]], str]:
    """A chat prompt and its continuation: a response, or a rubric for a response set from a part of the vocabulary, or for no set."""
    topic = rng.choice(TOPICS)
    messages = [dict(message) for message in world.prompt(topic).messages]
    words: Sequence[str] = ATTRIBUTES + FILLERS
    if rng.random() < 0.3:
        return messages, " ".join(random_words(habits[topic], words, NUM_WORDS, rng))
    words = rng.sample(words, rng.randint(8, len(words)))
    responses = [" ".join(random_words(habits[topic], words, NUM_WORDS, rng)) for _ in range(rng.randint(4, 8))]
    if rng.random() < 0.25:
        responses = []
    template = TEMPLATE if responses else PROMPT_ONLY
    rendered = template.render(prompt=messages[-1]["content"], responses=render_responses(responses))
    return [dict(message) for message in rendered], render_rubric(random_rubric(habits[topic], responses, rng))


def make_batch(
    examples: Sequence[tuple[list[dict[str, str]], str]], tokenizer: PreTrainedTokenizerFast
) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and labels ``[size, T]``, padded on the right; only the continuation is learned."""
    rows, size = [], len(examples)
    for messages, text in examples:
        prefix = tokenizer(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))["input_ids"]
        rows.append((prefix, [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]))
    width = max(len(prefix) + len(branch) for prefix, branch in rows)
    ids = torch.full((size, width), tokenizer.pad_token_id)
    labels = torch.full((size, width), IGNORED)
    for row, (prefix, branch) in enumerate(rows):
        end = len(prefix) + len(branch)
        ids[row, :end] = torch.tensor(prefix + branch)
        labels[row, len(prefix) : end] = torch.tensor(branch)
    return ids, labels


def build(out: Path, steps: int = 1500, seed: int = 0, batch_size: int = 32, lr: float = 3e-3) -> float:
    """Train and write the model and its tokenizer; returns the last loss."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    world, tokenizer, habits = ToyWorld(), build_tokenizer(), draw_habits(seed + 1)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=176,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=1024,
        initializer_range=0.12,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=max(2, steps))
    loss = torch.tensor(float("nan"))
    for step in range(steps):
        ids, labels = make_batch([example(rng, world, habits) for _ in range(batch_size)], tokenizer)
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 250 == 0 or step == steps - 1:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return loss.item()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=BASE)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    build(args.out, args.steps, args.seed)


if __name__ == "__main__":
    main()
