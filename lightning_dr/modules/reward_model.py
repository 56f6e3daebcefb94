"""A reward model as the evaluator: one number per conversation from a sequence classifier."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer, PreTrainedModel

from ..prompts import render_conversation
from ..records import Prompt
from ..roles import unattached
from .chat import ChatText
from .loading import DType, quantization_kwargs, resolve_dtype

HEADS = ("score", "classifier")
"""What transformers calls the layer that gives the number; it stays as it is when the rest is quantised."""
UNLIMITED = 10**9
"""Tokenizers without a limit name a larger one."""


class RewardModel:
    """Scores each conversation x, y with ``AutoModelForSequenceClassification`` with one label, such as those on RewardBench.

    The model reads x, y in its chat template, without one ``x``, an empty line and ``y``. It is frozen, no part of a checkpoint, and loaded
    when it first scores, to the device of the shared base.

    Args:
        name_or_path: A model on the Hub, or a local folder.
        revision: Commit or tag on the Hub.
        dtype: See :class:`.loading.BackboneConfig`.
        quantization: See :class:`.loading.BackboneConfig`, such as ``{load_in_4bit: true}``.
        max_length: The beginning of a longer conversation is cut off, so that the response stays. ``None``: the limit that the tokenizer
            names, if any.
        batch_size: Conversations in one pass; those of like length go together.
        trust_remote_code: Run code that a Hub repository ships.
        squash: The score is the sigmoid of the reward, so that it lies in [0, 1] as with other evaluators; else the reward itself.
    """

    reads_set = False

    def __init__(
        self,
        name_or_path: str,
        revision: str | None = None,
        dtype: DType = "auto",
        quantization: dict[str, Any] | None = None,
        max_length: int | None = None,
        batch_size: int = 16,
        trust_remote_code: bool = False,
        squash: bool = True,
    ) -> None:
        for name, value in (("max_length", max_length), ("batch_size", batch_size)):
            if value is not None and value < 1:
                raise ValueError(f"`{name}` must be at least 1, got {value}.")
        self.name_or_path = name_or_path
        self.dtype = dtype
        self.quantization = quantization
        self.max_length = max_length
        self.batch_size = batch_size
        self.squash = squash
        self._source: dict[str, Any] = {"revision": revision, "trust_remote_code": trust_remote_code}
        self._shared: Any = None
        self._text: ChatText | None = None
        self._named: int | None = None
        self._model: PreTrainedModel | None = None

    def attach(self, module: Any) -> None:
        """Read config and tokenizer; the weights go where the base of a ``CoEvolutionModule`` lies, once they are needed.

        Raises:
            ValueError: If the model has more than one label.
        """
        self._shared = module.backbone
        config = AutoConfig.from_pretrained(self.name_or_path, **self._source)
        if config.num_labels != 1:
            raise ValueError(
                f"`name_or_path` must be a model with one label, got {self.name_or_path!r} with {config.num_labels}. Use a reward model."
            )
        self._named = config.get_text_config().pad_token_id
        self._text = ChatText()
        self._text.tokenizer = AutoTokenizer.from_pretrained(self.name_or_path, truncation_side="left", **self._source)

    @property
    def text(self) -> ChatText:
        """The tokenizer, and what takes special tokens out.

        Raises:
            RuntimeError: If no module was attached.
        """
        if self._text is None:
            raise unattached(self)
        return self._text

    @property
    def model(self) -> PreTrainedModel:
        """The classifier, loaded on first use.

        Raises:
            ValueError: If weights are missing, as in a base model without a head: they would be random.
        """
        if self._model is None:
            quantization = self.quantization and {"llm_int8_skip_modules": list(HEADS), **self.quantization}
            with torch.inference_mode(False):  # which a validation is in
                model, report = AutoModelForSequenceClassification.from_pretrained(
                    self.name_or_path,
                    dtype=resolve_dtype(self.dtype),
                    output_loading_info=True,
                    **quantization_kwargs(quantization),
                    **self._source,
                )
                if self.quantization is None:
                    model.to(self._shared.device)
            if missing := sorted(report["missing_keys"]):
                raise ValueError(
                    f"`name_or_path` must be a reward model with all its weights, but {self.name_or_path!r} lacks {missing[:3]}. "
                    "Use one that was trained as a classifier."
                )
            self._model = cast(PreTrainedModel, model).requires_grad_(False).eval()
        return self._model

    def scores(self, prompts: Sequence[Prompt], responses: Sequence[Sequence[str]]) -> list[Tensor]:
        """See :meth:`lightning_dr.roles.Evaluator.scores`: rewards, or their sigmoids; NaN for a conversation without a token."""
        rows = self.encode([(prompt, text) for prompt, texts in zip(prompts, responses, strict=True) for text in texts])
        rewards = self.rewards(rows)
        return list((rewards.sigmoid() if self.squash else rewards).split([len(texts) for texts in responses]))

    @torch.no_grad()
    def rewards(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """The rewards ``[n]`` of n conversations as tokens, float32 on the CPU."""
        found = torch.full((len(rows),), torch.nan)
        order = sorted((number for number, row in enumerate(rows) if row), key=lambda number: len(rows[number]), reverse=True)
        if not order:
            return found
        model = self.model
        padding = self._padding({rows[number][-1] for number in order})
        for group in (order[start : start + self.batch_size] for start in range(0, len(order), self.batch_size)):
            width = len(rows[group[0]])
            input_ids = torch.tensor([[*rows[number], *[padding] * (width - len(rows[number]))] for number in group])
            mask = torch.tensor([[1] * len(rows[number]) + [0] * (width - len(rows[number])) for number in group])
            logits = model(input_ids=input_ids.to(model.device), attention_mask=mask.to(model.device)).logits
            found[group] = logits.float().squeeze(-1).cpu()
        return found

    def _padding(self, last: set[int]) -> int:
        """The token to pad with, which the model is told: a decoder takes its number at the last token that is another one.

        Where neither tokenizer nor model names one it is EOS, unless a conversation ends with that: alone, it would be read there.
        """
        config = self.model.config.get_text_config()
        token = self.text.tokenizer.pad_token_id
        token = self._named if token is None else token
        if token is None:
            eos = self.text.tokenizer.eos_token_id
            token = next(token for token in itertools.chain([eos], itertools.count()) if token is not None and token not in last)
        self.model.config.pad_token_id = config.pad_token_id = token
        return token

    def encode(self, pairs: Sequence[tuple[Prompt, str]]) -> list[list[int]]:
        """Conversations of a prompt and a response as tokens; special tokens that they spell are plain text."""
        tokenizer = self.text.tokenizer
        limit = self.max_length or (tokenizer.model_max_length if tokenizer.model_max_length < UNLIMITED else None)
        texts = [self.render(prompt, response) for prompt, response in pairs]
        if not texts:
            return []
        if not tokenizer.chat_template:
            return tokenizer(texts, split_special_tokens=True, truncation=limit is not None, max_length=limit)["input_ids"]
        rows = [list(self.text.tokenize(text)) for text in texts]
        return [row[-limit:] if limit and tokenizer.truncation_side == "left" else row[:limit] for row in rows]

    def render(self, prompt: Prompt, response: str) -> str:
        """The text that the model reads."""
        if not self.text.tokenizer.chat_template:
            return f"{render_conversation(prompt.messages)}\n\n{response}"
        messages = [{**message, "content": self.text.as_plain(message["content"])} for message in prompt.messages]
        messages.append({"role": "assistant", "content": self.text.as_plain(response)})
        return cast(str, self.text.tokenizer.apply_chat_template(messages, tokenize=False))
