"""A word-level tokenizer for the toy world: what it writes, it reads back letter for letter."""

from __future__ import annotations

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from lightning_dr.toy.world import ATTRIBUTES, FILLERS, TOPICS

PHRASES = ("Does the response mention", "Does the response avoid")
"""Whole phrases are one token each, which keeps a rubric item at five."""
SPLIT = r" ?(?:" + "|".join(PHRASES) + r")|\[\d\]|\d+\.| ?\w+|\n| |[^\w\s]"
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] }}"
    "{% if not (loop.last and continue_final_message) %}{{ '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIAL = ("<|pad|>", "<|unk|>", "<|im_start|>", "<|im_end|>")


def vocabulary() -> dict[str, int]:
    """Every token of the world and its id."""
    words = (*TOPICS, *ATTRIBUTES, *FILLERS, "Write", "about", "Rubric", "system", "user", "assistant", *PHRASES)
    tokens = [*SPECIAL, "\n", " ", "?", ".", ",", ":", *(f"[{n}]" for n in range(1, 6)), *(f"{n}." for n in range(1, 17))]
    tokens += [form for word in words for form in (word, f" {word}")]
    return {token: number for number, token in enumerate(tokens)}


def build_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer of the toy world."""
    return word_tokenizer(vocabulary(), SPLIT)


def word_tokenizer(vocabulary: dict[str, int], split: str) -> PreTrainedTokenizerFast:
    """A tokenizer of whole words, special ones included, with a chat template in ChatML form.

    Args:
        vocabulary: Every token and its id.
        split: A regular expression that matches each token in a text.
    """
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<|unk|>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(split), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<|unk|>",
        pad_token="<|pad|>",
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>"],
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
