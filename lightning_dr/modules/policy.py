"""The policy: samples response sets and learns from their scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from lightning.pytorch.cli import OptimizerCallable

from ..objectives import ObjectiveConfig
from ..records import Prompt, Responses
from .role import RoleModule
from .sampling import SamplingConfig


class PolicyModule(RoleModule):
    """The role that is post-trained. See :class:`RoleModule` for the arguments."""

    role = "policy"

    def __init__(
        self,
        lora: dict[str, Any] | None = None,
        optimizer: OptimizerCallable = lambda params: torch.optim.AdamW(params, lr=1e-6, weight_decay=0.0),
        sampling: SamplingConfig = SamplingConfig(),  # noqa: B008
        objective: ObjectiveConfig = ObjectiveConfig(kl_weight=0.01),  # noqa: B008
        max_grad_norm: float | None = 1.0,
        adapter_path: str | None = None,
    ) -> None:
        super().__init__(lora, optimizer, sampling, objective, max_grad_norm, adapter_path)

    def respond(self, prompts: Sequence[Prompt], num_responses: int) -> Responses:
        """Sample K responses to each prompt."""
        prefixes = [self.backbone.encode(prompt.messages) for prompt in prompts]
        return tuple(self.draw_completions(prefixes, num_responses))
