"""A whole round of an 8B model in 4-bit on one GPU: seconds, ratio to rows, peak memory. ``python -m benchmarks.gpu``.

The weights are random (speed and memory do not depend on them), in the architecture of Qwen3-8B; the words of its tokenizer are numbers.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from lightning_dr.modules import BackboneConfig
from lightning_dr.toy.tokenizer import SPECIAL, word_tokenizer

from . import rounds
from .__main__ import quiet
from .measure import machine

NF4 = {
    "load_in_4bit": True,
    "bnb_4bit_quant_type": "nf4",
    "bnb_4bit_compute_dtype": "bfloat16",
    "bnb_4bit_use_double_quant": True,
}


def main() -> None:
    """Make the model if its folder is not there, and time some rounds of it."""
    parser = argparse.ArgumentParser(prog="benchmarks.gpu", description=main.__doc__)
    parser.add_argument("--folder", type=Path, default=Path("models/qwen3-8b-random"), help="16 GB are written there once")
    parser.add_argument("--layers", type=int, default=36)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--tokens", type=int, default=512, help="of a response")
    parser.add_argument("--rubric-tokens", type=int, default=256)
    parser.add_argument("--size", type=int, default=8, help="responses K and rubrics G of a prompt")
    parser.add_argument("--max-tokens-per-pass", type=int, default=8192)
    parser.add_argument("--gradient-checkpointing", action="store_true")
    parser.add_argument("--repeats", type=int, default=1)
    args = parser.parse_args()
    quiet()
    print(machine())
    if not args.folder.exists():
        write_random(args.folder, args.layers, args.width, args.vocabulary)
    config = BackboneConfig(
        name_or_path=str(args.folder),
        quantization=NF4,
        gradient_checkpointing=args.gradient_checkpointing,
        max_tokens_per_pass=args.max_tokens_per_pass,
    )
    rounds.run(config, args.repeats, args.size, args.size, args.tokens, args.rubric_tokens)


def write_random(folder: Path, layers: int, width: int, vocabulary: int) -> None:
    """A checkpoint of random weights, and a tokenizer that reads back as many tokens as were written."""
    words = [*SPECIAL, "\n", "Yes", "No", " Yes", " No"]
    words += [f" w{number}" for number in range(vocabulary - len(words))]
    word_tokenizer({word: number for number, word in enumerate(words)}, r" ?\w+|\n| |[^\w\s]").save_pretrained(folder)
    config = AutoConfig.for_model(
        "qwen3", hidden_size=width, intermediate_size=3 * width, num_hidden_layers=layers, num_attention_heads=width // 128,
        num_key_value_heads=max(1, width // 512), head_dim=128, vocab_size=vocabulary, tie_word_embeddings=False,
        eos_token_id=3, bos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    main()
