"""What policy and generator share: an adapter (or a model) of their own, sampling, and the update."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from lightning import LightningModule
from lightning.pytorch.cli import OptimizerCallable
from peft.utils.save_and_load import load_peft_weights
from torch import Tensor, nn

from ..objectives import ObjectiveConfig
from ..records import Completion
from . import update
from .backbone import Backbone, BackboneConfig
from .sampling import SamplingConfig

ROLE_FILE = "lightning_dr.json"
"""Beside a saved adapter: which role saved it."""


class RoleModule(LightningModule):
    """A trained role. It returns metrics; the parent module logs them.

    Args:
        lora: Arguments of ``peft.LoraConfig`` (``alpha`` and ``dropout`` are short for ``lora_alpha`` and ``lora_dropout``). ``None``
            trains a full copy of the base instead, with no adapter.
        optimizer: Makes the optimizer from the role's own parameters.
        sampling: Temperature and length limit.
        objective: Clip bounds, KL weight, aggregation.
        max_grad_norm: The gradient of the role is clipped to this norm; ``None`` leaves it.
        adapter_path: Folder of a saved PEFT adapter to start from. The KL reference is then this start, otherwise the base.
    """

    role: str

    def __init__(
        self,
        lora: dict[str, Any] | None,
        optimizer: OptimizerCallable,
        sampling: SamplingConfig,
        objective: ObjectiveConfig,
        max_grad_norm: float | None,
        adapter_path: str | None,
    ) -> None:
        super().__init__()
        if lora is None and adapter_path is not None:
            raise ValueError(
                "`adapter_path` must be null for a role without `lora`, got a path. Name the LoRA config of the saved adapter."
            )
        if max_grad_norm is not None and not max_grad_norm > 0:
            raise ValueError(f"`max_grad_norm` must be positive or null, got {max_grad_norm}.")
        self.lora = lora
        self.optimizer = optimizer
        self.sampling = sampling
        self.objective = objective
        self.max_grad_norm = max_grad_norm
        self.adapter_path = adapter_path
        self.reference_adapter: str | None = None

    def attach(self, shared: Backbone, config: BackboneConfig) -> None:
        """Take an adapter on the shared base, or a trainable copy of it."""
        self.shared = shared
        if self.lora is None:
            self.backbone, self.adapter = Backbone(config, trainable=True), None
            return
        self.backbone, self.adapter = shared, self.role
        shared.add_adapter(self.role, self.lora)
        if self.adapter_path is not None:
            shared.load_adapter_state(self.role, read_adapter(self.adapter_path, self.role))
            self.reference_adapter = f"{self.role}_start"
            shared.copy_adapter(self.role, self.reference_adapter)

    def role_parameters(self) -> dict[str, nn.Parameter]:
        """The parameters that this role trains, by name."""
        if self.adapter is None:
            return dict(self.backbone.model.named_parameters())
        return self.backbone.adapter_parameters(self.adapter)

    def role_state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps of the role: its adapter (or its whole model), on the CPU."""
        if self.adapter is None:
            return {key: value.detach().to("cpu", copy=True) for key, value in self.backbone.model.state_dict().items()}
        return self.backbone.adapter_state(self.adapter)

    def load_role_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore :meth:`role_state`."""
        if self.adapter is None:
            self.backbone.model.load_state_dict(state)
        else:
            self.backbone.load_adapter_state(self.adapter, state)

    def save_role(self, folder: Path) -> None:
        """Write ``folder/<role>`` in the format of PEFT (or of transformers, for a full model)."""
        if self.adapter is None:
            self.backbone.base.save_pretrained(folder / self.role)
        else:
            self.backbone.save_adapter(self.adapter, str(folder))
            (folder / self.role / ROLE_FILE).write_text(json.dumps({"role": self.role}) + "\n", encoding="utf-8")

    def make_optimizer(self) -> torch.optim.Optimizer:
        """An optimizer over the role's own parameters and no others."""
        return self.optimizer(list(self.role_parameters().values()))

    def draw_completions(self, prefixes: Sequence[Sequence[int]], num: int, adapter: str | None = None) -> list[tuple[Completion, ...]]:
        """Sample ``num`` continuations of each prefix, with the role's own adapter or another one."""
        drawn = self.backbone.sample(prefixes, num, self.sampling, adapter or self.adapter)
        return [
            tuple(
                Completion(
                    text=self.backbone.decode(sample.token_ids),
                    token_ids=sample.token_ids,
                    logprobs=sample.logprobs,
                    prefix_ids=tuple(prefix),
                    finished=sample.finished,
                )
                for sample in group
            )
            for prefix, group in zip(prefixes, drawn, strict=True)
        ]

    def make_draw(self, groups: Sequence[Sequence[Completion]], advantages: Tensor, valid: Tensor) -> update.Draw:
        """Choose what takes part in the update, and ask the reference about it if there is a KL term."""
        draw = update.make_draw(groups, advantages, valid, self.objective)
        if self.backbone.has_dropout:
            draw.dropout_seed = int(torch.randint(2**31, ()))
        if self.objective.kl_weight > 0 and draw.trees:
            update.fill_reference(draw, self.shared, self.reference_adapter, self.sampling.temperature)
        return draw

    def learning(self) -> AbstractContextManager[Any]:
        """The role's model in training mode, for forward *and* backward passes."""
        return self.backbone.active(self.adapter, train=True)

    def losses(self, draw: update.Draw) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
        """The loss of each pass over the draw; call it inside :meth:`learning`."""
        return update.losses(draw, self.backbone, self.sampling.temperature, self.objective)


def read_adapter(folder: str | Path, role: str) -> dict[str, Tensor]:
    """The tensors of a saved PEFT adapter for a role.

    Raises:
        FileNotFoundError: If the folder holds none; the message says what it should be.
        ValueError: If the adapter was saved by another role.
    """
    folder = Path(folder)
    if not (folder / "adapter_config.json").is_file():
        raise FileNotFoundError(
            f"No adapter in {str(folder)!r}: a folder with adapter_config.json and adapter_model.safetensors is needed, "
            f"such as <run>/checkpoints/round-00010/{role}."
        )
    note = folder / ROLE_FILE
    saved_by = json.loads(note.read_text(encoding="utf-8"))["role"] if note.is_file() else role
    if saved_by != role:
        raise ValueError(
            f"The adapter in {str(folder)!r} must be of a {role}, but a {saved_by} saved it. If that is meant, remove {note.name} there."
        )
    return load_peft_weights(str(folder), device="cpu")
