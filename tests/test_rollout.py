from dataclasses import replace

import pytest
import torch

from lightning_dr.diagnostics import round_metrics
from lightning_dr.rewards import anchor_agreement
from lightning_dr.rollout import Roles, RoundConfig, VerifierFailureError, collect_round
from lightning_dr.testing import ScriptedResponder, ScriptedVerifier, ScriptedWriter, scripted_batch

TEXTS = ["a b", "a", "b", ""]
RUBRICS = ["[3] Has a?\n[1] Has b?", "[1] Has a?", "nonsense"]


def has(question, text):
    return question[4] in text


def run(
    rubrics=RUBRICS,
    texts=TEXTS,
    answer=has,
    answers=("a b", "a", "c"),
    ranks=(1.0, 2.0, 3.0),
    evaluator=None,
    hook=None,
    evaluator_anchors=False,
    **config,
):
    verifier = ScriptedVerifier(answer)
    roles = Roles(
        responder=ScriptedResponder(texts),
        writer=ScriptedWriter(rubrics),
        verifier=verifier,
        evaluator_writer=None if evaluator is None else ScriptedWriter(evaluator),
    )
    sizes = {"num_responses": len(texts), "num_rubrics": len(rubrics)}
    batch = scripted_batch(1, answers, ranks)
    more = {"hook": hook} if hook else {}
    round_ = collect_round(batch, roles, RoundConfig(**sizes | config), evaluator_anchors=evaluator_anchors, **more)
    return round_, verifier


def test_hand_worked_round():
    round_, _ = run()
    # rubric 0: weights 3 and 1: a b -> 1, a -> 3/4, b -> 1/4, "" -> 0; rubric 1: 1, 1, 0, 0; rubric 2 can't be read
    assert round_.live.scores_BGK[0, :2].tolist() == [[1.0, 0.75, 0.25, 0.0], [1.0, 1.0, 0.0, 0.0]]
    assert round_.scores_BK[0].tolist() == [1.0, 0.875, 0.125, 0.0]
    # every p is 1/2
    assert round_.live.disc_BG[0, :2].tolist() == [0.25, 0.25]
    assert round_.live.anchor_scores_BGR[0, 0].tolist() == [1.0, 0.75, 0.0]
    want = anchor_agreement(torch.tensor([1.0, 0.75, 0.0]), torch.tensor([1.0, 2.0, 3.0]))
    torch.testing.assert_close(round_.live.anchor_BG[0, 0], want)
    assert round_.live.format_BG[0].tolist() == [0.0, 0.0, -1.0]


def test_an_unreadable_rubric_costs_the_generator_and_nobody_else():
    with_bad, _ = run()
    without, _ = run(rubrics=RUBRICS[:2])
    torch.testing.assert_close(with_bad.scores_BK, without.scores_BK)
    torch.testing.assert_close(with_bad.policy_advantages_BK, without.policy_advantages_BK)
    advantages = with_bad.generator_advantages_BG[0]
    assert bool(with_bad.generator_valid_BG.all())
    assert advantages[2] == advantages.min() < advantages[:2].min()


@pytest.mark.parametrize("combine", ["advantages", "rewards"])
def test_an_unreadable_rubric_is_worse_than_the_worst_readable_one_even_without_other_rewards(combine):
    round_, _ = run(rubrics=["[1] Has z?", "[1] Has y?", "x"], combine=combine)  # no discriminability, all ties
    advantages = round_.generator_advantages_BG[0]
    assert advantages[2] < advantages[0]
    assert advantages[0] == advantages[1]


def test_an_unreadable_verdict_costs_nobody_and_helps_nobody():
    round_, _ = run(answer=lambda q, t: None if (q, t) == ("Has b?", "a") else has(q, t))
    # for the response "a" the item b counts as its mean over the others, 2/3: (3 + 2/3) / 4
    assert round_.live.scores_BGK[0, 0].tolist() == pytest.approx([1.0, 11 / 12, 0.25, 0.0])
    assert round_.live.scores_BGK[0, 1].tolist() == [1.0, 1.0, 0.0, 0.0]
    assert bool(round_.policy_valid_BK.all())
    assert 0 < round_.live.verdict_failures < 0.2


def test_a_response_that_a_strict_rubric_did_not_score_does_not_beat_its_equals():
    texts = ["a b", "a c", "a d", ""]
    rubrics = ["[1] Has a?", "[1] Has b?"]
    missing = lambda q, t: None if (q, t) == ("Has b?", "a d") else has(q, t)  # noqa: E731
    round_, _ = run(rubrics=rubrics, texts=texts, answer=missing)
    # "a d" gets the mean of the second rubric over the others, 1/3; left out, its score would be 1, as that of "a b"
    assert round_.scores_BK[0].tolist() == pytest.approx([1.0, 0.5, (1 + 1 / 3) / 2, 0.0])


def test_an_anchor_answer_without_verdicts_earns_the_rubric_nothing():
    # all other scores are equal, so J_anchor is that of seven equal scores, however many answers were read
    answers = [f"z{n}" for n in range(7)]
    silent = lambda q, t: None if (q, t) == ("Has a?", "z3") else has(q, t)  # noqa: E731
    round_, _ = run(answer=silent, answers=answers, ranks=range(1, 8))
    assert round_.live.anchor_BG[0, 0].item() == pytest.approx(-3.0961, abs=1e-4)
    assert round_.live.anchor_BG[0, 1].item() == pytest.approx(-3.0961, abs=1e-4)


def test_sums_of_rewards_leave_out_a_rubric_without_the_anchor_reward_that_others_have():
    # the second rubric is not read for the ranked answers; counted as 0, its J_anchor would be the best of all
    silent = lambda q, t: None if q == "Has b?" and t.startswith("!") else has(q, t)  # noqa: E731
    round_, _ = run(rubrics=["[1] Has a?", "[1] Has b?", "[1] Has z?"], answer=silent, answers=("!a", "!b", "!"), combine="rewards")
    assert torch.isnan(round_.live.anchor_BG[0, 1])
    assert round_.generator_valid_BG[0].tolist() == [True, False, True]
    assert round_.generator_advantages_BG[0].tolist() == [1.0, 0.0, -1.0]
    no_lists, _ = run(rubrics=["[1] Has a?", "[1] Has b?", "[1] Has z?"], answers=None, combine="rewards")
    assert bool(no_lists.generator_valid_BG.all())


def test_a_verifier_that_is_unsure_of_everything_earns_no_discriminability():
    unsure = lambda q, t: 0.5 if q == "Has a?" else float(has(q, t))  # noqa: E731
    round_, _ = run(rubrics=["[1] Has a?", "[1] Has b?"], answer=unsure)
    assert round_.live.disc_BG[0].tolist() == [0.0, 0.25]
    assert round_metrics(round_)["generator/dead_items"] == 0.5
    literal, _ = run(rubrics=["[1] Has a?", "[1] Has b?"], answer=unsure, disc_spread="bernoulli")
    assert literal.live.disc_BG[0].tolist() == [0.25, 0.25]


def test_a_rubric_without_a_single_verdict_leaves_the_update():
    round_, _ = run(answer=lambda q, t: None if q == "Has b?" else has(q, t), rubrics=["[1] Has a?", "[1] Has b?", "[1] Has c?"])
    assert round_.generator_valid_BG[0].tolist() == [True, False, True]
    assert round_.generator_advantages_BG[0, 1] == 0


def test_too_many_failures_stop_the_run():
    with pytest.raises(VerifierFailureError, match="100% of the verdicts on the live rubrics can't be read"):
        run(answer=lambda q, t: None)


def test_the_verifiers_own_exception_goes_up():
    def broken(question, text):
        raise MemoryError("out of memory")

    with pytest.raises(MemoryError):
        run(answer=broken)


def test_all_rubrics_unreadable_takes_the_prompt_out_of_the_policy_update():
    round_, verifier = run(rubrics=["x", "y", "z"])
    assert not round_.policy_valid_BK.any()
    assert not round_.policy_advantages_BK.any()
    assert not round_.generator_advantages_BG.any()
    assert not verifier.asked
    assert round_metrics(round_)["policy/prompts_without_score"] == 1.0
    assert round_metrics(round_)["generator/unreadable"] == 1.0


def test_equal_items_are_asked_once():
    _, verifier = run(rubrics=["[3] Has a?\n[1] Has b?", "[1] Has a?"])
    assert len(verifier.asked) == 2 * (4 + 3)


def test_a_repeated_item_earns_and_scores_nothing():
    twice, _ = run(rubrics=["[3] Has a?\n[5] has a?\n[1] Has b?", "[1] Has a?"], answer=lambda q, t: q[4] in t)
    once, _ = run(rubrics=["[3] Has a?\n[1] Has b?", "[1] Has a?"])
    torch.testing.assert_close(twice.scores_BK, once.scores_BK)
    torch.testing.assert_close(twice.live.disc_BG, once.live.disc_BG)
    assert round_metrics(twice)["generator/repeated_items"] == pytest.approx(1 / 4)


def test_parted_draws():
    round_, _ = run(rubrics=["[1] Has a?", "[1] Has b?"], evaluator=["[1] Has b?", "[1] Has b?"])
    assert round_.parted
    assert round_.scores_BK[0].tolist() == [1.0, 0.0, 1.0, 0.0]
    # the generator is rewarded for its own rubrics
    assert round_.live.anchor_scores_BGR[0, 0].tolist() == [1.0, 1.0, 0.0]


def test_parted_draws_on_the_anchor_lists():
    parts = {"rubrics": ["[1] Has b?", "[1] Has b?"], "evaluator": ["[1] Has a?", "[1] Has a?"]}
    round_, _ = run(**parts)
    assert round_.evaluator.anchor_scores_BGR.shape == (1, 2, 0)
    assert torch.isnan(round_.evaluator.anchor_BG).all()
    assert round_.evaluator.disc_BG[0].tolist() == [0.25, 0.25]
    both, _ = run(**parts, evaluator_anchors=True)
    assert both.live.anchor_scores_BGR[0, 0].tolist() == [1.0, 0.0, 0.0]
    assert both.evaluator.anchor_scores_BGR[0, 0].tolist() == [1.0, 1.0, 0.0]
    assert round_metrics(both)["evaluator/parted"] == 1.0


def test_a_prompt_without_a_list_earns_no_anchor_reward():
    round_, _ = run(rubrics=["[1] Has a?", "[1] Has z?"], answers=None)
    assert torch.isnan(round_.live.anchor_BG).all()
    assert round_.generator_advantages_BG[0].tolist() == [1.0, -1.0]
    assert "gap/anchor" not in round_metrics(round_)


@pytest.mark.parametrize(("rule", "valid", "reward"), [("score", True, 0.875), ("mask", False, 0.875), ("floor", True, 0.0)])
def test_cut_responses(rule, valid, reward):
    round_, _ = run(texts=["a b", "a…", "b", ""], truncated_responses=rule)
    assert round_.policy_valid_BK[0, 1] == valid
    assert round_.policy_rewards_BK[0, 1] == reward
    assert (round_.policy_advantages_BK[0, 1] == 0) == (not valid)


def test_the_floor_never_raises_a_cut_response():
    round_, _ = run(texts=["a b", "a", "b", "…"], truncated_responses="floor")
    assert round_.policy_rewards_BK[0].tolist() == round_.scores_BK[0].tolist()
    assert round_.policy_rewards_BK[0, 3] == 0.0


def test_parts_of_the_reward():
    rubrics = ["[1] Has a?", "[1] Has c?", "[1] Has z?"]  # c: ranks the worst first; z: no variance
    disc, _ = run(rubrics=rubrics, texts=["a c", "c", "", ""], anchor_weight=0.0)
    anchor, _ = run(rubrics=rubrics, texts=["a c", "c", "", ""], disc_weight=0.0)
    assert disc.generator_advantages_BG[0].argmax() == 1
    assert anchor.generator_advantages_BG[0].argmax() == 0


def test_hooks_see_each_stage_and_may_replace_it():
    names = []

    def hook(name, round_):
        names.append(name)
        if name == "on_scores":
            return replace(round_, scores_BK=torch.tensor([[0.0, 1.0, 0.0, 0.0]]))
        return round_

    round_, _ = run(hook=hook)
    assert names == ["on_responses", "on_rubrics", "on_verdicts", "on_scores", "on_rewards", "on_advantages"]
    assert round_.policy_advantages_BK[0].argmax() == 1
    assert set(round_.seconds) == {name.removeprefix("on_") for name in names}


def test_verifier_of_the_wrong_shape_is_named():
    class Wrong(ScriptedVerifier):
        def verify(self, prompts, responses, questions):
            return [torch.zeros(1, 1)]

    roles = Roles(responder=ScriptedResponder(TEXTS), writer=ScriptedWriter(RUBRICS), verifier=Wrong(has))
    with pytest.raises(ValueError, match=r"must return verdicts of shape \(4, 2\)"):
        collect_round(scripted_batch(), roles, RoundConfig(num_responses=4, num_rubrics=3))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_responses": 1}, "`num_responses` must be at least 2"),
        ({"anchor_weight": -1.0}, "`anchor_weight` must be at least 0"),
        ({"combine": "sum"}, "`combine` must be one of"),
        ({"truncated_responses": "x"}, "`truncated_responses` must be one of"),
        ({"max_verdict_failures": 2.0}, "`max_verdict_failures` must be in"),
        ({"anchor_temperature": 0.0}, "`anchor_temperature` must be positive"),
    ],
)
def test_bad_config(kwargs, message):
    with pytest.raises(ValueError, match=message):
        RoundConfig(**kwargs)


class Fixed:
    """An evaluator: the number of letters."""

    def scores(self, prompts, responses):
        return [torch.tensor([len(text) / 10 for text in texts]) for texts in responses]


class Letters:
    def quality(self, prompt, responses):
        return torch.tensor([float(len(text)) for text in responses])


def supervised(writer=None, anchors=False, **config):
    roles = Roles(responder=ScriptedResponder(TEXTS), writer=writer, verifier=ScriptedVerifier(has), evaluator=Fixed())
    settings = RoundConfig(num_responses=4, num_rubrics=3, **config)
    return collect_round(scripted_batch(2, ("aaa", "a"), (1.0, 2.0)), roles, settings, evaluator_anchors=anchors)


def test_an_evaluator_scores_the_policy_and_nobody_writes():
    round_ = supervised()
    assert round_.live is None
    assert round_.evaluator is None
    assert round_.parted
    torch.testing.assert_close(round_.scores_BK, torch.tensor([[0.3, 0.1, 0.1, 0.0]] * 2))
    torch.testing.assert_close(round_.policy_advantages_BK.sum(-1), torch.zeros(2))
    assert round_.policy_advantages_BK[0].argmax() == 0
    assert round_.generator_advantages_BG is None
    metrics = round_metrics(round_)
    assert metrics["policy/score"] == pytest.approx(0.125)
    assert not any(name.startswith(("generator/", "verifier/")) for name in metrics)
    assert supervised(anchors=True).anchor_scores_BR.tolist() == [pytest.approx([0.3, 0.1])] * 2


def test_a_writer_beside_an_evaluator_learns_from_its_own_rubrics():
    round_ = supervised(ScriptedWriter(RUBRICS))
    alone, _ = run()
    torch.testing.assert_close(round_.generator_advantages_BG[:1], run(answers=("aaa", "a"), ranks=(1.0, 2.0))[0].generator_advantages_BG)
    assert round_.scores_BK[0].tolist() != alone.scores_BK[0].tolist()


def test_roles_that_do_not_fit():
    parts = {"responder": ScriptedResponder(TEXTS), "verifier": ScriptedVerifier(has)}
    with pytest.raises(ValueError, match="`evaluator` and `evaluator_writer` must not both be given"):
        Roles(**parts, writer=None, evaluator=Fixed(), evaluator_writer=ScriptedWriter(RUBRICS))
    with pytest.raises(ValueError, match="`writer` must be given where no `evaluator` is"):
        Roles(**parts, writer=None)


def test_the_score_gap_as_a_reward():
    rubrics = ["[1] Has a?", "[1] Has b?", "nonsense"]
    responder, writer = ScriptedResponder(["aaa", "a", "b", ""]), ScriptedWriter(rubrics)
    roles = Roles(responder=responder, writer=writer, verifier=ScriptedVerifier(has), reference=Letters())
    weights = {"disc_weight": 0.0, "anchor_weight": 0.0, "format_weight": 0.0, "gap_weight": 2.0}
    round_ = collect_round(scripted_batch(1), roles, RoundConfig(num_responses=4, num_rubrics=3, scale="none", **weights))
    # ordered pairs: aaa > a, aaa > b, aaa > "", a > "", b > "": "Has a?" gets 0 + 1 + 1 + 1 + 0, "Has b?" gets 0 - 1 + 0 + 0 + 1
    assert round_.live.gap_BG[0, :2].tolist() == pytest.approx([0.6, 0.0])
    # the unreadable rubric has the floor of its group
    assert round_.generator_advantages_BG[0].tolist() == pytest.approx([0.8, -0.4, -0.4])
    assert run()[0].live.gap_BG is None
