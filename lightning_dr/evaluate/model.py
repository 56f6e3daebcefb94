"""The model behind an evaluation: a run after one of its rounds, a training config with nothing trained, or none."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
import yaml

from ..cli import CONFIGS, DEFAULT, names_backbone, resolve_config
from ..experiments.runs import RunFolder, make_module
from ..modules import CoEvolutionModule

Role = Literal["policy", "generator"]


class NoModel:
    """Stands for the module of an evaluator that needs none, or that brings its own model."""

    def __init__(self) -> None:
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.backbone = self

    def __getattr__(self, name: str) -> Any:
        """Whatever else an evaluator may ask for.

        Raises:
            ValueError: Always.
        """
        raise ValueError(f"This evaluator needs a model, here for its `{name}`: name a run or a training config with `--model`.")


def load_model(
    model: str | None, role: Role, round_number: int | None = None, options: list[str] | None = None
) -> tuple[CoEvolutionModule | NoModel, dict[str, Any]]:
    """The module to evaluate with, and what identifies it.

    Args:
        model: Folder of a run, a training config (a file, or the name of a packaged one), or ``None``.
        role: Whose adapter is loaded.
        round_number: Of a run: after which round; ``None``: the last one that was saved; 0: nothing trained.
        options: Of ``lightning-dr fit``, for a config, such as ``--model.backbone.name_or_path=…``.

    Raises:
        ValueError: If a round is asked of a config, or one that was not saved.
        FileNotFoundError: If there is no such run or config.
    """
    if model is None:
        if round_number is not None or options:
            raise ValueError("`round` and `options` must not be given without `--model`.")
        return NoModel(), {}
    config = resolve_config(model)
    if config.endswith((".yaml", ".yml")):
        if round_number:
            raise ValueError(f"`round` must be left out for a config, got {round_number}: nothing is trained. Name the folder of a run.")
        under = [] if names_backbone(config) else [str(CONFIGS / DEFAULT)]
        found = [read_config(name) for name in [*under, config]]
        return make_module(found, options or []), {"configs": [part["model"] for part in found], "options": options or []}
    run = RunFolder(model)
    if round_number is None:
        round_number = max(run.checkpoints)
    identity = {"configs": [run.config["model"]], "options": options or [], "round": round_number}
    if round_number == 0:
        return make_module([run.config], options or []), identity
    if round_number not in run.checkpoints:
        raise ValueError(f"`round` must be among the saved ones, {[0, *run.checkpoints]}, got {round_number}.")
    adapter = run.adapter(round_number, role)
    module = make_module([run.config], options or [])
    module.roles[role].load_role_state(adapter)
    return module, identity | {"adapter": digest(adapter)}


def read_config(path: str) -> dict[str, Any]:
    """A training config.

    Raises:
        FileNotFoundError: If it is not there.
        ValueError: If it is no YAML with a model.
    """
    try:
        with open(path, encoding="utf-8") as file:
            found = yaml.safe_load(file)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"`model` must be the folder of a run or a training config, got {path!r}, which is not there.") from error
    except yaml.YAMLError as error:
        raise ValueError(f"{path} must be YAML: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("model"), dict):
        raise ValueError(f"{path} must be a training config with the key `model`.")
    return found


def digest(state: Mapping[str, torch.Tensor]) -> str:
    """A hash of tensors."""
    found = hashlib.sha256()
    for name in sorted(state):
        found.update(f"{name}{tuple(state[name].shape)}".encode())
        found.update(state[name].float().contiguous().numpy().tobytes())
    return found.hexdigest()


def title_of(model: str | None, identity: Mapping[str, Any]) -> str:
    """What a heading says of the model."""
    return (f" of {model}" if model else "") + (f" after round {identity['round']}" if "round" in identity else "")


def default_folder(model: str | None, name: str, identity: Mapping[str, Any]) -> Path:
    """Where results go: beside the run, or in ``runs``."""
    if model is None:
        return Path("runs/evaluation") / name
    if "round" in identity:
        return Path(model) / "evaluation" / f"{name}-round-{identity['round']:05d}"
    return Path("runs/evaluation") / f"{Path(model).stem}-{name}"
