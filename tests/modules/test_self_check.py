import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from lightning_dr.branches import Tree, make_packs
from lightning_dr.modules import Backbone, BackboneConfig, SamplingConfig, branch_attention
from lightning_dr.modules.decoding import CopiedPrefix
from lightning_dr.toy.tokenizer import build_tokenizer
from tests.conftest import ARCHITECTURES, LORA
from tests.modules.test_backbone import plain_logits, scramble, trees_of

# Layers of short convolutions, in which every token sees its neighbours in the row, beside one of attention.
CONVOLUTIONS = {"layer_types": ["conv", "full_attention"], "hidden_size": 32, "intermediate_size": 64, "block_multiple_of": 8}


def build(path, **kwargs):
    backbone = Backbone(BackboneConfig(name_or_path=str(path), **{"dtype": "float32", **kwargs}))
    backbone.add_adapter("policy", LORA)
    scramble(backbone, "policy")
    return backbone


def logprobs_of(backbone, trees):
    found = {}
    for pack in backbone.packs(trees):
        found.update(pack.split(backbone.token_logprobs(pack)))
    return [found[owner] for owner in sorted(found)]


def agree_with_rows(backbone, trees):
    with torch.no_grad(), backbone.active("policy"):
        got = iter(logprobs_of(backbone, trees))
        for tree in trees:
            for branch in tree.branches:
                rows = plain_logits(backbone, tree.prefix + branch)[len(tree.prefix) - 1 : -1].log_softmax(-1)
                want = rows.gather(-1, torch.tensor(branch).unsqueeze(-1)).squeeze(-1)
                torch.testing.assert_close(next(got), want, atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_attention_takes_packed_branches(kind, random_model, caplog):
    backbone = build(random_model(kind))
    assert backbone.packing.max_shared_row == (4096 if kind == "mistral" else None)  # Mistral's config names a window
    assert backbone.packing.difference < 1e-4
    assert backbone.packing.leak == 0
    assert "which is slower" not in caplog.text


def test_rows_end_at_a_sliding_window(random_model, caplog):
    backbone = build(random_model("mistral", sliding_window=80))
    long, short = trees_of(backbone)
    trees = [Tree(long.prefix * 3, long.branches), short]  # rows of 105 and 15 tokens
    agree_with_rows(backbone, trees)
    agree_with_rows(backbone, trees)
    assert backbone.packing.max_shared_row == 80
    assert caplog.text.count("sliding window of 80 tokens does not hold in packed branches") == 1
    packs = list(backbone.packs(trees))
    assert {(pack.plain, len(pack.lengths)) for pack in packs} == {(True, 3), (False, 2)}


def test_layers_that_ignore_the_mask_get_one_row_per_branch(tmp_path, caplog):
    tokenizer = build_tokenizer()
    config = AutoConfig.for_model(
        "lfm2", **CONVOLUTIONS, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=len(tokenizer)
    )
    torch.manual_seed(1)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    backbone = build(tmp_path)
    agree_with_rows(backbone, trees_of(backbone))
    assert backbone.packing.max_shared_row == 0
    assert backbone.packing.leak > 1e-3
    assert caplog.text.count("one row per branch, which is slower") == 1


def test_an_attention_that_refuses_the_mask_gets_one_row_per_branch(monkeypatch, caplog):
    backbone = build("toy")
    hidden = Backbone.hidden

    def refuse(self, pack):
        if not pack.plain:
            raise ValueError("only 2-D masks")
        return hidden(self, pack)

    monkeypatch.setattr(Backbone, "hidden", refuse)
    agree_with_rows(backbone, trees_of(backbone))
    assert "takes no mask for packed branches (only 2-D masks)" in caplog.text


def refuse_keys(*args, **kwargs):
    raise ValueError("no shared keys")


def blind(query, key, value, shared, **kwargs):
    return torch.zeros_like(query).transpose(1, 2)


@pytest.mark.parametrize(("attention", "message"), [(refuse_keys, r"takes no shared keys (no shared keys)"), (blind, "samples otherwise")])
def test_a_model_without_shared_keys_samples_from_copies(attention, message, monkeypatch, caplog):
    monkeypatch.setattr(branch_attention, "shared_attention", attention)
    backbone = build("toy")
    assert backbone.decoding(100) is CopiedPrefix
    prefix = trees_of(backbone)[0].prefix
    for _ in range(2):
        assert len(backbone.sample([prefix], 2, SamplingConfig(max_new_tokens=3), "policy")[0]) == 2
    assert caplog.text.count(message) == 1


def test_the_check_leaves_the_random_stream_and_the_mode_alone():
    backbone = build("toy")
    state = torch.get_rng_state()
    with backbone.active("policy", train=True):
        assert backbone.packing.max_shared_row is None
        assert backbone.shares_keys
        assert backbone.training
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("limit", [0, 12, 36, None])
def test_gradients_do_not_depend_on_the_limit(limit):
    backbone = build("toy")
    trees = trees_of(backbone)
    parameters = list(backbone.adapter_parameters("policy").values())
    gradients = []
    for rows in (limit, None):
        with backbone.active("policy", train=True):
            packs = make_packs(trees, 8192, rows)
            assert all(pack.plain or rows is None or pack.input_ids.shape[1] <= rows for pack in packs)
            loss = sum(backbone.token_logprobs(pack).square().sum() for pack in packs)
        gradients.append(torch.cat([gradient.flatten() for gradient in torch.autograd.grad(loss, parameters)]))
    assert (gradients[0] - gradients[1]).norm() / gradients[1].norm() < 1e-4


def test_the_precision_of_the_base_decides_what_counts_as_rounding():
    backbone = build("toy", dtype="bfloat16")
    assert backbone.packing.max_shared_row is None
    assert backbone.packing.difference < 0.2
    assert backbone.packing.leak == 0


def test_a_sliding_window_holds_while_sampling(random_model):
    """The sampler leaves the mask to the model, so what it saw is what single rows see."""
    backbone = build(random_model("mistral", sliding_window=24))
    prefix = trees_of(backbone)[0].prefix
    ((sample, *_),) = backbone.sample([prefix], 2, SamplingConfig(max_new_tokens=6), "policy")
    with torch.no_grad(), backbone.active("policy"):
        rows = plain_logits(backbone, prefix + sample.token_ids)[len(prefix) - 1 : -1].log_softmax(-1)
    want = rows.gather(-1, torch.tensor(sample.token_ids).unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(torch.tensor(sample.logprobs), want, atol=1e-4, rtol=0)
