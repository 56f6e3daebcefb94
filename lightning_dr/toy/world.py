"""The toy world: prompts that name a topic, responses of a few words, hidden preferences.

Each topic gives each attribute word a worth from −2 to 3, two thirds of them the same under most topics; filler words are worth
nothing. The true quality of a response is the sum of the worths of the different attributes that it mentions. Nothing that the models
read tells the worths: only the ranked anchor answers do.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from lightning_dr.records import AnchorList, Completion, Prompt, Responses, RubricDraw, Rubrics
from lightning_dr.rubric import Rubric, RubricItem, render_rubric

TOPICS = ("ocean", "forest", "desert", "city", "winter", "music", "garden", "space")
_SOME = ("copper", "rust", "silk", "smoke", "honey", "glass", "thorn", "amber")
_MORE = ("salt", "velvet", "linen", "cedar", "pearl", "iron", "moss", "wax")
ATTRIBUTES = _SOME + _MORE
FILLERS = ("calm", "early", "plain", "round", "slow", "tall", "quiet", "north", "seven", "open")
NUM_WORDS = 8
NUM_ANSWERS = 7
MIN_WORTH, MAX_WORTH = -2, 3
SHARED_WORTHS = (-2, -2, -2, -1, -1, -1, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3)
"""What the attributes are worth under most topics, in an order that the seed draws."""


class ToyWorld:
    """Hidden preferences of the topics.

    Args:
        num_topics: Topics in use, at most 8.
        seed: Draws the worths.
    """

    def __init__(self, num_topics: int = 8, seed: int = 0) -> None:
        if not 1 <= num_topics <= len(TOPICS):
            raise ValueError(f"`num_topics` must be from 1 to {len(TOPICS)}, got {num_topics}.")
        rng = random.Random(seed)
        self.topics = TOPICS[:num_topics]
        shared = dict(zip(ATTRIBUTES, rng.sample(SHARED_WORTHS, len(ATTRIBUTES)), strict=True))
        self.worths = {topic: self._draw(shared, rng) for topic in self.topics}

    @staticmethod
    def _draw(shared: dict[str, int], rng: random.Random) -> dict[str, int]:
        """Worths of the attributes for one topic: a third of them its own, at least two positive and two negative."""
        while True:
            worths = {word: rng.randint(MIN_WORTH, MAX_WORTH) if rng.random() < 1 / 3 else worth for word, worth in shared.items()}
            values = worths.values()
            if sum(value > 0 for value in values) >= 2 and sum(value < 0 for value in values) >= 2:
                return worths

    def prompt(self, topic: str) -> Prompt:
        """The prompt about a topic."""
        return Prompt(id=f"toy:{topic}", messages=({"role": "user", "content": f"Write about {topic}."},))

    def topic_of(self, prompt: Prompt) -> str:
        """The topic that a prompt names."""
        return prompt.messages[-1]["content"].removeprefix("Write about ").removesuffix(".")

    def quality(self, topic: str, response: str) -> float:
        """True quality: the sum of the worths of the different attributes that the response mentions."""
        words = set(response.split())
        return float(sum(worth for word, worth in self.worths[topic].items() if word in words))

    def best_quality(self, topic: str) -> float:
        """The highest quality that a response of the usual length can have."""
        return float(sum(sorted((worth for worth in self.worths[topic].values() if worth > 0), reverse=True)[:NUM_WORDS]))

    def worst_quality(self, topic: str) -> float:
        """The lowest quality that a response of the usual length can have."""
        return float(sum(sorted(worth for worth in self.worths[topic].values() if worth < 0)[:NUM_WORDS]))

    def anchors(self, topic: str, rng: random.Random) -> AnchorList:
        """Random answers ranked by true quality; equal quality shares the better rank."""
        answers = [random_response(rng) for _ in range(NUM_ANSWERS)]
        qualities = [self.quality(topic, answer) for answer in answers]
        ranks = tuple(float(1 + sum(other > quality for other in qualities)) for quality in qualities)
        return AnchorList(answers=tuple(answers), ranks=ranks)


def random_response(rng: random.Random) -> str:
    """A response of the usual form: any eight words."""
    return " ".join(rng.choices(ATTRIBUTES + FILLERS, k=NUM_WORDS))


class ToyQuality:
    """True quality in the toy world: the reference ranking, and the best of all evaluators.

    Args:
        world: By default the world of the default data module.
    """

    def __init__(self, world: ToyWorld | None = None) -> None:
        self.world = world or ToyWorld()

    def quality(self, prompt: Prompt, responses: Sequence[str]) -> Tensor:
        """True quality of each response ``[len(responses)]``."""
        topic = self.world.topic_of(prompt)
        return torch.tensor([self.world.quality(topic, response) for response in responses])

    def scores(self, prompts: Sequence[Prompt], responses: Sequence[Sequence[str]]) -> list[Tensor]:
        """The same from 0 to 1, the worst and the best response of the usual length."""
        out = []
        for prompt, texts in zip(prompts, responses, strict=True):
            topic = self.world.topic_of(prompt)
            low, high = self.world.worst_quality(topic), self.world.best_quality(topic)
            out.append((self.quality(prompt, texts) - low) / (high - low))
        return out


class ToyRubrics:
    """A rubric writer that knows the true preferences of the toy world, as an ideal generator does.

    Args:
        max_items: Items of a rubric, those of the attributes whose worth is farthest from 0.
        world: By default the world of the default data module.
    """

    def __init__(self, max_items: int = len(ATTRIBUTES), world: ToyWorld | None = None) -> None:
        if max_items < 1:
            raise ValueError(f"`max_items` must be at least 1, got {max_items}.")
        self.max_items = max_items
        self.world = world or ToyWorld()

    def rubric(self, topic: str) -> Rubric:
        """The true preferences of a topic as items."""
        worths = sorted(((word, worth) for word, worth in self.world.worths[topic].items() if worth), key=lambda pair: -abs(pair[1]))
        return Rubric(
            tuple(
                RubricItem(f"Does the response {'mention' if worth > 0 else 'avoid'} {word}?", float(abs(worth)))
                for word, worth in worths[: self.max_items]
            )
        )

    def write(self, prompts: Sequence[Prompt], responses: Responses, num_rubrics: int) -> Rubrics:
        """The same rubric ``num_rubrics`` times."""
        rubrics = [self.rubric(self.world.topic_of(prompt)) for prompt in prompts]
        return tuple((RubricDraw(completion=Completion(text=render_rubric(rubric)), rubric=rubric),) * num_rubrics for rubric in rubrics)
