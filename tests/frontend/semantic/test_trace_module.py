"""Modules that a caller already holds: in the manner of three code bases, with real weights, read and left alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import slipstick
from slipstick.frontend import leaves
from slipstick.frontend.semantic.flex import Reach, reach_of
from slipstick.ir.errors import TraceError, UnknownNameError, UsageError
from slipstick.ir.graph import Graph, Role
from slipstick.ir.ops.fused.attention import AttentionAttrs

from ..lookalikes import EXPERTS, FFN, HIDDEN, TOP_K, VOCAB, CoreAttention, Megatron, NanoGpt, Titan, TitanMoe
from ..sums import flops, num_ops

IDS = torch.zeros(2, 16, dtype=torch.int64)
NUM_LAYERS = 4


def flops_at(graph: Graph, batch: int, seq: int) -> float:
    return float(flops(graph).evaluate({"batch": batch, "seq": seq}))


@pytest.mark.parametrize(("module", "inputs"), [(NanoGpt(), (IDS, IDS)), (Titan(), IDS), (Megatron(), (IDS, IDS))])
def test_three_manners_of_writing_a_model_are_traced_with_exact_parameters(
    module: nn.Module, inputs: Tensor | tuple[Tensor, ...]
) -> None:
    graph = slipstick.trace(module, inputs)
    assert graph.num_parameters == sum(p.numel() for p in module.parameters())
    assert dict(graph.counts)["block0"] == NUM_LAYERS
    given = {n for r in graph.regions for p, _ in r.grads for n in [r.by_id[p].name]}
    assert len(given) == len({v.name for r in graph.regions for v in r.of_role(Role.PARAM)})


def test_library_calls_of_each_manner_are_one_operator_each() -> None:
    nano = num_ops(slipstick.trace(NanoGpt(), (IDS, IDS)))
    assert (nano["attention"], nano["norm"], nano["cross_entropy"], nano["softmax"]) == (NUM_LAYERS, 9, 1, 0)
    titan = num_ops(slipstick.trace(Titan(), IDS))
    assert (titan["attention"], titan["norm"], titan["grouped_matmul"]) == (NUM_LAYERS, 9, 3 * NUM_LAYERS)


def test_flops_of_a_forward_pass_are_those_of_the_formula() -> None:
    """24 b s h^2 a layer and 4 b s^2 h of attention (Megatron's count without the factor of backward), and logits."""
    b, s = 2, 16
    graph = slipstick.trace(Megatron(), (IDS, IDS), phase="prefill")
    want = NUM_LAYERS * (24 * b * s * HIDDEN**2 + 4 * b * s**2 * HIDDEN) + 2 * b * s * HIDDEN * VOCAB
    assert flops_at(graph, b, s) == want


def test_a_leaf_takes_the_place_of_attention_and_leaves_flops_and_parameters_alone() -> None:
    module = Megatron()
    spelled = slipstick.trace(module, (IDS, IDS), phase="prefill")
    declared = slipstick.trace(
        module, (IDS, IDS), phase="prefill",
        leaves={CoreAttention: lambda part: leaves.Attention(layout="sbhd", flat=True)},
    )  # fmt: skip
    assert num_ops(declared)["attention"] == NUM_LAYERS
    assert num_ops(declared)["softmax"] == 0
    assert flops_at(declared, 2, 16) == flops_at(spelled, 2, 16)
    assert declared.num_parameters == spelled.num_parameters


class Hits(TitanMoe):
    """Routing that asks which experts were hit: it cannot be recorded."""

    def forward(self, x: Tensor) -> Tensor:
        chosen = self.gate(x).argmax(-1)
        return x * len(torch.unique(chosen))


class Wrapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.moe = Hits()

    def forward(self, x: Tensor) -> Tensor:
        return self.moe(x)  # type: ignore[no-any-return]


def test_routing_that_looks_at_data_needs_a_leaf_and_gets_by_with_one() -> None:
    x = torch.zeros(2, 16, HIDDEN)
    with pytest.raises(TraceError, match=r"moe"):
        slipstick.trace(Wrapped(), x, phase="prefill")
    graph = slipstick.trace(
        Wrapped(), x, phase="prefill",
        leaves={TitanMoe: lambda part: leaves.MixtureOfExperts(HIDDEN, FFN, EXPERTS, TOP_K)},
    )  # fmt: skip
    assert num_ops(graph)["experts"] == 1
    router, experts = 2 * 32 * HIDDEN * EXPERTS, 2 * 32 * TOP_K * 3 * HIDDEN * FFN
    assert flops_at(graph, 2, 16) == router + experts


def test_a_leaf_of_another_size_is_refused_with_both_sizes() -> None:
    with pytest.raises(UsageError, match=r"the leaf for 'moe' \(Hits\) has 146432 parameters, the module 147968"):
        slipstick.trace(
            Wrapped(), torch.zeros(2, 16, HIDDEN), phase="prefill",
            leaves={Hits: lambda part: leaves.MixtureOfExperts(HIDDEN, FFN - 1, EXPERTS, TOP_K)},
        )  # fmt: skip


class Counting(nn.Module):
    """Keeps what it computes, counts its calls, and holds a tensor that is neither parameter nor buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.calls, self.table = nn.Embedding(VOCAB, HIDDEN), 0, torch.ones(HIDDEN)
        self.kept: Tensor | None = None
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, ids: Tensor) -> Tensor:
        self.calls += 1
        kept: Tensor = self.embed(ids) * self.table
        self.kept, self.seen = kept, kept.sum()
        return kept @ self.embed.weight.T


def test_a_module_with_real_weights_is_left_as_it_was() -> None:
    module = Counting().eval()
    weight, before, buffer = module.embed.weight, module.embed.weight.clone(), module.seen
    graph = slipstick.trace(module, IDS)
    assert graph.num_parameters == VOCAB * HIDDEN
    assert module.embed.weight is weight
    assert torch.equal(weight, before)
    assert weight.grad is None
    assert (module.calls, module.kept, module.training) == (0, None, False)
    assert module.seen is buffer
    assert module(IDS).shape == (2, 16, VOCAB)


def test_sizes_are_symbols_where_they_are_said_to_be() -> None:
    graph = slipstick.trace(Counting(), {"ids": IDS}, dynamic={"ids": (None, "seq")}, phase="prefill")
    assert [str(v.type) for v in graph.regions[0].of_role(Role.INPUT)] == ["int64[2, seq]"]
    fixed = slipstick.trace(Counting(), IDS, dynamic={}, phase="prefill")
    assert [str(v.type) for v in fixed.regions[0].of_role(Role.INPUT)] == ["int64[2, 16]"]


def test_wrong_words_name_what_is_allowed() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'ids'"):
        slipstick.trace(Counting(), IDS, dynamic={"idz": ("batch",)})
    with pytest.raises(UnknownNameError, match="did you mean 'batch'"):
        slipstick.trace(Counting(), IDS, dynamic={"ids": ("bach",)})
    with pytest.raises(UsageError, match=r"names 3 dims of 'ids', which has 2"):
        slipstick.trace(Counting(), IDS, dynamic={"ids": ("batch", "seq", "kv")})
    with pytest.raises(UsageError, match=r"do not fit Counting.forward"):
        slipstick.trace(Counting(), {"tokens": IDS})
    with pytest.raises(UsageError, match="no tensor"):
        slipstick.trace(Counting(), [3])
    with pytest.raises(TraceError, match="a tensor of 3 dims; a loss is"):
        slipstick.trace(Counting(), IDS, loss=lambda out: out)  # type: ignore[arg-type,return-value]


class Cached(nn.Module):
    """One step of attention over a cache that the caller holds."""

    def forward(self, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(q, keys, values)


def test_a_cache_is_an_input_that_lives_on() -> None:
    q, kv = torch.zeros(2, 4, 1, 16), torch.zeros(2, 4, 10, 16)
    dims = {"q": ("batch",), "keys": ("batch", None, "kv"), "values": ("batch", None, "kv")}
    graph = slipstick.trace(Cached(), (q, kv, kv), dims, "decode", caches=("keys", "values"))
    caches = graph.regions[0].of_role(Role.CACHE)
    assert [(v.name, str(v.type)) for v in caches] == [
        ("cache.keys", "fp32[batch, 4, kv, 16]"),
        ("cache.values", "fp32[batch, 4, kv, 16]"),
    ]


def test_a_mask_function_says_its_reach() -> None:
    assert reach_of(None) == Reach(causal=False, window=0)
    assert reach_of(lambda b, h, q, k: q >= 0 * k) == Reach(causal=False, window=0)
    assert reach_of(lambda b, h, q, k: (q >= k) & (q // 4096 == k // 4096)) == Reach(causal=True, window=4096)
    documents = torch.zeros(100, dtype=torch.int64)
    assert reach_of(lambda b, h, q, k: documents[q] == documents[k]) == Reach(False, 0, assumed=True)


class Documents(nn.Module):
    """Attention within documents, which end where a token is zero."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.qkv, self.head = nn.Embedding(64, 32), nn.Linear(32, 96), nn.Linear(32, 64)

    def forward(self, ids: Tensor) -> Tensor:
        b, n = ids.shape
        document = (ids == 0).cumsum(-1)

        def within(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            return (q >= k) & (document[b, q] == document[b, k])

        q, k, v = self.qkv(self.embed(ids)).view(b, n, 3, 4, 8).permute(2, 0, 3, 1, 4)
        mask = create_block_mask(within, b, None, n, n, device="cpu")
        out = flex_attention(q, k, v, block_mask=mask)
        logits: Tensor = self.head(out.transpose(1, 2).reshape(b, n, 32))
        return logits


def test_documents_that_nobody_knows_count_as_one_and_a_note_says_so() -> None:
    graph = slipstick.trace(Documents(), IDS, phase="prefill")
    assert {n.attrs for r in graph.regions for n in r.nodes if n.op == "attention"} == {AttentionAttrs(causal=True)}
    (note,) = (n for n in graph.notes if "flex_attention" in n)
    assert note.endswith("reads data, so a sequence counts as one document: causal")


def test_flex_attention_is_causal_where_its_mask_is() -> None:
    graph = slipstick.trace(Titan(), IDS, phase="prefill")
    found = {n.attrs for r in graph.regions for n in r.nodes if n.op == "attention"}
    assert found == {AttentionAttrs(causal=True)}


@pytest.mark.parametrize("phase", ["train", "prefill", "decode"])
def test_a_live_model_of_transformers_is_read_as_its_config_is(phase: str, configs: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="builds the model; install slipstick[hf]")
    path = configs / "tiny-llama.json"
    fields = json.loads(path.read_text())
    config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    before = model.config._attn_implementation
    graph = slipstick.trace(model, phase=phase, name="tiny-llama")
    assert replace(graph, max_positions=0) == replace(slipstick.load(str(path), phase), max_positions=0)
    assert model.config._attn_implementation == before
    assert model(IDS).logits.shape == (2, 16, config.vocab_size)
