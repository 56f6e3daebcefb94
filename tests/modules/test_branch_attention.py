from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from lightning_dr.branches import Tree, make_packs
from lightning_dr.modules.branch_attention import branch_attention, copied_attention, layout_of

EVEN = [Tree((1, 2, 3), ((4, 5), (6,), (7, 8, 9)))]
MIXED = [*EVEN, Tree((1, 2, 3, 4, 5), ((6, 7), (8,))), Tree((1,), ((2, 3),))]


def merged(module, query, key, value, layout, **kwargs):
    return branch_attention(module, query, key, value, None, layout, **kwargs)[0]


@pytest.mark.parametrize("attention", [merged, copied_attention])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("trees", [EVEN, EVEN * 2, MIXED])
def test_equals_the_dense_mask_forward_and_backward(trees, groups, attention):
    torch.manual_seed(0)
    (pack,) = make_packs(trees, 10_000)
    size, width = pack.input_ids.shape
    states = [torch.randn(size, heads, width, 8, dtype=torch.float64, requires_grad=True) for heads in (2 * groups, 2, 2)]
    got = attention(SimpleNamespace(num_key_value_groups=groups, is_causal=True), *states, layout_of(pack), scaling=0.3)
    query, key, value = states
    want = scaled_dot_product_attention(
        query, *(state.repeat_interleave(groups, 1) for state in (key, value)), attn_mask=pack.attention_mask(torch.float64), scale=0.3
    ).transpose(1, 2)
    real = pack.segments >= 0
    torch.testing.assert_close(got[real], want[real])
    gradients = [torch.autograd.grad(out[real].square().sum(), states) for out in (got, want)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_dropout_is_that_of_the_kernel():
    (pack,) = make_packs(EVEN, 10_000)
    states = [torch.randn(1, 2, pack.input_ids.shape[1], 8) for _ in range(3)]

    def draw(seed):
        torch.manual_seed(seed)
        return merged(SimpleNamespace(num_key_value_groups=1), *states, layout_of(pack), scaling=1.0, dropout=0.5)

    assert torch.equal(draw(0), draw(0))
    assert not torch.equal(draw(0), draw(1))
