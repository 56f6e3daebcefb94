import pytest

from lightning_dr.modules import GeneratorModule
from lightning_dr.records import Completion


def read(text, finished=True, **kwargs):
    return GeneratorModule(**{"max_items": 3} | kwargs).read(Completion(text=text, finished=finished))


@pytest.mark.parametrize(
    ("text", "finished", "kwargs", "error"),
    [
        ("[3] Is it short?", True, {}, None),
        ("[3] Is it short?", False, {}, "cut at the length limit"),
        ("Is it short?", True, {}, "no item"),
        ("[1] A?\n[1] B?\n[1] C?\n[1] D?", True, {}, "4 items, more than 3"),
        ("[1] Is it short?\n[2] Is it short?", True, {}, "is there twice"),
        ("[1] Is it short?\n[2] Is it short?", True, {"duplicate_items": "mask"}, None),
        ("[1] Is it short?", True, {"question_pattern": r"Does .*\?"}, "a question of another kind"),
        ("[4] Is it short?\n[1] Does the response explain why the name fits?", True, {}, "copied from the example"),
        ("[3] Does the response mention copper?", True, {"template": "toy"}, None),
    ],
)
def test_what_cannot_be_read_says_why(text, finished, kwargs, error):
    draw = read(text, finished, **kwargs)
    if error is None:
        assert draw.rubric is not None
    else:
        assert error in draw.error


def test_a_prefilled_beginning_belongs_to_the_rubric(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("--- user ---\n{prompt}{responses}\n--- assistant ---\n[5] Does the response")
    assert read(" help?", template=str(file)).rubric.questions == ("Does the response help?",)


@pytest.mark.parametrize("kwargs", [{"max_items": 0}, {"duplicate_items": "drop"}, {"max_grad_norm": 0.0}, {"adapter_path": "x"}])
def test_bad_arguments(kwargs):
    with pytest.raises(ValueError, match="must be"):
        GeneratorModule(**kwargs)


def test_an_example_that_is_no_rubric_is_named_with_its_template(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("--- user ---\nWrite.\n--- assistant ---\nSure!\n--- user ---\n{prompt} {responses}")
    with pytest.raises(ValueError, match=r"mine\.txt': an assistant section must be a rubric"):
        GeneratorModule(template=str(file))
