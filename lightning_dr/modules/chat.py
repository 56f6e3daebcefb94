"""Chat messages to the text and the tokens that a model reads, and sampled tokens back to text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, cast

from ..records import Message
from .loading import BackboneConfig

MARK = "\U0010fffd"
"""Stands on both sides of what content spells of a special token: a character of nobody's, which no content keeps."""


class ChatText:
    """What :class:`.backbone.Backbone` does with text. Special tokens come from the chat template alone: in content they are plain text."""

    config: BackboneConfig
    tokenizer: Any
    vocabulary: int

    @cached_property
    def pieces(self) -> list[str]:
        """The text of every token."""
        return self.tokenizer.batch_decode([[token] for token in range(self.vocabulary)])

    @cached_property
    def newline_ids(self) -> tuple[int, ...]:
        """Every token that ends a line."""
        return tuple(token for token, piece in enumerate(self.pieces) if "\n" in piece)

    def render(self, messages: Sequence[Message]) -> str:
        """Chat messages as the text that the model reads, with what content spells of special tokens marked for :meth:`tokenize`.

        A last message of the assistant is continued; after any other one the assistant's turn is opened.
        """
        clean = [{**message, "content": self.as_plain(message["content"])} for message in messages]
        prefill = clean[-1]["role"] == "assistant"
        text = self.tokenizer.apply_chat_template(
            clean, tokenize=False, add_generation_prompt=not prefill, continue_final_message=prefill, **self.config.chat_template_kwargs
        )
        return cast(str, text)

    def tokenize(self, text: str) -> tuple[int, ...]:
        """Tokens of rendered text: the chat template has written BOS already."""
        found: list[int] = []
        for number, piece in enumerate(text.split(MARK)):
            plain = number % 2 == 1
            ids = self.tokenizer(piece, add_special_tokens=False, split_special_tokens=plain)["input_ids"]
            found += [token for token in ids if token not in self.special_ids] if plain else ids
        return tuple(found)

    def encode(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Chat messages as tokens."""
        return self.tokenize(self.render(messages))

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of sampled tokens, without special tokens."""
        return cast(str, self.tokenizer.decode(list(token_ids), skip_special_tokens=True))

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Every special token: those with a name (BOS, …), and those that a chat template marks turns with."""
        added = {number for number, token in self.tokenizer.added_tokens_decoder.items() if token.special}
        return frozenset(added | set(self.tokenizer.all_special_ids))

    @cached_property
    def special_tokens(self) -> re.Pattern[str]:
        """Matches the text of every special token."""
        spelt = sorted(self.tokenizer.convert_ids_to_tokens(sorted(self.special_ids)), key=len, reverse=True)
        return re.compile("|".join(map(re.escape, spelt)) or r"(?!)")

    def as_plain(self, text: str) -> str:
        """Content with marks around what it spells of special tokens: no turn ends or opens there. Marking it again changes nothing."""
        return self.special_tokens.sub(lambda found: f"{MARK}{found[0]}{MARK}", text.replace(MARK, ""))
