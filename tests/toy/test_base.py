import random
import statistics

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from lightning_dr.prompts import load_template, render_responses
from lightning_dr.rubric import RubricParseError, parse_rubric
from lightning_dr.toy import BASE, ToyVerifier, ToyWorld
from lightning_dr.toy.build_base import NUM_ITEMS, build, draw_habits, example
from lightning_dr.toy.world import ATTRIBUTES, FILLERS, NUM_WORDS, TOPICS, random_response

FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
WORLD = ToyWorld()


def continuations(model, tokenizer, messages, num, max_new_tokens):
    """Sampled at temperature 1; ``None`` for one that did not end."""
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids = torch.tensor([tokenizer(text)["input_ids"]] * num)
    out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=True, top_k=0, max_new_tokens=max_new_tokens)
    rows = out[:, ids.shape[1] :].tolist()
    return [tokenizer.decode(row[: row.index(tokenizer.eos_token_id)]) if tokenizer.eos_token_id in row else None for row in rows]


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """A model this small is slower on several threads, much slower on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def base():
    return AutoModelForCausalLM.from_pretrained(BASE).eval(), AutoTokenizer.from_pretrained(BASE)


@pytest.fixture(scope="module")
def responses(base):
    """Topic -> samples."""
    torch.manual_seed(0)
    return {topic: continuations(*base, [dict(m) for m in WORLD.prompt(topic).messages], 150, NUM_WORDS + 2) for topic in TOPICS}


@pytest.fixture(scope="module")
def rubrics(base):
    """(Topic, sampled rubric text) pairs for random response sets."""
    torch.manual_seed(0)
    rng, template, pairs = random.Random(0), load_template("toy"), []
    for topic in TOPICS * 3:
        texts = render_responses([random_response(rng) for _ in range(rng.randint(4, 8))])
        messages = template.render(prompt=WORLD.prompt(topic).messages[-1]["content"], responses=texts)
        pairs += [(topic, text) for text in continuations(*base, [dict(m) for m in messages], 24, 20)]
    return pairs


def items_of(text, duplicates="keep"):
    try:
        return parse_rubric(text or "", duplicates=duplicates).items
    except RubricParseError:
        return ()


def answerable(item):
    return not ToyVerifier().verify([WORLD.prompt("ocean")], [["calm"]], [[item.question]])[0].isnan().any()


def test_responses_have_the_form(responses):
    texts = [text for group in responses.values() for text in group]
    known = set(ATTRIBUTES + FILLERS)
    good = [text is not None and len(text.split(" ")) == NUM_WORDS and set(text.split(" ")) <= known for text in texts]
    assert statistics.mean(good) > 0.95


def test_rubrics_are_three_lines_that_the_verifier_answers(rubrics):
    good = [len(items_of(text)) == NUM_ITEMS and all(map(answerable, items_of(text))) for _, text in rubrics]
    assert statistics.mean(good) > 0.95


def test_responses_show_no_preference(responses):
    rng = random.Random(0)
    sampled = statistics.mean(WORLD.quality(topic, text) for topic, group in responses.items() for text in group if text is not None)
    chance = statistics.mean(WORLD.quality(topic, random_response(rng)) for topic in TOPICS for _ in range(1000))
    ceiling = statistics.mean(WORLD.best_quality(topic) for topic in TOPICS)
    assert abs(sampled - chance) < 0.1 * (ceiling - chance)


def test_rubrics_show_no_preference(rubrics):
    signs, worths, weights = [], [], []
    for topic, text in rubrics:
        for item in items_of(text):
            word = item.question.removesuffix("?").split()[-1]
            if word in ATTRIBUTES:
                signs.append(1 if "mention" in item.question else -1)
                worths.append(WORLD.worths[topic][word])
                weights.append(item.weight)
    assert abs(statistics.mean(signs)) < 0.1  # mention and avoid: half each
    assert abs(statistics.mean(weights) - 3) < 0.2
    assert abs(statistics.correlation(signs, worths)) < 0.1


def test_training_text_does_not_depend_on_the_worths():
    habits = draw_habits(1)
    for seed in range(50):
        assert example(random.Random(seed), ToyWorld(seed=0), habits) == example(random.Random(seed), ToyWorld(seed=9), habits)


def test_training_rubrics_are_readable():
    rng, habits, count = random.Random(0), draw_habits(1), 0
    for _ in range(200):
        _, text = example(rng, WORLD, habits)
        if text.startswith("["):
            items = items_of(text, duplicates="reject")
            assert len({item.question.split()[-1] for item in items}) == NUM_ITEMS
            assert all(item.weight in range(1, 6) and answerable(item) for item in items)
            count += 1
    assert 100 < count < 180


def test_builder_is_deterministic(tmp_path):
    losses = [build(tmp_path / name, steps=3, seed=seed, batch_size=4) for name, seed in (("a", 0), ("b", 0), ("c", 1))]
    assert losses[0] == losses[1] != losses[2]
    for name in FILES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert (tmp_path / "a" / "model.safetensors").read_bytes() != (tmp_path / "c" / "model.safetensors").read_bytes()


def test_shipped_files(base):
    model, tokenizer = base
    assert all((BASE / name).is_file() for name in FILES)
    assert sum(file.stat().st_size for file in BASE.iterdir()) < 1_000_000
    assert model.generation_config.eos_token_id == model.config.eos_token_id == tokenizer.eos_token_id
    assert model.config.vocab_size == len(tokenizer)
    assert model.config.max_position_embeddings == 1024
