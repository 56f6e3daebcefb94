"""Every YAML file in configs/ parses and builds."""

from pathlib import Path

import pytest
import torch
from lightning.pytorch import LightningDataModule

from lightning_dr.cli import CONFIGS, DRCLI, resolve_config, with_default_config
from lightning_dr.modules import CoEvolutionModule, LLMVerifier

RUNS = sorted(path.name for path in CONFIGS.glob("*.yaml"))
ABLATIONS = sorted(str(path.relative_to(CONFIGS / "ablations").with_suffix("")) for path in (CONFIGS / "ablations").rglob("*.yaml"))
FULL = {"qwen3-8b-4bit.yaml": "qwen3", "llama3.1-8b-4bit.yaml": "llama"}


def build(*args):
    """The CLI with everything instantiated and nothing run."""
    return DRCLI(
        CoEvolutionModule,
        LightningDataModule,
        subclass_mode_data=True,
        auto_configure_optimizers=False,
        run=False,
        args=[*args, "--trainer.accelerator=cpu"],
    )


@pytest.mark.parametrize("name", RUNS)
def test_builds(name):
    cli = build(f"--config={CONFIGS / name}")
    assert cli.model.num_rounds >= 20
    assert cli.trainer.max_steps == -1


@pytest.mark.parametrize("name", ABLATIONS)
def test_ablation_goes_on_top_of_the_toy(name, monkeypatch):
    monkeypatch.setattr("lightning_dr.callbacks.checkpoint_swap.read_adapter", lambda path, role: {})
    base = CONFIGS / ("smollm2.yaml" if name == "knobs/soft_verdicts" else "toy.yaml")
    cli = build(f"--config={base}", f"--config={CONFIGS / 'ablations' / name}.yaml")
    plain = build(f"--config={base}")
    kinds = [type(callback).__name__ for callback in cli.trainer.callbacks]
    assert set(kinds) >= {"RoundProgress", "RunSummary", "AdapterCheckpoint"}
    differences = [key for key in ("model", "data") if cli.config[key] != plain.config[key]]
    assert differences or len(cli.trainer.callbacks) > len(plain.trainer.callbacks)


@pytest.mark.parametrize("name", sorted(FULL))
def test_full_recipe_trains_a_round_with_tiny_random_weights(name, random_model, tmp_path, monkeypatch):
    """The 8B recipe as it is, NF4 included, with a tiny model of the same architecture in place of the weights."""
    rows = tmp_path / "nectar.jsonl"
    answers = [{"answer": f"answer {n} copper", "rank": float(n), "model": "m"} for n in range(1, 8)]
    import json

    rows.write_text("\n".join(json.dumps({"prompt": f"\n\nHuman: Write about {t}.\n\nAssistant: ", "answers": answers}) for t in range(8)))
    cli = build(
        f"--config={CONFIGS / name}",
        f"--model.backbone.name_or_path={random_model(FULL[name], hidden_size=128, intermediate_size=256, head_dim=32)}",
        f"--data.anchors.path={rows}",
        "--data.anchors.num_val=2",
        "--model.schedule=[{rounds: 1}]",
        "--model.rounds.num_responses=2",
        "--model.rounds.num_rubrics=2",
        "--model.policy.sampling.max_new_tokens=4",
        "--model.generator.sampling.max_new_tokens=4",
        f"--trainer.logger.save_dir={tmp_path}",
    )
    monkeypatch.setattr("lightning_dr.modules.verifier.yes_no_token_ids", lambda vocabulary: ([10], [12]))
    cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    assert cli.model.round == 1
    assert isinstance(cli.model.verifier, LLMVerifier)
    assert any(type(module).__name__ == "Linear4bit" for module in cli.model.backbone.modules())
    dtypes = {p.dtype for role in cli.model.roles.values() for p in role.role_parameters().values()}
    assert dtypes == {torch.float32}


def test_overrides_keep_what_they_do_not_name():
    cli = build(f"--config={CONFIGS / 'toy.yaml'}", "--model.policy.lora.r=3", "--model.generator.optimizer.lr=0.5")
    assert cli.model.policy.lora == {"r": 3, "alpha": 32, "target_modules": "all-linear"}
    parameter = torch.nn.Parameter(torch.zeros(1))
    assert cli.model.generator.optimizer([parameter]).param_groups[0]["lr"] == 0.5
    assert cli.model.policy.optimizer([parameter]).param_groups[0]["lr"] == 2e-3


def test_a_bad_value_on_the_command_line_stops_before_training():
    with pytest.raises(ValueError, match="`num_rubrics` must be at least 2, got 1"):
        build(f"--config={CONFIGS / 'toy.yaml'}", "--model.rounds.num_rubrics=1")


def test_the_toy_is_the_default_and_packaged_configs_have_short_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert with_default_config(["fit"]) == ["fit", f"--config={CONFIGS / 'toy.yaml'}"]
    assert with_default_config(["fit", "--config", "configs/smollm2.yaml"]) == ["fit", f"--config={CONFIGS / 'smollm2.yaml'}"]
    assert resolve_config("toy.yaml") == str(CONFIGS / "toy.yaml")
    Path("toy.yaml").write_text("")
    assert resolve_config("toy.yaml") == "toy.yaml"
    # options before the command are the command's
    assert with_default_config(["--config", "configs/smollm2.yaml", "fit"]) == ["fit", f"--config={CONFIGS / 'smollm2.yaml'}"]
    assert with_default_config(["fit", "--help"]) == ["fit", "--help"]


def test_options_win_over_files_wherever_they_stand():
    toy = str(CONFIGS / "toy.yaml")
    assert with_default_config(["fit", "--model.policy.lora.r=3", "--config", toy]) == ["fit", f"--config={toy}", "--model.policy.lora.r=3"]


def test_an_ablation_alone_goes_on_top_of_the_toy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ablation = "configs/ablations/anchor_only.yaml"
    assert with_default_config(["fit", "--config", ablation]) == [
        "fit",
        f"--config={CONFIGS / 'toy.yaml'}",
        f"--config={CONFIGS / 'ablations' / 'anchor_only.yaml'}",
    ]
    wider = tmp_path / "wider.yaml"
    wider.write_text("model: {backbone: {max_tokens_per_pass: 9000}}")
    assert with_default_config(["fit", "--config", str(wider)])[1] == f"--config={CONFIGS / 'toy.yaml'}"
    broken = tmp_path / "broken.yaml"
    broken.write_text("model: [")
    assert with_default_config(["fit", "--config", str(broken)])[2] == f"--config={broken}"
