import math
import statistics

import pytest
import torch

from lightning_dr.advantages import group_advantages


def slow_advantages(rewards, valid, scale):
    members = [r for r, v in zip(rewards, valid, strict=True) if v]
    if len(members) < 2 or max(members) == min(members):
        return [0.0] * len(rewards)
    mean = statistics.fmean(members)
    d = statistics.pstdev(members) if scale == "std" else 1.0
    return [(r - mean) / d if v else 0.0 for r, v in zip(rewards, valid, strict=True)]


@pytest.mark.parametrize("scale", ["std", "none"])
def test_parity_with_slow_loop(scale):
    generator = torch.Generator().manual_seed(0)
    rewards = torch.rand(30, 6, generator=generator)
    valid = torch.rand(30, 6, generator=generator) < 0.7
    got = group_advantages(rewards, valid, scale)
    for row in range(30):
        assert got[row].tolist() == pytest.approx(slow_advantages(rewards[row].tolist(), valid[row].tolist(), scale), abs=1e-5)


def test_hand_worked():
    # mean 1/4, population deviation sqrt(3)/4: (3/4) / (sqrt(3)/4) = sqrt(3) and -1/sqrt(3)
    assert group_advantages(torch.tensor([1.0, 0, 0, 0])).tolist() == pytest.approx([math.sqrt(3)] + [-1 / math.sqrt(3)] * 3)


def test_sum_is_zero_and_a_constant_changes_nothing():
    rewards, valid = torch.rand(5, 8), torch.rand(5, 8) < 0.8
    advantages = group_advantages(rewards, valid)
    torch.testing.assert_close(advantages.sum(-1), torch.zeros(5), atol=1e-5, rtol=0)
    torch.testing.assert_close(advantages, group_advantages(rewards + 3, valid), atol=1e-4, rtol=1e-4)


def test_invalid_members_do_not_move_the_others():
    plain = group_advantages(torch.tensor([1.0, 0.0, 0.5]))
    extra = group_advantages(torch.tensor([1.0, 0.0, 0.5, torch.nan, 99.0]), torch.tensor([True, True, True, False, False]))
    assert extra.tolist() == pytest.approx([*plain.tolist(), 0.0, 0.0])
    assert group_advantages(torch.tensor([1.0, 0.0, torch.nan])).tolist() == [1.0, -1.0, 0.0]


@pytest.mark.parametrize("value", [0.0, 0.3, 1e-7, 1e6])
def test_group_without_spread_is_dead(value):
    # 0.1 + 0.2 is not 0.3 in floats: rounding must not become a learning signal
    rewards = torch.tensor([value, value * (1 + 1e-7), value])
    assert group_advantages(rewards).tolist() == [0.0, 0.0, 0.0]


def test_fewer_than_two_valid_members():
    assert group_advantages(torch.tensor([1.0, 0.0]), torch.tensor([True, False])).tolist() == [0.0, 0.0]
    assert group_advantages(torch.tensor([1.0, 0.0]), torch.tensor([False, False])).tolist() == [0.0, 0.0]


def test_bad_input():
    with pytest.raises(ValueError, match="`rewards` must be finite where `valid`"):
        group_advantages(torch.tensor([torch.nan, 0.0]), torch.tensor([True, True]))
    with pytest.raises(ValueError, match="`valid` must have the shape"):
        group_advantages(torch.zeros(3), torch.ones(2, dtype=torch.bool))
    with pytest.raises(ValueError, match="`scale` must be one of"):
        group_advantages(torch.zeros(3), scale="var")
