import weakref

import pytest
import torch
from torch import nn

from lightning_dr import branches
from lightning_dr.branches import Tree, make_packs, map_logits, token_logprobs


def test_layout_by_hand():
    (pack,) = make_packs([Tree((5, 6, 7), ((8, 9), (10,)))], 100)
    assert pack.input_ids.tolist() == [[5, 6, 7, 8, 9, 10]]
    assert pack.position_ids.tolist() == [[0, 1, 2, 3, 4, 3]]
    assert pack.segments.tolist() == [[0, 0, 0, 1, 1, 2]]
    # 8 and 10 are predicted where the prefix ends (2), 9 where 8 stands (3)
    assert pack.sources.tolist() == [2, 3, 2]
    assert pack.targets.tolist() == [8, 9, 10]
    assert pack.ends.tolist() == [4, 5]


def test_mask_by_hand():
    (pack,) = make_packs([Tree((5, 6), ((8, 9), (10,)))], 100)
    allowed = (pack.attention_mask(torch.float32)[0, 0] == 0).int().tolist()
    assert allowed == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 0, 0, 1],  # the second branch sees the prefix and itself, not the first branch
    ]


def test_padding_attends_to_something():
    pack = make_packs([Tree((1, 2, 3), ((4,),)), Tree((1,), ((2,),))], 100)[0]
    assert bool((pack.attention_mask(torch.float32) == 0).any(-1).all())


@pytest.mark.parametrize("budget", [1, 7, 12, 1000])
def test_every_branch_is_packed_once_whatever_the_budget(budget):
    trees = [Tree(tuple(range(1, 5)), ((1, 2), (3,), (4, 5, 6))), Tree((9,), ((8,), (7, 7)))]
    packs = make_packs(trees, budget)
    owners = sorted(owner for pack in packs for owner in pack.owners)
    assert owners == [0, 1, 2, 3, 4]
    want = [branch for tree in trees for branch in tree.branches]
    for pack in packs:
        assert pack.input_ids.numel() <= budget or pack.input_ids.shape[0] == 1
        for owner, tokens in pack.split(pack.targets):
            assert tuple(tokens.tolist()) == want[owner]


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("limit", [2**25, 7 * 3])
def test_logprobs_are_the_librarys_cross_entropy_in_chunks_or_at_once(limit, learns, monkeypatch):
    monkeypatch.setattr(branches, "MAX_LOGITS", limit)
    torch.manual_seed(0)
    head = nn.Linear(4, 7)
    (pack,) = make_packs([Tree((1, 2), ((3, 4, 5), (6, 0)))], 100)
    hidden = torch.randn(1, 7, 4, requires_grad=True)
    got = token_logprobs(hidden, pack, head, 7, temperature=0.5, head_learns=learns)
    logits = head(hidden[0, pack.sources]) / 0.5
    want = -nn.functional.cross_entropy(logits, pack.targets, reduction="none")
    torch.testing.assert_close(got, want)
    asked = [hidden, head.weight] if learns else [hidden]
    gradients = [torch.autograd.grad(x.square().sum(), asked, retain_graph=True) for x in (got, want)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)
    with torch.no_grad():
        torch.testing.assert_close(token_logprobs(hidden, pack, head, 7, temperature=0.5, head_learns=learns), want)


@pytest.mark.parametrize("learns", [False, True])
def test_nothing_as_wide_as_the_vocabulary_is_kept_for_the_backward_pass(learns):
    (pack,) = make_packs([Tree((1, 2), ((3, 4, 5), (6, 0)))], 100)
    hidden = torch.randn(1, 7, 4, requires_grad=True)
    head = nn.Linear(4, 1000, bias=False).requires_grad_(learns)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda value: kept.append(weakref.ref(value)) or value, lambda value: value):
        logprobs = token_logprobs(hidden, pack, head, 1000, head_learns=learns)
    alive = [value for value in (found() for found in kept) if value is not None and value.data_ptr() != head.weight.data_ptr()]
    assert logprobs.requires_grad
    assert alive
    assert all(1000 not in value.shape for value in alive)


def test_no_more_logits_than_the_limit_are_ever_held(monkeypatch):
    monkeypatch.setattr(branches, "MAX_LOGITS", 30)
    seen = []

    def head(states):
        seen.append(states.shape[0] * 10)
        return states.new_zeros(states.shape[0], 10)

    map_logits(torch.zeros(1, 8, 4), torch.arange(8), head, lambda logits, _: logits[:, 0], 10)
    assert max(seen) <= 30
    assert sum(seen) == 80


def test_bad_input():
    with pytest.raises(ValueError, match="A `Tree` must have"):
        Tree((), ((1,),))
    with pytest.raises(ValueError, match="A `Tree` must have"):
        Tree((1,), ((1,), ()))
    with pytest.raises(ValueError, match="`max_tokens` must be at least 1"):
        make_packs([Tree((1,), ((1,),))], 0)
