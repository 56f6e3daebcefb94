"""The policy's step against TRL's GRPOTrainer as shipped: sample, reference, update, on the same model, prompt and lengths."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from statistics import median
from typing import Any

import torch
from transformers import AutoModelForCausalLM, TrainerCallback

from lightning_dr.advantages import group_advantages
from lightning_dr.modules import BackboneConfig, PolicyModule, SamplingConfig
from lightning_dr.objectives import ObjectiveConfig
from lightning_dr.records import Message

from .measure import Comparison, clock, markdown, seconds_of
from .steps import LORA, load

LEARNING_RATE = 1e-6
KL_WEIGHT = 0.01


class OurStep:
    """One step of the policy: 16 completions, log-probabilities of the reference, one update."""

    def __init__(self, model: str, prompt: Sequence[Message], num: int, length: int) -> None:
        backbone = load(model, roles=())
        self.policy = PolicyModule(
            LORA,
            lambda params: torch.optim.AdamW(params, lr=LEARNING_RATE, weight_decay=0.0),
            SamplingConfig(max_new_tokens=length),
            ObjectiveConfig(kl_weight=KL_WEIGHT),
        )
        self.policy.attach(backbone, backbone.config)
        self.optimizer = self.policy.make_optimizer()
        self.prefix, self.num = backbone.encode(prompt), num

    def __call__(self) -> None:
        """Sample and learn."""
        groups = self.policy.draw_completions([self.prefix], self.num)
        scores = torch.tensor([[float(len(set(completion.token_ids))) for completion in group] for group in groups])
        draw = self.policy.make_draw(groups, group_advantages(scores), torch.ones_like(scores, dtype=torch.bool))
        with self.policy.learning():
            for loss, _ in self.policy.losses(draw):
                loss.backward()
        torch.nn.utils.clip_grad_norm_(self.policy.role_parameters().values(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


class InTurns(TrainerCallback):
    """Before each of TRL's steps we do ours."""

    def __init__(self, ours: OurStep) -> None:
        self.step = ours
        self.ours: list[float] = []
        self.theirs: list[float] = []

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        """Our turn, then start the clock of theirs."""
        self.ours.append(seconds_of(self.step))
        self.start = clock()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        """Stop it."""
        self.theirs.append(clock() - self.start)


def different_letters(completions: list[Any], **kwargs: Any) -> list[float | None]:
    """A reward that costs nothing."""
    return [float(len(set(one[0]["content"]))) for one in completions]


def run(model: str, repeats: int, num: int = 16, length: int = 48, prompt_words: int = 70) -> None:
    """Print the comparison."""
    try:
        import trl
        from datasets import Dataset
        from peft import LoraConfig
        from trl import GRPOConfig, GRPOTrainer
    except ImportError as error:
        print(f"\nTRL: left out, it is not installed ({error}). `pip install -e '.[benchmarks]'` installs it.")
        return
    text = " ".join(f"word{number}" for number in range(prompt_words // 2))
    prompt = [{"role": "user", "content": text}]
    ours = OurStep(model, prompt, num, length)
    base = AutoModelForCausalLM.from_pretrained(BackboneConfig(name_or_path=model).location, dtype=ours.policy.backbone.base.dtype)
    turns = InTurns(ours)
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder, per_device_train_batch_size=num, num_generations=num, max_completion_length=length, beta=KL_WEIGHT,
            learning_rate=LEARNING_RATE, max_steps=repeats + 1, generation_kwargs={"min_new_tokens": length}, gradient_checkpointing=False,
            bf16=False, use_cpu=not torch.cuda.is_available(), report_to=[], save_strategy="no", logging_steps=1000, disable_tqdm=True,
        )  # fmt: skip
        trainer = GRPOTrainer(
            model=base,
            reward_funcs=different_letters,
            args=config,
            train_dataset=Dataset.from_list([{"prompt": prompt}] * (num * (repeats + 1))),
            processing_class=ours.policy.backbone.tokenizer,
            peft_config=LoraConfig(r=LORA["r"], lora_alpha=LORA["alpha"], target_modules=LORA["target_modules"], task_type="CAUSAL_LM"),
            callbacks=[turns],
        )
        trainer.train()
    found = Comparison(turns.ours[1:], turns.theirs[1:])
    print(
        f"\nPolicy step: sample {num} × {length} tokens after {len(ours.prefix)}, reference, update; "
        f"against TRL {trl.__version__} as shipped."
    )
    markdown(
        ["", "seconds"],
        [("lightning_dr", found.seconds), ("TRL", median(found.other)), ("times faster", found.ratio)],
    )
