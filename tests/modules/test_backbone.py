import pytest
import torch
from transformers import AutoModelForCausalLM

from lightning_dr.branches import Tree
from lightning_dr.modules import Backbone, BackboneConfig, SamplingConfig
from lightning_dr.modules.decoding import CopiedPrefix, SharedPrefix
from lightning_dr.modules.loading import resolve_dtype
from lightning_dr.modules.sampling import sample as sample_from
from tests.conftest import ARCHITECTURES, LORA

MESSAGES = [{"role": "user", "content": "Write about ocean."}]


def build(path="toy", **kwargs):
    backbone = Backbone(BackboneConfig(name_or_path=path, **{"dtype": "float32", **kwargs}))
    for name in ("policy", "generator"):
        backbone.add_adapter(name, LORA)
    return backbone


def scramble(backbone, name):
    for parameter in backbone.adapter_parameters(name).values():
        torch.nn.init.normal_(parameter.data, std=0.2)


def flags(backbone):
    adapters = {name: {p.requires_grad for p in backbone.adapter_parameters(name).values()} for name in backbone.adapters}
    base = {p.requires_grad for key, p in backbone.model.named_parameters() if "lora_" not in key}
    return adapters, base


def plain_logits(backbone, ids):
    return backbone.base(input_ids=torch.tensor([ids])).logits[0]


class TestAdapters:
    def test_requires_grad_is_ours_whatever_peft_does(self):
        backbone = build()
        want = ({"policy": {True}, "generator": {True}}, {False})
        assert flags(backbone) == want
        for adapter in ("policy", None, "generator", None):
            with backbone.active(adapter):
                assert flags(backbone) == want
            assert flags(backbone) == want

    def test_gradients_reach_only_the_active_adapter(self):
        backbone = build()
        scramble(backbone, "policy")
        scramble(backbone, "generator")
        with backbone.active("policy", train=True):
            plain_logits(backbone, [1, 5, 6]).sum().backward()
        assert all(p.grad is None for p in backbone.adapter_parameters("generator").values())
        assert all(p.grad is not None for p in backbone.adapter_parameters("policy").values())

    def test_adapters_off_is_the_base_and_a_fresh_adapter_too(self):
        backbone = build()
        ids = [4, 8, 15, 16, 23]
        want = AutoModelForCausalLM.from_pretrained(backbone.config.location)(input_ids=torch.tensor([ids])).logits[0]
        with torch.no_grad():
            with backbone.active("policy"):
                torch.testing.assert_close(plain_logits(backbone, ids), want)
            scramble(backbone, "policy")
            with backbone.active(None):
                torch.testing.assert_close(plain_logits(backbone, ids), want)
            with backbone.active("generator"):
                torch.testing.assert_close(plain_logits(backbone, ids), want)
            with backbone.active("policy"):
                assert (plain_logits(backbone, ids) - want).abs().max() > 1e-2

    def test_adapters_are_float32_on_a_bfloat16_base(self):
        backbone = build(dtype="bfloat16")
        assert backbone.base.dtype == torch.bfloat16
        assert {p.dtype for p in backbone.adapter_parameters("policy").values()} == {torch.float32}

    def test_snapshot_is_frozen_and_does_not_follow(self):
        backbone = build()
        scramble(backbone, "generator")
        backbone.copy_adapter("generator", "old")
        before = backbone.adapter_state("old")
        scramble(backbone, "generator")
        assert all(torch.equal(before[key], value) for key, value in backbone.adapter_state("old").items())
        assert flags(backbone)[0] == {"policy": {True}, "generator": {True}, "old": {False}}

    def test_saved_and_loaded(self, tmp_path):
        from lightning_dr.modules.role import read_adapter

        backbone = build()
        scramble(backbone, "policy")
        backbone.save_adapter("policy", str(tmp_path))
        want = backbone.adapter_state("policy")
        scramble(backbone, "policy")
        backbone.load_adapter_state("policy", read_adapter(tmp_path / "policy", "policy"))
        assert all(torch.equal(want[key], value) for key, value in backbone.adapter_state("policy").items())

    def test_errors_say_what_to_do(self, tmp_path):
        from lightning_dr.modules.role import read_adapter

        backbone = build()
        with pytest.raises(ValueError, match="`name` must be new"):
            backbone.add_adapter("policy", LORA)
        with pytest.raises(ValueError, match=r"`lora\.bias` must be 'none'"):
            backbone.add_adapter("other", {**LORA, "bias": "all"})
        with pytest.raises(ValueError, match="`adapter` must be one of"), backbone.active("nobody"):
            pass
        backbone.add_adapter("wide", {**LORA, "r": 8})
        with pytest.raises(ValueError, match="Use the LoRA config it was trained with"):
            backbone.load_adapter_state("policy", backbone.adapter_state("wide"))
        with pytest.raises(FileNotFoundError, match="No adapter in"):
            read_adapter(tmp_path, "policy")
        with pytest.raises(ValueError, match="a quantised base can't be trained"):
            Backbone(BackboneConfig(name_or_path="toy", quantization={"load_in_4bit": True}), trainable=True)

    def test_fingerprint_tells_bases_apart_and_not_adapters(self, random_model):
        backbone = build()
        before = backbone.fingerprint()
        scramble(backbone, "policy")
        assert backbone.fingerprint() == before
        assert build(random_model("llama")).fingerprint() != before


class TestModes:
    def test_rest_is_evaluation_even_after_an_error(self):
        backbone = build()

        def fail():
            with backbone.active("policy", train=True):
                assert backbone.base.training
                raise RuntimeError("boom")

        with pytest.raises(RuntimeError, match="boom"):
            fail()
        assert not any(module.training for module in backbone.modules())

    def test_lora_dropout_acts_in_training_and_never_in_sampling(self):
        backbone = Backbone(BackboneConfig(name_or_path="toy", dtype="float32"))
        backbone.add_adapter("policy", {**LORA, "dropout": 0.5})
        scramble(backbone, "policy")
        with torch.no_grad(), backbone.active("policy", train=True):
            assert not torch.equal(plain_logits(backbone, [5, 6, 7]), plain_logits(backbone, [5, 6, 7]))
        with torch.no_grad(), backbone.active("policy"):
            assert torch.equal(plain_logits(backbone, [5, 6, 7]), plain_logits(backbone, [5, 6, 7]))

    def test_gradient_checkpointing_leaves_sampling_and_gradients_alone(self):
        outcomes = []
        for on in (False, True):
            torch.manual_seed(0)
            backbone = build(gradient_checkpointing=on)
            torch.manual_seed(1)
            for parameter in backbone.adapter_parameters("policy").values():
                torch.nn.init.normal_(parameter.data, std=0.2)
            torch.manual_seed(2)
            prefix = backbone.encode(MESSAGES)
            ((sample, *_),) = backbone.sample([prefix], 2, SamplingConfig(max_new_tokens=6), "policy")
            with backbone.active("policy", train=True):
                (pack,) = backbone.packs([Tree(prefix, (sample.token_ids,))])
                backbone.token_logprobs(pack).sum().backward()
            outcomes.append((sample, [p.grad.clone() for p in backbone.adapter_parameters("policy").values()]))
        assert outcomes[0][0].token_ids == outcomes[1][0].token_ids
        torch.testing.assert_close(outcomes[0][1], outcomes[1][1])


class TestText:
    def test_a_last_assistant_message_is_continued(self):
        backbone = build()
        text = backbone.render([*MESSAGES, {"role": "assistant", "content": "calm"}])
        assert text.endswith("<|im_start|>assistant\ncalm")

    def test_every_eos_counts(self):
        backbone = build()
        assert backbone.eos_ids == (backbone.tokenizer.eos_token_id,)
        backbone.base.generation_config.eos_token_id = [7, 3]
        assert backbone._eos_ids() == (3, 7)

    def test_a_model_without_chat_template_is_refused(self, random_model, tmp_path):
        from transformers import AutoTokenizer

        model = AutoModelForCausalLM.from_pretrained(random_model("llama"))
        tokenizer = AutoTokenizer.from_pretrained(random_model("llama"))
        tokenizer.chat_template = None
        model.save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        with pytest.raises(ValueError, match="has no chat template"):
            Backbone(BackboneConfig(name_or_path=str(tmp_path)))


def trees_of(backbone):
    generator = torch.Generator().manual_seed(0)
    draw = lambda n: tuple(torch.randint(4, 100, (n,), generator=generator).tolist())  # noqa: E731
    return [Tree(draw(30), (draw(5), draw(1), draw(9))), Tree(draw(7), (draw(4), draw(4)))]


@pytest.mark.parametrize("kind", ARCHITECTURES)
class TestPackedEqualsRows:
    def row_logprobs(self, backbone, trees):
        out = []
        for tree in trees:
            for branch in tree.branches:
                logits = plain_logits(backbone, tree.prefix + branch)[len(tree.prefix) - 1 : -1].log_softmax(-1)
                out.append(logits.gather(-1, torch.tensor(branch).unsqueeze(-1)).squeeze(-1))
        return out

    def test_logprobs_and_gradients(self, kind, random_model):
        backbone = build(random_model(kind))
        scramble(backbone, "policy")
        trees = trees_of(backbone)
        parameters = list(backbone.adapter_parameters("policy").values())
        with backbone.active("policy", train=True):
            want = self.row_logprobs(backbone, trees)
            gradient = torch.autograd.grad(sum(x.square().sum() for x in want), parameters)
            for budget in (20, 64, 8192):
                object.__setattr__(backbone.config, "max_tokens_per_pass", budget)
                got, total = {}, [torch.zeros_like(p) for p in parameters]
                for pack in backbone.packs(trees):
                    logprobs = backbone.token_logprobs(pack)
                    got.update(pack.split(logprobs))
                    parts = torch.autograd.grad(logprobs.square().sum(), parameters)
                    total = [a + b for a, b in zip(total, parts, strict=True)]
                for number, row in enumerate(want):
                    torch.testing.assert_close(got[number], row, atol=1e-4, rtol=0)
                one, other = (torch.cat([g.flatten() for g in grads]) for grads in (total, gradient))
                assert (one - other).norm() / other.norm() < 1e-4

    def test_sampler_sees_the_same_probabilities_whatever_else_is_in_the_batch(self, kind, random_model):
        backbone = build(random_model(kind))
        scramble(backbone, "policy")
        prefixes = [tree.prefix for tree in trees_of(backbone)]
        drawn = backbone.sample(prefixes, 3, SamplingConfig(max_new_tokens=12, temperature=0.8), "policy")
        trees = [Tree(prefix, tuple(s.token_ids for s in group)) for prefix, group in zip(prefixes, drawn, strict=True)]
        flat = [sample for group in drawn for sample in group]
        with torch.no_grad(), backbone.active("policy"):
            for pack in backbone.packs(trees):
                for owner, logprobs in pack.split(backbone.token_logprobs(pack, temperature=0.8)):
                    torch.testing.assert_close(torch.tensor(flat[owner].logprobs), logprobs, atol=1e-4, rtol=0)


class TestSampling:
    def test_stops_at_eos_and_keeps_it(self):
        backbone = build()
        prefix = backbone.encode(MESSAGES)
        drawn = backbone.sample([prefix, prefix[:4]], 8, SamplingConfig(max_new_tokens=10), None)
        assert [len(group) for group in drawn] == [8, 8]
        for sample in drawn[0]:
            assert len(sample.token_ids) == len(sample.logprobs)
            assert sample.finished == (sample.token_ids[-1] in backbone.eos_ids)
            assert not set(sample.token_ids[:-1]) & set(backbone.eos_ids)
        assert any(sample.finished for sample in drawn[0])

    def test_length_limit_marks_a_cut(self):
        backbone = build()
        for sample in backbone.sample([backbone.encode(MESSAGES)], 4, SamplingConfig(max_new_tokens=3), None)[0]:
            assert len(sample.token_ids) == 3
            assert not sample.finished

    def test_line_limit_ends_a_continuation(self):
        backbone = build()
        prefix = backbone.encode([{"role": "user", "content": "Write about ocean.\n1. copper calm\n2. rust slow"}])
        for sample in backbone.sample([prefix], 6, SamplingConfig(max_new_tokens=40, max_lines=2), None)[0]:
            text = backbone.decode(sample.token_ids)
            assert text.count("\n") <= 2
            assert sample.finished

    def test_budgets_change_nothing_but_the_grouping(self):
        backbone = build()
        prefixes = [backbone.encode(MESSAGES)] * 5
        numbers = []
        for budget in (1, 40, 10_000):
            object.__setattr__(backbone.config, "max_cached_tokens", budget)
            for shared in (False, True):
                groups = list(backbone._sampling_groups(prefixes, 2, 10, shared))
                assert sum(map(len, groups)) == 5
                numbers.append(len(groups))
        assert numbers == [5, 5, 5, 3 if 2 * (len(prefixes[0]) + 20) <= 40 else 5, 1, 1]

    @pytest.mark.parametrize("kind", ARCHITECTURES)
    def test_a_shared_prefix_gives_what_copies_of_it_give(self, kind, random_model):
        backbone = build(random_model(kind))
        scramble(backbone, "policy")
        prefixes = [tree.prefix for tree in trees_of(backbone)] * 2
        assert backbone.decoding(100) is SharedPrefix
        found = []
        with torch.no_grad(), backbone.active("policy") as model:
            for decoding in (SharedPrefix, CopiedPrefix):
                torch.manual_seed(3)
                # a third of the tokens end a continuation, so that the groups shrink unevenly
                ends = range(0, backbone.vocabulary, 3)
                found.append(
                    sample_from(model.base_model, backbone.head, prefixes, 5, SamplingConfig(max_new_tokens=9), ends, kind=decoding)
                )
        flat = [[one for group in groups for one in group] for groups in found]
        assert [one.token_ids for one in flat[0]] == [one.token_ids for one in flat[1]]
        assert len({len(one.token_ids) for one in flat[0]}) >= 4
        for one, other in zip(*flat, strict=True):
            torch.testing.assert_close(torch.tensor(one.logprobs), torch.tensor(other.logprobs), atol=1e-4, rtol=0)

    def test_one_prefill_per_prefix_and_one_token_per_step(self, monkeypatch):
        backbone = build()
        seen = []
        original = type(backbone.base.base_model).forward

        def spy(self, *args, **kwargs):
            seen.append(tuple(kwargs["input_ids"].shape))
            return original(self, *args, **kwargs)

        monkeypatch.setattr(type(backbone.base.base_model), "forward", spy)
        prefix = backbone.encode(MESSAGES)
        backbone.decoding(len(prefix) + 4)
        seen.clear()
        backbone.sample([prefix], 6, SamplingConfig(max_new_tokens=4), "policy")
        assert seen == [(1, len(prefix)), (6, 1), (6, 1), (6, 1)]


def test_dtype_is_decided_in_one_place():
    assert resolve_dtype("float16") == torch.float16
    assert resolve_dtype("auto") in (torch.bfloat16, torch.float32)


def test_nf4_trains_the_adapter_on_the_cpu_and_leaves_the_base(random_model):
    wide = random_model("llama", hidden_size=128, intermediate_size=256, head_dim=32)  # NF4 works in blocks of 64 weights
    quantization = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": "float32"}
    backbone = build(wide, quantization=quantization)
    assert any(type(module).__name__ == "Linear4bit" for module in backbone.base.modules())
    scramble(backbone, "policy")
    base = {key: value.clone() for key, value in backbone.base.state_dict().items() if "lora_" not in key}
    optimizer = torch.optim.Adam(backbone.adapter_parameters("policy").values(), lr=0.1)
    before = backbone.adapter_state("policy")
    with backbone.active("policy", train=True):
        for pack in backbone.packs(trees_of(backbone)):
            (-backbone.token_logprobs(pack).mean()).backward()
    optimizer.step()
    assert all(not torch.equal(before[key], value) for key, value in backbone.adapter_state("policy").items())
    assert all(torch.equal(base[key], value) for key, value in backbone.base.state_dict().items() if "lora_" not in key)
    four_bit, full = (
        build(wide, **kwargs).base.get_submodule("model.layers.0.mlp.up_proj") for kwargs in ({"quantization": quantization}, {})
    )
    inputs = torch.randn(8, 128)
    with torch.no_grad():
        error = four_bit.base_layer(inputs) - full.base_layer(inputs)
        assert 1e-3 < error.norm() / full.base_layer(inputs).norm() < 0.15


def test_sampling_in_4_bit_leaves_the_gradients_alone(random_model):
    """On some CPUs bitsandbytes repacks the weights in the first pass without gradients, and then none flow through them any more."""
    wide = random_model("llama", hidden_size=128, intermediate_size=256, head_dim=32)
    gradients = []
    for sampled_before in (False, True):
        torch.manual_seed(0)
        backbone = build(wide, quantization={"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": "float32"})
        torch.manual_seed(1)
        scramble(backbone, "policy")
        if sampled_before:
            backbone.sample([backbone.encode(MESSAGES)], 2, SamplingConfig(max_new_tokens=3), "policy")
        with backbone.active("policy", train=True):
            for pack in backbone.packs(trees_of(backbone)):
                backbone.token_logprobs(pack).sum().backward()
        gradients.append([parameter.grad for parameter in backbone.adapter_parameters("policy").values()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)
