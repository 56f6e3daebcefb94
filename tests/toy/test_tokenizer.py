import random

import pytest
from transformers import AutoTokenizer

from lightning_dr.prompts import load_template, render_responses
from lightning_dr.rubric import Rubric, RubricItem, render_rubric
from lightning_dr.toy import BASE, ToyWorld
from lightning_dr.toy.tokenizer import build_tokenizer, vocabulary
from lightning_dr.toy.world import ATTRIBUTES, FILLERS, TOPICS, random_response


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


def texts():
    """Every kind of text of the world: prompts, responses, response sets, rubrics."""
    rng, world = random.Random(0), ToyWorld()
    for topic in TOPICS:
        prompt = world.prompt(topic).messages[-1]["content"]
        responses = [random_response(rng) for _ in range(16)]
        yield prompt
        yield from responses
        yield load_template("toy").render(prompt=prompt, responses=render_responses(responses))[0]["content"]
    for word in ATTRIBUTES + FILLERS:
        items = (RubricItem(f"Does the response {kind} {word}?", rng.randint(1, 5)) for kind in ("mention", "avoid"))
        yield render_rubric(Rubric(tuple(items)))


@pytest.mark.parametrize("text", list(texts()))
def test_round_trip(tokenizer, text):
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.unk_token_id not in ids
    assert tokenizer.decode(ids) == text


def test_loads_back_without_trust(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path, trust_remote_code=False)
    messages = [{"role": "user", "content": "Write about ocean."}]
    assert loaded.apply_chat_template(messages, tokenize=False) == tokenizer.apply_chat_template(messages, tokenize=False)
    assert loaded.get_vocab() == tokenizer.get_vocab()
    for text in texts():
        assert loaded(text)["input_ids"] == tokenizer(text)["input_ids"]
        assert loaded.decode(loaded(text)["input_ids"]) == text


def test_the_shipped_tokenizer_is_this_one(tokenizer):
    shipped = AutoTokenizer.from_pretrained(BASE)
    assert shipped.get_vocab() == tokenizer.get_vocab() == vocabulary()
    assert shipped.chat_template == tokenizer.chat_template


def test_special_tokens(tokenizer):
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.pad_token == "<|pad|>"
    assert tokenizer.eos_token_id != tokenizer.pad_token_id
    assert tokenizer.bos_token_id is None
    assert tokenizer("zebra")["input_ids"] == [tokenizer.unk_token_id]


def test_a_rubric_item_is_short(tokenizer):
    line = "[3] Does the response mention copper?\n"
    # [3] · Does the response mention · copper · ? · newline
    assert tokenizer.convert_ids_to_tokens(tokenizer(line)["input_ids"]) == ["[3]", " Does the response mention", " copper", "?", "\n"]


@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_chat_template(tokenizer, role):
    messages = [{"role": role, "content": "Write about ocean."}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == f"<|im_start|>{role}\nWrite about ocean.<|im_end|>\n<|im_start|>assistant\n"
    tokens = tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"])
    assert tokens[:3] == ["<|im_start|>", role, "\n"]
    assert tokens[-3:] == ["<|im_start|>", "assistant", "\n"]
    assert "<|unk|>" not in tokens
    assert tokenizer.apply_chat_template(messages, tokenize=False) == text.removesuffix("<|im_start|>assistant\n")


def test_chat_template_continues_a_prefill(tokenizer):
    messages = [{"role": "user", "content": "Write about ocean."}, {"role": "assistant", "content": "[3]"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, continue_final_message=True)
    assert text.endswith("<|im_start|>assistant\n[3]")
