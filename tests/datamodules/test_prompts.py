import json

import datasets
import pytest

from lightning_dr.datamodules import BadRowError, PromptDataModule, sources


@pytest.fixture
def build(tmp_path):
    def build(cells, column="prompt", kind="jsonl", **kwargs):
        path = tmp_path / f"asks.{kind}"
        rows = [{column: cell} for cell in cells]
        if kind == "parquet":
            datasets.Dataset.from_list(rows).to_parquet(str(path))
        else:
            path.write_text(json.dumps(rows) if kind == "json" else "\n".join(json.dumps(row) for row in rows) + "\n")
        return PromptDataModule(str(path), prompt_column=column, **{"batch_size": 1} | kwargs)

    return build


def ids(module):
    return {prompt.id for index in range(len(module.train_rows)) for prompt in module.batch(index).prompts}


@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet"])
def test_ids_are_the_source_and_the_row(kind, build):
    module = build(["a", "b", "c"], kind=kind)
    module.setup("fit")
    assert ids(module) == {"asks:0", "asks:1", "asks:2"}


def test_ids_do_not_depend_on_what_is_left_out(build):
    module = build(["a", "much too long", "c"], max_prompt_chars=3)
    module.setup("fit")
    assert ids(module) == {"asks:0", "asks:2"}


def test_from_the_hub_by_name(monkeypatch):
    calls = []

    def load(path, **kwargs):
        calls.append((path, kwargs))
        return datasets.Dataset.from_list([{"instruction": "a"}, {"instruction": "b"}])

    monkeypatch.setattr(sources.datasets, "load_dataset", load)
    module = PromptDataModule("owner/asks", split="test", revision="abc", prompt_column="instruction", batch_size=2)
    module.setup("fit")
    assert calls == [("owner/asks", {"name": None, "split": "test", "revision": "abc"})]
    assert ids(module) == {"asks:0", "asks:1"}


def test_chat_messages_are_kept_as_they_are(build):
    messages = [{"role": "user", "content": " a\n"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    module = build([messages])
    module.setup("fit")
    assert module.batch(0).prompts[0].messages == tuple(messages)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("", "`question` has an empty turn"),
        (3, "`question` is neither text nor a list of messages"),
        ("\n\nHuman: a\n\nHuman: b\n\nAssistant: ", "`question` has two turns of the same speaker"),
        ([{"role": "assistant", "content": "a"}], "`question` does not end with a turn of the user"),
        ([{"role": "human", "content": "a"}], "`question` has a role that is not one of system, user, assistant"),
        ([{"role": "user", "content": None}], "`question` has an empty turn"),
        ([{"role": "user"}], "`question` is neither text nor a list of messages|`question` has an empty turn"),
    ],
)
def test_a_bad_cell_is_named_by_its_column_or_skipped(cell, message, build, caplog):
    with pytest.raises(BadRowError, match=rf"asks\.jsonl, row 2: ({message}).*`bad_rows: skip`"):
        build(["fine", cell], column="question").setup("fit")
    module = build(["fine", cell], column="question", bad_rows="skip")
    with caplog.at_level("WARNING"):
        module.setup("fit")
    assert module.train_rows == [0]
    assert "1 of 2 rows left out" in caplog.text


def test_held_out_prompts_are_never_trained_on(build):
    module = build([str(number) for number in range(9)], num_val=4, batch_size=2, seed=3)
    module.setup("fit")
    held = [prompt.id for batch in module.val_dataloader() for prompt in batch.prompts]
    trained = {prompt.id for index in range(20) for prompt in module.batch(index).prompts}
    assert len(set(held)) == 4
    assert len(trained) == 5
    assert not set(held) & trained


def test_missing_file():
    with pytest.raises(FileNotFoundError, match=r"`path` must be a file .* got 'nowhere\.parquet'"):
        PromptDataModule("nowhere.parquet").setup("fit")
