import json

import pytest

from lightning_dr.records import Completion, Prompt
from lightning_dr.stored import StoredRubrics
from lightning_dr.testing import ScriptedWriter

PROMPTS = [Prompt(id=name, messages=({"role": "user", "content": name},)) for name in ("p", "q")]
SETS = ((Completion(text="a"),), (Completion(text="b"),))


class Counting(ScriptedWriter):
    def __init__(self, texts):
        super().__init__(texts)
        self.prompts = []

    def write(self, prompts, responses, num_rubrics):
        self.prompts += [prompt.id for prompt in prompts]
        return super().write(prompts, responses, num_rubrics)


def questions(group):
    return [draw.rubric.questions[0] for draw in group]


def test_each_prompt_is_written_once_and_kept_on_disk(tmp_path):
    writer, path = Counting(["[1] One?", "[2] Two?", "nonsense"]), tmp_path / "deep" / "rubrics.jsonl"
    store = StoredRubrics(path, writer)
    first = store.write([PROMPTS[0], PROMPTS[0]], (SETS[0], SETS[0]), 3)
    assert writer.prompts == ["p"]
    assert [questions(group) for group in first] == [["One?", "Two?", "One?"]] * 2  # what can't be read is not kept
    store.write(PROMPTS, SETS, 3)
    assert writer.prompts == ["p", "q"]
    again = StoredRubrics(path).write(PROMPTS, SETS, 4)
    assert [questions(group) for group in again] == [["One?", "Two?", "One?", "Two?"]] * 2
    assert [json.loads(line)["prompt"] for line in path.read_text().splitlines()] == ["p", "q"]


def test_a_prompt_without_a_readable_rubric_is_asked_again(tmp_path):
    writer = Counting(["nonsense"])
    store = StoredRubrics(tmp_path / "rubrics.jsonl", writer)
    for _ in range(2):
        ((draw, other),) = store.write(PROMPTS[:1], SETS[:1], 2)
        assert draw.rubric is other.rubric is None
    assert writer.prompts == ["p", "p"]


def test_another_models_file(tmp_path):
    path = tmp_path / "theirs.jsonl"
    path.write_text('\ufeff{"prompt": "p", "rubrics": ["[3] Theirs?"]}\r\n\r\n')
    assert questions(StoredRubrics(path).write(PROMPTS[:1], SETS[:1], 2)[0]) == ["Theirs?"] * 2
    with pytest.raises(ValueError, match=r"theirs\.jsonl must have rubrics for every prompt, but has none for 'q'"):
        StoredRubrics(path).write(PROMPTS, SETS, 2)


@pytest.mark.parametrize("line", ["{", "[]", '{"prompt": "p"}', '{"prompt": "p", "rubrics": []}', '{"prompt": 3, "rubrics": ["[1] A?"]}'])
def test_a_bad_line_is_named(line, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"prompt": "p", "rubrics": ["[3] Good?"]}\n' + line + "\n")
    with pytest.raises(ValueError, match=r"bad\.jsonl, line 2: must be a JSON object"):
        StoredRubrics(path)


def test_a_prompt_with_other_line_ends_comes_back(tmp_path):
    path = tmp_path / "rubrics.jsonl"
    prompt = Prompt(id="x", messages=({"role": "user", "content": "one\u2028two\x85three\x0c\nfour\r"},))
    StoredRubrics(path, Counting(["[1] One?"])).write([prompt], SETS[:1], 1)
    assert questions(StoredRubrics(path).write([prompt], SETS[:1], 1)[0]) == ["One?"]


def test_no_file_and_no_writer(tmp_path):
    with pytest.raises(FileNotFoundError, match="`path` must be a file of rubrics"):
        StoredRubrics(tmp_path / "none.jsonl")
