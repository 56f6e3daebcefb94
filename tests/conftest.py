import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import subprocess
import sys

import pytest
import torch
import yaml
from lightning import Trainer
from lightning.pytorch.callbacks import Checkpoint
from transformers import AutoConfig, AutoModelForCausalLM

from lightning_dr.cli import CONFIGS
from lightning_dr.modules import BackboneConfig, CoEvolutionModule, GeneratorModule, Phase, PolicyModule, SamplingConfig
from lightning_dr.objectives import ObjectiveConfig
from lightning_dr.rollout import RoundConfig
from lightning_dr.toy import ToyVerifier
from lightning_dr.toy.data import ToyDataModule
from lightning_dr.toy.tokenizer import build_tokenizer

LORA = {"r": 4, "alpha": 8, "target_modules": "all-linear"}
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 2048,
    "initializer_range": 0.2,
}
ARCHITECTURES = ("llama", "qwen2", "qwen3", "mistral", "gemma")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def random_model(tmp_path_factory):
    """Folder of a tiny random model of an architecture, with the toy tokenizer."""
    made = {}

    def make(kind, **sizes):
        key = (kind, *sizes.items())
        if key not in made:
            folder = tmp_path_factory.mktemp(kind)
            tokenizer = build_tokenizer()
            config = AutoConfig.for_model(
                kind,
                **SIZES | sizes,
                vocab_size=len(tokenizer),
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
                bos_token_id=None,
            )
            torch.manual_seed(1)
            AutoModelForCausalLM.from_config(config).save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            made[key] = str(folder)
        return made[key]

    return make


@pytest.fixture(scope="session")
def short_run(tmp_path_factory):
    """The folder of a run of four rounds on the toy, saved after every second one, 8 lists held out."""
    out = tmp_path_factory.mktemp("runs")
    config = yaml.safe_load((CONFIGS / "toy.yaml").read_text())
    config["trainer"]["callbacks"][-1]["init_args"]["every_n_rounds"] = 2
    config["model"]["schedule"] = [{"rounds": 4}]
    config["model"]["rounds"] |= {"num_responses": 3, "num_rubrics": 2}
    config["data"]["init_args"] |= {"batch_size": 2, "num_val": 8}
    config["trainer"]["logger"]["init_args"]["save_dir"] = str(out)
    (out / "config.yaml").write_text(yaml.safe_dump(config))
    args = [sys.executable, "-m", "lightning_dr", "fit", f"--config={out / 'config.yaml'}"]
    result = subprocess.run(args, capture_output=True, text=True, cwd=out)
    assert result.returncode == 0, result.stderr[-2000:]
    return out / "toy" / "version_0"


def toy_module(*, schedule=None, policy=None, generator=None, verifier=None, backbone=None, evaluator=None, reference=None, **rounds):
    """A co-evolution module on the toy; keyword arguments of the parts replace the defaults."""
    sgd = lambda params: torch.optim.Adam(params, lr=1e-2)  # noqa: E731
    common = {"lora": LORA, "optimizer": sgd}
    return CoEvolutionModule(
        BackboneConfig(**{"name_or_path": "toy", "dtype": "float32", **(backbone or {})}),
        PolicyModule(
            **common | {"sampling": SamplingConfig(max_new_tokens=10), "objective": ObjectiveConfig(kl_weight=0.01)} | (policy or {})
        ),
        GeneratorModule(
            **common
            | {"sampling": SamplingConfig(max_new_tokens=20), "template": "toy", "max_items": 3, "duplicate_items": "mask"}
            | (generator or {})
        ),
        verifier or ToyVerifier(),
        rounds=RoundConfig(**{"num_responses": 4, "num_rubrics": 3, **rounds}),
        schedule=schedule or [Phase(rounds=2)],
        evaluator=evaluator,
        reference=reference,
    )


def toy_data(**kwargs):
    return ToyDataModule(**{"batch_size": 2, "lists_per_topic": 4, "num_val": 4, **kwargs})


def trainer(tmp_path, callbacks=(), **kwargs):
    options = {
        "accelerator": "cpu",
        "max_epochs": 1,
        "num_sanity_val_steps": 0,
        "limit_val_batches": 0,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": any(isinstance(callback, Checkpoint) for callback in callbacks),
        "logger": False,
        "log_every_n_steps": 1,
        "default_root_dir": tmp_path,
    }
    return Trainer(callbacks=list(callbacks), **options | kwargs)


def fit(module, tmp_path, callbacks=(), data=None, ckpt_path=None, **kwargs):
    """Fit on the toy; returns the trainer."""
    made = trainer(tmp_path, callbacks, **kwargs)
    made.fit(module, datamodule=data or toy_data(), ckpt_path=ckpt_path)
    return made


def states(module):
    """Everything that training may change, and the base, as copies."""
    adapters = {name: role.role_state() for name, role in module.roles.items()}
    base = {key: value.clone() for key, value in module.backbone.base.state_dict().items() if "lora_" not in key}
    return adapters, base


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)
