"""The command line: ``lightning-dr fit | validate``, a LightningCLI, and ``ablate | crossplay | diagnose | evaluate``."""

from __future__ import annotations

import importlib
import logging
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import yaml
from jsonargparse import ArgumentParser
from lightning.pytorch import LightningDataModule, Trainer
from lightning.pytorch.cli import LightningCLI

# bitsandbytes warns at import about an optional kernel for 4-bit inference on CPUs.
logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
# Models rest in evaluation mode here on purpose, and `len` of the validation stream is exact.
warnings.filterwarnings("ignore", message=r".*(module\(s\) in eval mode|`IterableDataset` has `__len__` defined|LeafSpec)")

from lightning_dr.modules import CoEvolutionModule  # noqa: E402

CONFIGS = Path(__file__).parent / "configs"
DEFAULT = "toy.yaml"
COMMANDS = ("fit", "validate")
EXPERIMENTS = ("ablate", "crossplay", "diagnose")
EVALUATE = "evaluate"
EVALUATED = ("evaluator", "policy", "win_rate")
"""What comes after ``evaluate``."""
DESCRIPTION = (
    "Post-train a language model against an evaluator that is trained beside it. "
    f"Further commands, each with a --help: {', '.join((*EXPERIMENTS, *(f'{EVALUATE} {name}' for name in EVALUATED)))}."
)


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
        with finish_round_on_interrupt(self.trainer):
            self.trainer.fit(model, datamodule=datamodule, ckpt_path=ckpt_path, **kwargs)
        print(f"Run folder: {self.trainer.log_dir}")


@contextmanager
def finish_round_on_interrupt(trainer: Trainer) -> Iterator[None]:
    """The first Ctrl-C ends the run after its round, so that the round is saved; the second one ends it at once."""
    before = signal.getsignal(signal.SIGINT)

    def stop(signum: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        trainer.should_stop = True
        print("\nStopping after this round. Press Ctrl-C again to stop at once; what was not saved is then lost.", flush=True)

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def with_default_config(args: Sequence[str]) -> list[str]:
    """Arguments with the config files in front, so that options win over them wherever they stand.

    Files are found in the package by their name too. The toy's config goes under the others where none of them names a backbone.

    Example:
        >>> found = with_default_config(["fit", "--trainer.max_epochs=2", "--config", "mine.yaml"])
        >>> found[2:], found[1].endswith("toy.yaml")
        (['--config=mine.yaml', '--trainer.max_epochs=2'], True)
    """
    args = list(args)
    command = next((number for number, arg in enumerate(args) if arg in COMMANDS), 0)
    args[: command + 1] = args[command : command + 1] + args[:command]
    if not args or args[0] not in COMMANDS or {"-h", "--help"} & set(args):
        return args
    configs, rest = split_configs(args[1:])
    if not any(map(names_backbone, configs)):
        configs.insert(0, str(CONFIGS / DEFAULT))
    return [args[0], *(f"--config={config}" for config in configs), *rest]


def split_configs(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """The config files that arguments name, found in the package by their name too, and the other arguments."""
    configs, rest = [], []
    given = iter(args)
    for arg in given:
        if arg in ("--config", "-c"):
            configs.append(resolve_config(next(given, "")))
        elif arg.startswith("--config="):
            configs.append(resolve_config(arg.removeprefix("--config=")))
        else:
            rest.append(arg)
    return configs, rest


def names_backbone(config: str) -> bool:
    """Whether a config file, if it can be read, says which model to train."""
    try:
        content = yaml.safe_load(Path(config).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return False  # the parser of the command line says what is wrong with it
    model = content.get("model") if isinstance(content, dict) else None
    backbone = model.get("backbone") if isinstance(model, dict) else None
    return isinstance(backbone, dict) and "name_or_path" in backbone


def resolve_config(name: str) -> str:
    """A config file as it is named, or else the packaged one of that name (``smollm2.yaml`` or ``configs/smollm2.yaml``)."""
    packaged = CONFIGS / Path(name).relative_to("configs") if Path(name).parts[:1] == ("configs",) else CONFIGS / name
    return str(packaged) if not Path(name).exists() and packaged.is_file() else name


def run_experiment(name: str, args: Sequence[str]) -> None:
    """One of the experiments."""
    run_function(f"experiments.{name}", name, args, as_positional=name != "ablate")


def run_evaluation(args: Sequence[str]) -> None:
    """One of the evaluations."""
    if not args or args[0] not in EVALUATED:
        raise SystemExit(f"lightning-dr evaluate: name one of {', '.join(EVALUATED)}; each has a --help.")
    run_function(f"evaluate.{args[0]}", f"evaluate {args[0]}", args[1:], as_positional=False)


def run_function(module: str, title: str, args: Sequence[str], as_positional: bool) -> None:
    """A command that is the function of its module's name; mistakes in its arguments are a line, not a traceback."""
    command = getattr(importlib.import_module(f"lightning_dr.{module}"), module.rpartition(".")[2])
    parser = ArgumentParser(prog=f"lightning-dr {title}", description=(command.__doc__ or "").partition("Args:")[0])
    parser.add_argument("--config", action="config", help="A file with these options.")
    parser.add_function_arguments(command, as_positional=as_positional)
    configs, rest = split_configs(args)
    options = vars(parser.instantiate_classes(parser.parse_args([*(f"--config={config}" for config in configs), *rest])))
    options.pop("config", None)
    try:
        command(**options)
    except (ValueError, OSError, ImportError) as error:
        raise SystemExit(f"lightning-dr {title}: {error}") from error


def main(args: Sequence[str] | None = None) -> None:
    """Entry point of ``lightning-dr`` and ``python -m lightning_dr``."""
    given = sys.argv[1:] if args is None else list(args)
    if given and given[0] in EXPERIMENTS:
        run_experiment(given[0], given[1:])
        return
    if given and given[0] == EVALUATE:
        run_evaluation(given[1:])
        return
    if args is None:
        sys.argv[1:] = with_default_config(sys.argv[1:])
    DRCLI(
        CoEvolutionModule,
        LightningDataModule,
        subclass_mode_data=True,
        auto_configure_optimizers=False,
        seed_everything_default=0,
        parser_kwargs={"description": DESCRIPTION},
        args=None if args is None else with_default_config(args),
    )


if __name__ == "__main__":
    main()
