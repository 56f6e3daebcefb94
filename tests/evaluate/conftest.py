import json
import random

import pytest

from lightning_dr.toy.world import ToyWorld


@pytest.fixture(scope="session")
def toy_lists(tmp_path_factory):
    """Ranked lists of the toy world in Nectar's schema."""
    world, rng = ToyWorld(), random.Random(5)
    path = tmp_path_factory.mktemp("lists") / "toy.jsonl"
    with path.open("w") as file:
        for number in range(40):
            topic = world.topics[number % len(world.topics)]
            ranked = world.anchors(topic, rng)
            answers = [{"answer": answer, "rank": rank} for answer, rank in zip(ranked.answers, ranked.ranks, strict=True)]
            file.write(json.dumps({"prompt": world.prompt(topic).messages[-1]["content"], "answers": answers}) + "\n")
    return path
