import pytest
import torch

from lightning_dr.evaluation import RubricEvaluator
from lightning_dr.evaluators import EvaluatorRanking, LengthEvaluator, VerifiableCorrectness
from lightning_dr.records import Prompt
from lightning_dr.roles import Evaluator, ReferenceRanking
from lightning_dr.testing import ScriptedVerifier, ScriptedWriter
from lightning_dr.toy import ToyQuality, ToyRubrics, ToyVerifier, ToyWorld
from lightning_dr.toy.world import NUM_WORDS

PROMPTS = [Prompt(id=name, messages=({"role": "user", "content": name},)) for name in ("p", "q", "r")]
SETS = [["a b", "a", ""], ["b"], ["", "a", "b"]]


def has(question, text):
    return question[4] in text


def test_rubric_evaluator_scores_sets_of_different_size():
    evaluator = RubricEvaluator(ScriptedWriter(["[3] Has a?\n[1] Has b?", "[1] Has a?"]), ScriptedVerifier(has), num_rubrics=2)
    found = evaluator.scores(PROMPTS, SETS)
    # means of (3 a + b) / 4 and a
    assert [scores.tolist() for scores in found] == [[1.0, 0.875, 0.0], [0.125], [0.0, 0.875, 0.125]]


def test_a_set_without_a_readable_rubric_has_no_score():
    evaluator = RubricEvaluator(ScriptedWriter(["nonsense"]), ScriptedVerifier(has))
    assert all(scores.isnan().all() for scores in evaluator.scores(PROMPTS, SETS))


@pytest.mark.parametrize(
    "evaluator", [LengthEvaluator(), ToyQuality(), RubricEvaluator(ToyRubrics(), ToyVerifier())], ids=lambda e: type(e).__name__
)
def test_evaluators_score_from_0_to_1(evaluator):
    assert isinstance(evaluator, Evaluator)
    world = ToyWorld()
    texts = ["copper silk honey amber pearl moss wax iron", "calm", "rust " * NUM_WORDS]
    (scores,) = evaluator.scores([world.prompt("ocean")], [texts])
    assert scores.shape == (3,)
    assert scores.dtype == torch.float32
    assert ((scores >= 0) & (scores <= 1)).all()


def test_the_oracle_rubric_with_all_items_orders_as_true_quality():
    world = ToyWorld()
    texts = [" ".join(words) for words in (("copper", "silk"), ("rust",), ("honey", "amber", "wax"), ("moss", "iron"), ("calm",))]
    for topic in world.topics:
        prompt = world.prompt(topic)
        (rubric,) = RubricEvaluator(ToyRubrics(), ToyVerifier()).scores([prompt], [texts])
        quality = ToyQuality().quality(prompt, texts)
        # the rubric's score is an affine function of the quality
        assert torch.corrcoef(torch.stack([rubric, quality]))[0, 1] > 0.9999
    assert len(ToyRubrics(max_items=3).rubric("ocean").items) == 3
    worths = sorted((abs(worth) for worth in world.worths["ocean"].values()), reverse=True)
    assert [item.weight for item in ToyRubrics(max_items=3).rubric("ocean").items] == worths[:3]


def test_length():
    (scores,) = LengthEvaluator(half=10).scores(PROMPTS[:1], [["", "x" * 10, "x" * 30]])
    assert scores.tolist() == [0.0, 0.5, 0.75]
    with pytest.raises(ValueError, match="`half` must be positive, got 0"):
        LengthEvaluator(half=0)


def test_another_evaluator_as_the_reference():
    ranking = EvaluatorRanking(LengthEvaluator())
    assert isinstance(ranking, ReferenceRanking)
    assert ranking.quality(PROMPTS[0], ["xx", "x"]).argmax() == 0


def test_verifiable_correctness(tmp_path):
    path = tmp_path / "ifeval.jsonl"
    row = (
        '{"prompt": "p", "instruction_id_list": ["punctuation:no_comma", "change_case:english_lowercase"], "kwargs": [{}, {}]}\n'
        '{"prompt": "q", "instruction_id_list": ["language:response_language"], "kwargs": [{"language": "de"}]}\n'
    )
    path.write_text(row)
    reference = VerifiableCorrectness(str(path))
    assert isinstance(reference, ReferenceRanking)
    assert reference.quality(PROMPTS[0], ["all small", "Large, one", "small, one"]).tolist() == [1.0, 0.0, 0.5]
    assert reference.quality(PROMPTS[1], ["x"]).isnan().all()  # no rule reads it
    assert reference.quality(PROMPTS[2], ["x"]).isnan().all()  # not in the file
    path.write_text(row + '{"prompt": "r"}\n')
    with pytest.raises(ValueError, match=r"ifeval\.jsonl, line 3: must be a row of IFEval"):
        VerifiableCorrectness(str(path))
