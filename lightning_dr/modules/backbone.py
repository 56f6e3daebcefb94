"""One base model that plays every role: adapters by name, and passes through the model.

The base is frozen. Each trained role has a LoRA adapter of its own; with the adapters off the same weights are the verifier and
the KL reference. This file is the only owner of ``requires_grad``: PEFT flips it whenever an adapter is added or made active.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, cast

import torch
from peft import LoraConfig, LoraModel, PeftModel, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from torch import Tensor, nn
from transformers import AutoTokenizer, PreTrainedModel

from .. import branches
from ..branches import Pack, Tree
from .branch_attention import NAME as BRANCHES
from .branch_attention import layout_of
from .chat import ChatText
from .decoding import CopiedPrefix, Decoding, SharedPrefix
from .loading import BackboneConfig, load_base
from .random_state import seeded
from .sampling import Sample, SamplingConfig, sample
from .self_check import PackingCheck, check_packing, check_sharing


class ContextError(ValueError):
    """A sequence is longer than the model's context."""


class Backbone(ChatText, nn.Module):
    """A causal language model, its tokenizer, and named adapters.

    Args:
        config: What to load.
        trainable: For full fine-tuning: the base itself is trained and takes no adapters.
    """

    def __init__(self, config: BackboneConfig, trainable: bool = False) -> None:
        super().__init__()
        self.config = config
        self.trainable = trainable
        self.tokenizer = AutoTokenizer.from_pretrained(
            config.location, revision=config.revision, trust_remote_code=config.trust_remote_code
        )
        if not self.tokenizer.chat_template:
            raise ValueError(f"The tokenizer of {config.name_or_path!r} has no chat template. Use an instruction-tuned model.")
        if trainable and config.quantization is not None:
            raise ValueError(
                "`quantization` must be null for a role without `lora`: a quantised base can't be trained. Give it a LoRA config."
            )
        self.model: PreTrainedModel | PeftModel = load_base(config)
        if config.gradient_checkpointing:
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
        self.eos_ids = self._eos_ids()
        self._adapters: dict[str, list[nn.Parameter]] = {}
        self._lora: dict[str, Mapping[str, Any]] = {}
        self._frozen: set[str] = set()
        self.requires_grad_(trainable)

    # -- adapters -------------------------------------------------------------------------------------------------

    @property
    def base(self) -> PreTrainedModel:
        """The transformers model, with whatever adapter layers it carries."""
        return cast(PreTrainedModel, self.model.get_base_model()) if isinstance(self.model, PeftModel) else self.model

    @property
    def device(self) -> torch.device:
        """Where the base lies."""
        return next(self.base.parameters()).device

    @property
    def has_dropout(self) -> bool:
        """Whether a pass in training mode is random."""
        of_attention = getattr(self.base.config.get_text_config(), "attention_dropout", 0.0) or 0.0
        return of_attention > 0 or any(isinstance(module, nn.Dropout) and module.p > 0 for module in self.modules())

    @property
    def adapters(self) -> tuple[str, ...]:
        """Names of the adapters that are there."""
        return tuple(self._adapters)

    @torch.inference_mode(False)
    def add_adapter(self, name: str, lora: Mapping[str, Any], *, frozen: bool = False) -> None:
        """Add a fresh adapter: the role starts as the base.

        It can be trained even if it is made during a validation, which Lightning runs in inference mode.

        Args:
            name: New, without dots.
            lora: Arguments of ``peft.LoraConfig``; ``alpha`` and ``dropout`` may stand for ``lora_alpha`` and ``lora_dropout``.
            frozen: The adapter is a snapshot and never trained.

        Raises:
            ValueError: If the name is taken, or the config would train the base's own biases.
        """
        if name in self._adapters or "." in name:
            raise ValueError(f"`name` must be new and without dots, got {name!r} beside {list(self._adapters)}.")
        if self.trainable:
            raise ValueError("A fully trained backbone takes no adapters. Give the role a LoRA config.")
        short = {"alpha": "lora_alpha", "dropout": "lora_dropout"}
        config = LoraConfig(**{"task_type": "CAUSAL_LM", **{short.get(key, key): value for key, value in lora.items()}})
        if config.bias != "none":
            raise ValueError(f"`lora.bias` must be 'none', got {config.bias!r}: it would train the base that the other roles share.")
        if isinstance(self.model, PeftModel):
            self.model.add_adapter(name, config)
        else:
            self.model = get_peft_model(self.model, config, adapter_name=name)
        self._adapters[name] = list(self.adapter_parameters(name).values())
        self._lora[name] = lora
        if frozen:
            self._frozen.add(name)
        self.requires_grad_(False)
        self._own_grads()
        self.eval()

    def copy_adapter(self, source: str, name: str) -> None:
        """Snapshot ``source`` under ``name``; see :meth:`hold_adapter`."""
        self.hold_adapter(name, source, self.adapter_state(source))

    def hold_adapter(self, name: str, like: str, state: Mapping[str, Tensor]) -> None:
        """Put saved tensors into the frozen adapter ``name``, made with the LoRA config of ``like`` on first use."""
        if name not in self._adapters:
            self.add_adapter(name, self._lora[like], frozen=True)
        self.load_adapter_state(name, state)

    def adapter_parameters(self, name: str) -> dict[str, nn.Parameter]:
        """The parameters of one adapter by their full names."""
        return {key: value for key, value in self.model.named_parameters() if f".{name}." in key}

    def adapter_state(self, name: str) -> dict[str, Tensor]:
        """Copies of an adapter's tensors on the CPU, named as PEFT names them on disk."""
        state = get_peft_model_state_dict(self.model, adapter_name=name)
        return {key: value.detach().to("cpu", copy=True) for key, value in state.items()}

    @torch.inference_mode(False)
    def load_adapter_state(self, name: str, state: Mapping[str, Tensor]) -> None:
        """Write tensors from :meth:`adapter_state` into an adapter.

        Raises:
            ValueError: If the tensors are those of another LoRA config or model.
        """
        own = {key: tuple(value.shape) for key, value in get_peft_model_state_dict(self.model, adapter_name=name).items()}
        given = {key: tuple(value.shape) for key, value in state.items()}
        if own != given:
            odd = sorted(set(own.items()) ^ set(given.items()))[:2]
            raise ValueError(
                f"The saved adapter must fit adapter {name!r}, but they differ at {odd}. Use the LoRA config it was trained with."
            )
        set_peft_model_state_dict(self.model, dict(state), adapter_name=name)
        self._own_grads()

    def save_adapter(self, name: str, folder: str) -> None:
        """Write an adapter to ``folder/name`` in PEFT's format."""
        self.model.save_pretrained(folder, selected_adapters=[name])

    def fingerprint(self) -> str:
        """A hash of the base: shapes and the first numbers of every weight that is not an adapter's."""
        digest = hashlib.sha256()
        own = {id(value) for values in self._adapters.values() for value in values}
        for parameter in self.base.parameters():
            if id(parameter) not in own:
                digest.update(f"{tuple(parameter.shape)}{parameter.detach().flatten()[:64].float().tolist()}".encode())
        return digest.hexdigest()

    def _own_grads(self) -> None:
        """Every adapter of a role is trainable and snapshots are frozen, whatever PEFT did to them."""
        for name, parameters in self._adapters.items():
            for parameter in parameters:
                parameter.requires_grad_(name not in self._frozen)

    @contextmanager
    def active(self, adapter: str | None, train: bool = False) -> Iterator[PreTrainedModel]:
        """The transformers model with one adapter, or none (``None``), in training or evaluation mode.

        Evaluation mode is the state of rest: dropout off, gradient checkpointing without effect, the cache in use.
        """
        if adapter is not None and adapter not in self._adapters:
            raise ValueError(f"`adapter` must be one of {list(self._adapters)}, got {adapter!r}.")
        if isinstance(self.model, PeftModel):
            tuner = cast(LoraModel, self.model.base_model)
            if adapter is None:
                tuner.disable_adapter_layers()
            else:
                tuner.enable_adapter_layers()
                tuner.set_adapter(adapter)
            self._own_grads()
        if train:
            self.train()
        try:
            yield self.base
        finally:
            if train:
                self.eval()

    def _eos_ids(self) -> tuple[int, ...]:
        """Every token that ends a turn: the tokenizer's, the generation config's and the model config's."""
        found = {self.tokenizer.eos_token_id}
        for config in (self.base.generation_config, self.base.config):
            value = getattr(config, "eos_token_id", None)
            found |= set(value if isinstance(value, list) else [value])
        return tuple(sorted(found - {None}))

    # -- passes ---------------------------------------------------------------------------------------------------

    def packs(self, trees: Sequence[Tree]) -> Iterator[Pack]:
        """Packs within the token budget, on the device.

        Raises:
            ContextError: If a prefix with one of its branches is longer than the model's context.
        """
        self.check_context(max((len(tree.prefix) + max(map(len, tree.branches), default=0) for tree in trees), default=0))
        for pack in branches.make_packs(trees, self.config.max_tokens_per_pass, self.packing.max_shared_row):
            yield pack.to(self.device)

    @cached_property
    def packing(self) -> PackingCheck:
        """Whether this model takes packed branches, found out in the first pass."""
        config = self.base.config.get_text_config()
        with torch.no_grad(), self._untouched():
            return check_packing(
                lambda pack: self.token_logprobs(pack.to(self.device)),
                self.vocabulary,
                torch.finfo(self.base.dtype).eps,
                getattr(config, "sliding_window", None),
                self.config.max_tokens_per_pass,
            )

    @contextmanager
    def _untouched(self) -> Iterator[None]:
        """Evaluation mode for a while, in the middle of whatever is active."""
        was = self.training
        self.eval()
        try:
            yield
        finally:
            self.train(was)

    def check_context(self, length: int) -> None:
        """Refuse sequences for which the model has no positions: beyond them its numbers mean nothing.

        Raises:
            ContextError: If ``length`` tokens are more than the model's config allows.
        """
        limit = getattr(self.base.config.get_text_config(), "max_position_embeddings", None)
        if limit is not None and length > limit:
            raise ContextError(
                f"The context of {self.config.name_or_path!r} is {limit} tokens, got {length}. Leave out what is long, or sample less."
            )

    def hidden(self, pack: Pack) -> Tensor:
        """Last hidden states ``[N, T, H]`` of a pack under whatever is active."""
        inputs: dict[str, Any] = {"input_ids": pack.input_ids, "position_ids": pack.position_ids, "use_cache": False}
        if self.config.attn_implementation == BRANCHES and not pack.plain:
            # The layout stands for the mask; any mask of four dimensions keeps transformers from making its own.
            inputs |= {"layout": layout_of(pack), "attention_mask": torch.ones(1, 1, 1, 1, dtype=torch.bool, device=self.device)}
        else:
            inputs["attention_mask"] = pack.attention_mask(self.base.dtype)
        return self.base.base_model(**inputs).last_hidden_state

    def token_logprobs(self, pack: Pack, temperature: float = 1.0) -> Tensor:
        """Log-probability of every branch token of a pack ``[n]``."""
        learns = any(parameter.requires_grad for parameter in self.base.get_output_embeddings().parameters())
        return branches.token_logprobs(self.hidden(pack), pack, self.head, self.vocabulary, temperature, learns)

    def map_end_logits(self, pack: Pack, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply a function to the next-token logits ``[c, V]`` after each branch of a pack: ``[branches, …]``."""
        return branches.map_logits(self.hidden(pack), pack.ends, self.head, lambda logits, _: function(logits), self.vocabulary)

    def head(self, hidden: Tensor) -> Tensor:
        """Hidden states to logits."""
        return self.base.get_output_embeddings()(hidden)

    @property
    def vocabulary(self) -> int:  # type: ignore[override]
        """Number of logits."""
        return self.base.config.get_text_config().vocab_size

    def sample(self, prefixes: Sequence[Sequence[int]], num: int, config: SamplingConfig, adapter: str | None) -> list[list[Sample]]:
        """``num`` continuations of each prefix, as many prefixes at a time as the budgets allow."""
        self.check_context(max(map(len, prefixes), default=0) + config.max_new_tokens)
        out: list[list[Sample]] = []
        newline_ids = self.newline_ids if config.max_lines is not None else ()
        with self.active(adapter) as model:
            kind = self.decoding(max(map(len, prefixes)) + config.max_new_tokens)
            for group in self._sampling_groups(prefixes, num, config.max_new_tokens, kind is SharedPrefix):
                out += sample(cast(PreTrainedModel, model.base_model), self.head, group, num, config, self.eos_ids, newline_ids, kind)
        return out

    def decoding(self, length: int) -> type[Decoding]:
        """How prefixes are held while sampling sequences of at most ``length`` tokens."""
        limit = self.packing.max_shared_row
        shared = self.config.attn_implementation == BRANCHES and (limit is None or length <= limit) and self.shares_keys
        return SharedPrefix if shared else CopiedPrefix

    @cached_property
    def shares_keys(self) -> bool:
        """Whether this model takes keys that continuations share, found out when it first samples."""
        with torch.no_grad(), self._untouched(), seeded(0, self.device):
            return check_sharing(
                lambda prefix, num, config: sample(
                    cast(PreTrainedModel, self.base.base_model), self.head, [prefix], num, config, (), kind=SharedPrefix
                )[0],
                lambda pack: self.token_logprobs(pack.to(self.device)),
                self.vocabulary,
                torch.finfo(self.base.dtype).eps,
            )

    def _sampling_groups(self, prefixes: Sequence[Sequence[int]], num: int, new: int, shared: bool) -> Iterator[list[Sequence[int]]]:
        group: list[Sequence[int]] = []
        for prefix in prefixes:
            width = max(map(len, [*group, prefix]))
            size = len(group) + 1
            cached = size * (width + num * new if shared else num * (width + new))
            if group and (size * width > self.config.max_tokens_per_pass or cached > self.config.max_cached_tokens):
                yield group
                group = []
            group.append(prefix)
        if group:
            yield group
