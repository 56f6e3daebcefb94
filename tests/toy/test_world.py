import random
import subprocess
import sys

import pytest
import torch

from lightning_dr.gap import score_gap
from lightning_dr.roles import ReferenceRanking, Verifier
from lightning_dr.rules import RuleVerifier
from lightning_dr.toy import TOY_RULES, ToyQuality, ToyVerifier, ToyWorld
from lightning_dr.toy.world import ATTRIBUTES, FILLERS, MAX_WORTH, MIN_WORTH, NUM_ANSWERS, NUM_WORDS, TOPICS, random_response

WORTHS = dict.fromkeys(ATTRIBUTES, 0) | dict(zip(ATTRIBUTES, (3, 2, -1, -2, 0, 1), strict=False))
"""copper 3, rust 2, silk -1, smoke -2, glass 1, the rest 0."""


@pytest.fixture
def world():
    world = ToyWorld()
    world.worths["ocean"] = dict(WORTHS)
    return world


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("copper rust silk calm early plain round slow", 3 + 2 - 1),
        ("copper copper copper rust calm calm calm calm", 3 + 2),  # a repeated word counts once
        ("smoke silk calm early plain round slow tall", -2 - 1),
        ("calm early plain round slow tall quiet north", 0),
        ("coppery Copper copper. unknown", 0),  # other words are worth nothing
        ("", 0),
    ],
)
def test_quality_by_hand(world, response, expected):
    assert world.quality("ocean", response) == expected


def test_best_quality_by_hand(world):
    assert world.best_quality("ocean") == 3 + 2 + 1


@pytest.mark.parametrize("seed", range(20))
def test_every_topic_has_likes_and_dislikes(seed):
    world = ToyWorld(seed=seed)
    assert world.topics == TOPICS
    for worths in world.worths.values():
        assert set(worths) == set(ATTRIBUTES)
        assert all(isinstance(worth, int) and MIN_WORTH <= worth <= MAX_WORTH for worth in worths.values())
        assert min(worths.values()) < 0 < max(worths.values())


def test_worths_follow_the_seed():
    assert ToyWorld(seed=3).worths == ToyWorld(seed=3).worths
    assert ToyWorld(seed=3).worths != ToyWorld(seed=4).worths


def test_best_quality_is_reached_and_never_passed():
    world, rng = ToyWorld(), random.Random(0)
    for topic, worths in world.worths.items():
        liked = sorted((word for word in ATTRIBUTES if worths[word] > 0), key=worths.get, reverse=True)[:NUM_WORDS]
        best = " ".join(liked + [FILLERS[0]] * (NUM_WORDS - len(liked)))
        assert world.quality(topic, best) == world.best_quality(topic)
        assert all(world.quality(topic, random_response(rng)) <= world.best_quality(topic) for _ in range(200))


@pytest.mark.parametrize("num_topics", [0, 9])
def test_number_of_topics_is_checked(num_topics):
    with pytest.raises(ValueError, match=f"`num_topics` must be from 1 to 8, got {num_topics}"):
        ToyWorld(num_topics)


def test_random_response_is_eight_words():
    rng = random.Random(0)
    words = [random_response(rng).split(" ") for _ in range(100)]
    assert {len(response) for response in words} == {NUM_WORDS}
    assert {word for response in words for word in response} == set(ATTRIBUTES + FILLERS)


def test_ranks_of_anchors_agree_with_quality():
    world, rng = ToyWorld(), random.Random(0)
    ties = 0
    for topic in world.topics * 10:
        anchors = world.anchors(topic, rng)
        assert len(anchors.answers) == NUM_ANSWERS == 7
        assert min(anchors.ranks) == 1
        pairs = list(zip(anchors.ranks, (world.quality(topic, answer) for answer in anchors.answers), strict=True))
        for rank, quality in pairs:
            for other_rank, other_quality in pairs:
                assert (rank < other_rank) == (quality > other_quality)
        ties += len(set(anchors.ranks)) < NUM_ANSWERS
    assert ties > 0


def test_a_prompt_names_its_topic():
    world = ToyWorld()
    prompts = [world.prompt(topic) for topic in world.topics]
    assert [world.topic_of(prompt) for prompt in prompts] == list(world.topics)
    assert len({prompt.id for prompt in prompts}) == len(TOPICS)


def test_toy_quality_is_a_reference_ranking(world):
    reference = ToyQuality(world)
    assert isinstance(reference, ReferenceRanking)
    quality = reference.quality(world.prompt("ocean"), ["copper rust", "smoke", "calm"])
    assert quality.tolist() == [5, -2, 0]
    assert quality.dtype == torch.float32


@pytest.mark.parametrize(
    ("question", "response", "verdict"),
    [
        ("Does the response mention copper?", "calm copper slow", 1),
        ("Does the response mention copper?", "calm coppery slow", 0),
        ("Does the response avoid copper?", "calm copper slow", 0),
        ("Does the response avoid copper?", "calm coppery slow", 1),
        ("Does the response avoid copper?", "", 1),
    ],
)
@pytest.mark.parametrize("verifier", [ToyVerifier(), RuleVerifier(TOY_RULES)])
def test_verifier_by_rule(verifier, question, response, verdict):
    assert verifier.verify([ToyWorld().prompt("ocean")], [[response]], [[question]])[0].item() == verdict


@pytest.mark.parametrize(
    "question", ["Is the response short?", "Does the response mention copper and rust?", "Well: Does the response mention copper?", ""]
)
def test_verifier_cannot_read_other_questions(question):
    assert ToyVerifier().verify([ToyWorld().prompt("ocean")], [["copper"]], [[question]])[0].isnan().all()


def test_verifier_shapes():
    world = ToyWorld()
    assert isinstance(ToyVerifier(), Verifier)
    prompts = [world.prompt("ocean"), world.prompt("city")]
    questions = [["Does the response mention rust?"], ["Does the response mention rust?", "Does the response avoid rust?", "Why?"]]
    verdicts = ToyVerifier().verify(prompts, [["rust", "calm"], ["rust"]], questions)
    assert [tuple(verdict.shape) for verdict in verdicts] == [(2, 1), (1, 3)]
    assert {verdict.dtype for verdict in verdicts} == {torch.float32}
    assert verdicts[0].tolist() == [[1], [0]]
    assert verdicts[1][0, :2].tolist() == [1, 0]
    assert verdicts[1][0, 2].isnan()


def test_world_needs_neither_lightning_nor_transformers():
    code = (
        "import sys, lightning_dr.toy.world, lightning_dr.toy.verifier; "
        "found = {'lightning', 'transformers', 'peft'} & set(sys.modules); assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_true_preferences_as_a_rubric_give_a_gap():
    world, rng = ToyWorld(), random.Random(0)
    for topic in world.topics:
        words = {word: worth for word, worth in world.worths[topic].items() if worth}
        texts = [random_response(rng) for _ in range(30)]
        questions = [f"Does the response {'mention' if worth > 0 else 'avoid'} {word}?" for word, worth in words.items()]
        (verdicts,) = ToyVerifier().verify([world.prompt(topic)], [texts], [questions])
        scores = verdicts @ torch.tensor([float(abs(worth)) for worth in words.values()])
        assert score_gap(scores / scores.max(), ToyQuality().quality(world.prompt(topic), texts)) > 0.1
