import math

import pytest
import torch

from lightning_dr.objectives import ObjectiveConfig, clipped_surrogate, kl_estimate, token_weights


def test_hand_worked():
    # ratios 1.5, 0.5, 1.5, 0.5; advantages 1, 1, -1, -1; clip 0.2:
    # min(1.5, 1.2) = 1.2; min(0.5, 0.8) = 0.5; min(-1.5, -1.2) = -1.5; min(-0.5, -0.8) = -0.8; sum -0.6, mean -0.15
    old = torch.zeros(4)
    new = torch.tensor([1.5, 0.5, 1.5, 0.5]).log()
    loss, metrics = clipped_surrogate(new, old, torch.tensor([1.0, 1, -1, -1]), torch.full((4,), 0.25), ObjectiveConfig())
    assert loss.item() == pytest.approx(0.15)
    assert metrics["clip_fraction"].item() == pytest.approx(0.5)  # the first and the last
    assert metrics["ratio"].item() == pytest.approx(1.0)


def test_asymmetric_clip():
    new = torch.tensor([1.5]).log()
    loss, _ = clipped_surrogate(new, torch.zeros(1), torch.ones(1), torch.ones(1), ObjectiveConfig(clip_high=0.4))
    assert loss.item() == pytest.approx(-1.4)


def test_kl_term():
    # log r = -1 - (-2) = 1: e - 1 - 1
    assert kl_estimate(torch.tensor(-2.0), torch.tensor(-1.0)).item() == pytest.approx(math.e - 2)
    config = ObjectiveConfig(kl_weight=0.5)
    loss, metrics = clipped_surrogate(
        torch.tensor([-2.0]), torch.tensor([-2.0]), torch.zeros(1), torch.ones(1), config, torch.tensor([-1.0])
    )
    assert loss.item() == pytest.approx(0.5 * (math.e - 2))
    assert metrics["kl"].item() == pytest.approx(math.e - 2)
    with pytest.raises(ValueError, match="`reference_logprobs` must be given"):
        clipped_surrogate(torch.zeros(1), torch.zeros(1), torch.zeros(1), torch.ones(1), config)


def test_gradient_at_ratio_one_is_the_policy_gradient():
    logits = torch.randn(5, 7, requires_grad=True)
    token = torch.tensor([0, 3, 2, 6, 1])
    logprobs = logits.log_softmax(-1)[torch.arange(5), token]
    advantages, weights = torch.tensor([1.0, -0.5, 0.2, 0.0, 2.0]), torch.full((5,), 0.2)
    loss, _ = clipped_surrogate(logprobs, logprobs.detach(), advantages, weights, ObjectiveConfig())
    (got,) = torch.autograd.grad(loss, logits, retain_graph=True)
    (want,) = torch.autograd.grad(-(weights * advantages * logprobs).sum(), logits)
    torch.testing.assert_close(got, want)


def test_token_weights():
    lengths, valid = torch.tensor([2, 3, 5]), torch.tensor([True, True, False])
    assert token_weights(lengths, valid, "token").tolist() == pytest.approx([0.2, 0.2, 0.0])
    assert token_weights(lengths, valid, "sequence").tolist() == pytest.approx([1 / 4, 1 / 6, 0.0])
    for kind in ("token", "sequence"):
        weights = token_weights(lengths, valid, kind)
        assert (weights * lengths * valid).sum().item() == pytest.approx(1.0)
        assert token_weights(lengths, torch.zeros(3, dtype=torch.bool), kind).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"clip_low": 1.5}, "`clip_low` must be in"),
        ({"clip_high": -0.1}, "`clip_high` must be at least 0"),
        ({"kl_weight": -1.0}, "`kl_weight` must be at least 0"),
        ({"aggregation": "mean"}, "`aggregation` must be one of"),
        ({"dead_groups": "mask"}, "`dead_groups` must be one of"),
    ],
)
def test_bad_config(kwargs, message):
    with pytest.raises(ValueError, match=message):
        ObjectiveConfig(**kwargs)


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="`advantages` must have the shape"):
        clipped_surrogate(torch.zeros(2), torch.zeros(2), torch.zeros(1), torch.ones(2), ObjectiveConfig())
