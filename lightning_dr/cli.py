"""The command line: ``lightning-dr fit | validate``, a LightningCLI."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningDataModule
from lightning.pytorch.cli import LightningCLI

# bitsandbytes warns at import about an optional kernel for 4-bit inference on CPUs.
logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
# Models rest in evaluation mode here on purpose, and `len` of the validation stream is exact.
warnings.filterwarnings("ignore", message=r".*(module\(s\) in eval mode|`IterableDataset` has `__len__` defined|LeafSpec)")

from lightning_dr.modules import CoEvolutionModule  # noqa: E402

CONFIGS = Path(__file__).parent / "configs"
DEFAULT = "toy.yaml"
COMMANDS = ("fit", "validate")


class DRCLI(LightningCLI):
    """LightningCLI that validates before a fit too, where the data holds prompts out."""

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """The Trainer methods that mean something here."""
        return {name: skipped for name, skipped in LightningCLI.subcommands().items() if name in COMMANDS}

    def fit(self, model: CoEvolutionModule, datamodule: LightningDataModule, ckpt_path: str | None = None, **kwargs: Any) -> None:
        """Fit, with a validation before it unless the run is resumed; the fit itself validates at its end."""
        if ckpt_path is None and getattr(datamodule, "num_held_out", 0) > 0 and self.trainer.limit_val_batches != 0:
            self.trainer.validate(model, datamodule=datamodule, verbose=False)
        self.trainer.fit(model, datamodule=datamodule, ckpt_path=ckpt_path, **kwargs)
        print(f"Run folder: {self.trainer.log_dir}")


def with_default_config(args: Sequence[str]) -> list[str]:
    """Arguments with the packaged toy config where none is named, and packaged configs found by their file name.

    Example:
        >>> with_default_config(["fit", "--trainer.max_epochs=2"])[1].startswith("--config=")
        True
    """
    args = list(args)
    if not args or args[0] not in COMMANDS or {"-h", "--help"} & set(args):
        return args
    found = False
    for position, arg in enumerate(args):
        if arg in ("--config", "-c") and position + 1 < len(args):
            args[position + 1] = resolve_config(args[position + 1])
            found = True
        elif arg.startswith("--config="):
            args[position] = f"--config={resolve_config(arg.removeprefix('--config='))}"
            found = True
    return args if found else [args[0], f"--config={CONFIGS / DEFAULT}", *args[1:]]


def resolve_config(name: str) -> str:
    """A config file as it is named, or else the packaged one of that name (``smollm2.yaml`` or ``configs/smollm2.yaml``)."""
    packaged = CONFIGS / Path(name).relative_to("configs") if Path(name).parts[:1] == ("configs",) else CONFIGS / name
    return str(packaged) if not Path(name).exists() and packaged.is_file() else name


def main(args: Sequence[str] | None = None) -> None:
    """Entry point of ``lightning-dr`` and ``python -m lightning_dr``."""
    if args is None:
        sys.argv[1:] = with_default_config(sys.argv[1:])
    DRCLI(
        CoEvolutionModule,
        LightningDataModule,
        subclass_mode_data=True,
        auto_configure_optimizers=False,
        seed_everything_default=0,
        args=None if args is None else with_default_config(args),
    )


if __name__ == "__main__":
    main()
