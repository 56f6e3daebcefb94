"""A finished run, loaded from its folder, with the adapters of any of its rounds."""

from __future__ import annotations

import tempfile
from argparse import ArgumentError
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from jsonargparse import ArgumentParser
from lightning.pytorch import LightningDataModule
from torch import Tensor

from ..datamodules.stream import RoundDataModule
from ..modules import CoEvolutionModule
from ..modules.role import read_adapter
from ..records import Batch
from ..roles import ReferenceRanking


class RunFolder:
    """The folder of a run: its config, its data and its checkpoints.

    Args:
        path: Such as ``runs/toy/version_0``.

    Raises:
        FileNotFoundError: If it is not the folder of a run.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        file = self.path / "config.yaml"
        if not file.is_file():
            raise FileNotFoundError(f"{str(path)!r} must be the folder of a run, such as runs/toy/version_0, but it has no config.yaml.")
        self.config: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))

    @property
    def checkpoints(self) -> dict[int, Path]:
        """Rounds done -> the folder with both adapters, in order.

        Raises:
            FileNotFoundError: If there is none.
        """
        found = {int(folder.name.removeprefix("round-")): folder for folder in sorted(self.path.glob("checkpoints/round-[0-9]*"))}
        found = {number: folder for number, folder in found.items() if (folder / "generator" / "adapter_config.json").is_file()}
        if not found:
            raise FileNotFoundError(
                f"{self.path} must have saved adapters, but has none under checkpoints/. Train with the callback `AdapterCheckpoint` "
                "and LoRA adapters."
            )
        return found

    def load(self) -> tuple[CoEvolutionModule, RoundDataModule]:
        """The module with its untrained adapters, and the data, as the run had them."""
        parser = ArgumentParser()
        parser.add_subclass_arguments(LightningDataModule, "data", fail_untyped=False)
        data = parser.instantiate_classes(parser.parse_object({"data": self.config["data"]})).data
        module = make_module([self.config])
        data.setup("validate")
        return module, data

    def reference(self) -> ReferenceRanking | None:
        """The reference ranking that the run was monitored with."""
        for callback in self.config.get("trainer", {}).get("callbacks") or []:
            given = (callback.get("init_args") or {}).get("reference")
            if callback["class_path"].endswith("GapMonitor") and given is not None:
                parser = ArgumentParser()
                parser.add_argument("--reference", type=ReferenceRanking)
                return parser.instantiate_classes(parser.parse_object({"reference": given})).reference
        return None

    def adapter(self, round_number: int, role: str) -> dict[str, Tensor]:
        """The tensors of a saved adapter."""
        return read_adapter(self.checkpoints[round_number] / role, role)


def make_module(configs: Sequence[Mapping[str, Any]], options: Sequence[str] = ()) -> CoEvolutionModule:
    """The module of training configs, with nothing trained, in evaluation mode.

    Args:
        configs: Contents of config files, of which only ``model`` is looked at; later ones go on top.
        options: Options of ``lightning-dr fit`` that begin with ``--model``.

    Raises:
        ValueError: If they don't fit the module.
    """
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--config", action="config")
    parser.add_class_arguments(CoEvolutionModule, "model", fail_untyped=False)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{number}.yaml" for number in range(len(configs))]
        for file, config in zip(files, configs, strict=True):
            file.write_text(yaml.safe_dump({"model": config["model"]}), encoding="utf-8")
        try:
            found = parser.parse_args([*(f"--config={file}" for file in files), *options])
        except ArgumentError as error:
            raise ValueError(f"The config and `options` must be as for `lightning-dr fit`, but: {error}") from error
        module = parser.instantiate_classes(found).model
    module.configure_model()
    if torch.cuda.is_available() and module.backbone_config.quantization is None:
        module.to("cuda")
    return module.eval()


def pick_rounds(saved: Mapping[int, Any], wanted: list[int] | None, count: int) -> list[int]:
    """The rounds to look at: those that are wanted, or at most ``count`` spread over the saved ones, 0 (untrained) included.

    Raises:
        ValueError: If one that is wanted was not saved.
    """
    known = [0, *saved]
    if wanted:
        if missing := sorted(set(wanted) - set(known)):
            raise ValueError(f"`rounds` must be among the saved ones, {known}, got {missing}.")
        return sorted(set(wanted))
    if len(known) <= count:
        return known
    return [known[round(number * (len(known) - 1) / (count - 1))] for number in range(count)]


def held_out(data: RoundDataModule, prompts: int) -> list[Batch]:
    """Batches of held-out prompts, at least ``prompts`` in all if there are so many; of training where none are held out."""
    batches: list[Batch] = []
    index = 0
    while sum(len(batch.prompts) for batch in batches) < prompts:
        if data.num_held_out and index >= data.num_val_batches:
            break
        batches.append(data.val_batch(index) if data.num_held_out else data.batch(index))
        index += 1
    return batches
