"""Which base model, in which precision, and how it is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, PreTrainedModel

from .branch_attention import NAME as BRANCHES

DType = Literal["auto", "float32", "bfloat16", "float16"]


@dataclass(frozen=True, kw_only=True)
class BackboneConfig:
    """Which base model, and how it is held."""

    name_or_path: str
    """A model on the Hub, or a local folder; ``toy`` is the base that ships with the package."""
    revision: str | None = None
    """Commit or tag on the Hub."""
    dtype: DType = "auto"
    """Of the base; adapters are always float32. ``auto``: bfloat16 where the device computes it natively, else float32."""
    quantization: dict[str, Any] | None = None
    """Arguments of ``transformers.BitsAndBytesConfig``, such as ``{load_in_4bit: true, bnb_4bit_quant_type: nf4}``."""
    attn_implementation: str = BRANCHES
    """``branches``: ``sdpa``, without the work that a mask over packed branches throws away. ``sdpa`` and ``eager`` take the mask."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass. Sampling is not affected."""
    max_tokens_per_pass: int = 8192
    """Token budget of one pass, padding included. It changes memory and speed, never the gradient."""
    max_cached_tokens: int = 65536
    """Budget of the key-value cache while sampling."""
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    """Handed to the chat template, such as ``{enable_thinking: false}`` for Qwen3."""
    trust_remote_code: bool = False
    """Run code that a Hub repository ships."""

    def __post_init__(self) -> None:
        for name in ("max_tokens_per_pass", "max_cached_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, got {getattr(self, name)}.")

    @property
    def location(self) -> str:
        """``name_or_path`` with ``toy`` resolved."""
        if self.name_or_path == "toy":
            from ..toy import BASE

            return str(BASE)
        return self.name_or_path


def resolve_dtype(dtype: DType) -> torch.dtype:
    """The one place that decides the precision of the base."""
    if dtype != "auto":
        return getattr(torch, dtype)
    if torch.cuda.is_available():
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    native = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return torch.bfloat16 if native else torch.float32


def quantization_kwargs(quantization: Mapping[str, Any] | None) -> dict[str, Any]:
    """What ``from_pretrained`` is told of ``BackboneConfig.quantization``; a quantised model is loaded to the GPU where there is one."""
    if quantization is None:
        return {}
    place = {"device_map": {"": torch.cuda.current_device()}} if torch.cuda.is_available() else {}
    return {"quantization_config": BitsAndBytesConfig(**quantization), **place}


def load_base(config: BackboneConfig) -> PreTrainedModel:
    """Load the base in evaluation mode, quantised by transformers when the config asks for it."""
    model = AutoModelForCausalLM.from_pretrained(
        config.location,
        revision=config.revision,
        dtype=resolve_dtype(config.dtype),
        attn_implementation=config.attn_implementation,
        trust_remote_code=config.trust_remote_code,
        **quantization_kwargs(config.quantization),
    )
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            # Else bitsandbytes repacks the weights in the first pass without gradients, for a kernel without a backward pass.
            module.support_avx512bf16_for_cpu = False  # type: ignore[assignment]
    return model.eval()
