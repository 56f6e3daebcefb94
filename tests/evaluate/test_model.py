"""What stands behind an evaluation."""

import pytest

from lightning_dr.evaluate.model import NoModel, default_folder, load_model, title_of
from lightning_dr.evaluators import LengthEvaluator
from lightning_dr.modules.evaluators import DynamicRubric
from lightning_dr.roles import attach

OPTIONS = ["--model.rounds.num_rubrics=3"]


def test_a_config_is_loaded_with_its_options_and_nothing_trained():
    module, identity = load_model("toy.yaml", "generator", None, OPTIONS)
    assert module.config.num_rubrics == 3
    assert not module.training
    assert identity["options"] == OPTIONS
    assert set(identity) == {"configs", "options"}


def test_a_config_without_a_backbone_goes_on_top_of_the_toy():
    module, _ = load_model("configs/ablations/prompt_only.yaml", "generator")
    assert module.generator.template.name.endswith("toy_prompt_only.txt")
    assert module.backbone_config.name_or_path == "toy"


@pytest.mark.parametrize(
    ("model", "number", "options", "error", "message"),
    [
        ("nothing.yaml", None, [], FileNotFoundError, "`model` must be the folder of a run or a training config, got 'nothing.yaml'"),
        ("runs/nothing", None, [], FileNotFoundError, "'runs/nothing' must be the folder of a run"),
        ("toy.yaml", 3, [], ValueError, "`round` must be left out for a config, got 3"),
        ("toy.yaml", None, ["--model.rounds.num_rubics=3"], ValueError, "`options` must be as for `lightning-dr fit`.*num_rubics"),
        (None, 3, [], ValueError, "must not be given without `--model`"),
        (None, None, OPTIONS, ValueError, "must not be given without `--model`"),
    ],
)
def test_what_is_wrong_is_named(model, number, options, error, message):
    with pytest.raises(error, match=message):
        load_model(model, "generator", number, options)


def test_files_that_are_no_config_are_named(tmp_path):
    for text, message in (("a: [", "must be YAML"), ("a: 1", "must be a training config with the key `model`")):
        (tmp_path / "x.yaml").write_text(text)
        with pytest.raises(ValueError, match=rf"x\.yaml {message}"):
            load_model(str(tmp_path / "x.yaml"), "generator")


def test_without_a_model_only_those_evaluators_work_that_need_none():
    nothing, identity = load_model(None, "generator")
    assert isinstance(nothing, NoModel)
    assert identity == {}
    attach(LengthEvaluator(), nothing)
    with pytest.raises(ValueError, match="needs a model, here for its `generator`: name a run or a training config with `--model`"):
        DynamicRubric().attach(nothing)


def test_where_results_go_and_what_they_are_called():
    assert str(default_folder(None, "evaluator-X", {})) == "runs/evaluation/evaluator-X"
    assert str(default_folder("configs/toy.yaml", "policy", {})) == "runs/evaluation/toy-policy"
    assert str(default_folder("runs/toy/version_0", "policy", {"round": 20})) == "runs/toy/version_0/evaluation/policy-round-00020"
    assert title_of("runs/a", {"round": 0}) == " of runs/a after round 0"
    assert title_of(None, {}) == ""
