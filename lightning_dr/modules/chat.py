"""Chat messages to the text and the tokens that a model reads, and sampled tokens back to text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, cast

from ..records import Message
from .loading import BackboneConfig


class ChatText:
    """What :class:`.backbone.Backbone` does with text. Special tokens come from the chat template alone, never from content."""

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
        """Chat messages as the text that the model reads, special tokens of the content taken out.

        A last message of the assistant is continued; after any other one the assistant's turn is opened.
        """
        clean = [{**message, "content": self.without_special_tokens(message["content"])} for message in messages]
        prefill = clean[-1]["role"] == "assistant"
        text = self.tokenizer.apply_chat_template(
            clean, tokenize=False, add_generation_prompt=not prefill, continue_final_message=prefill, **self.config.chat_template_kwargs
        )
        return cast(str, text)

    def tokenize(self, text: str) -> tuple[int, ...]:
        """Tokens of rendered text: the chat template has written BOS already."""
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def encode(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Chat messages as tokens."""
        return self.tokenize(self.render(messages))

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of sampled tokens, without special tokens."""
        return cast(str, self.tokenizer.decode(list(token_ids), skip_special_tokens=True))

    @cached_property
    def special_tokens(self) -> re.Pattern[str]:
        """Matches every special token: those with a name (BOS, …), and those that a chat template marks turns with."""
        added = {token.content for token in self.tokenizer.added_tokens_decoder.values() if token.special}
        return re.compile(
            "|".join(re.escape(token) for token in sorted(added | set(self.tokenizer.all_special_tokens), key=len, reverse=True))
        )

    def without_special_tokens(self, text: str) -> str:
        """A response that spells out a turn marker must not open a turn, nor when the removal of one makes another."""
        found = 1 if self.special_tokens.pattern else 0
        while found:
            text, found = self.special_tokens.subn("", text)
        return text
