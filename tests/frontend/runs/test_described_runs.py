"""One description of a run: what a factory may return, and what is said of it in words."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

import slipstick
from slipstick.frontend.loading import load, load_model
from slipstick.frontend.loss import SUMMED
from slipstick.frontend.runs.options import TraceOptions
from slipstick.ir.errors import NotBuiltError, SlipstickError, TraceError, UnknownNameError, UsageError
from slipstick.ir.graph import Graph, Phase, Role, Workload
from slipstick.ir.sizes.expr import symbol

from .. import described_nets as nets
from ..sums import flops, num_ops

V, H = nets.VOCAB, nets.HIDDEN
TOKENS = symbol("batch") * symbol("seq")
PLAIN = TraceOptions()
MASKED = ("ids:int64[batch,seq]", "mask[batch,seq]")
CACHED = ("ids:int64[batch,seq]", "keys[batch,4,kv,16]", "values:bf16[batch,4,kv,16]")


@pytest.fixture(scope="module")
def described() -> str:
    return nets.__file__


def inputs_of(graph: Graph) -> dict[str, str]:
    given = [v for r in graph.regions for v in r.of_role(Role.INPUT, Role.CACHE)]
    return {v.name: str(v.type) for v in given}


def message(kind: type[SlipstickError], model: str, workload: str = "train", options: TraceOptions = PLAIN) -> str:
    with pytest.raises(kind) as caught:
        load_model(model, workload, options=options)
    return str(caught.value)


def test_inputs_are_said_in_words_or_come_with_the_factory(described: str) -> None:
    for graph in (
        load_model(f"{described}:Masked", options=TraceOptions(inputs=MASKED)),
        load(f"{described}:with_inputs"),
    ):
        given = inputs_of(graph)
        assert given.items() >= {"ids": "int64[batch, seq]", "mask": "bf16[batch, seq]"}.items()
        assert flops(graph, Phase.FORWARD) == TOKENS * 2 * H * V
        assert num_ops(graph)["cross_entropy"] == 1


def test_two_arguments_that_nobody_described_are_named_with_the_flags_to_write(described: str) -> None:
    said = message(UsageError, f"{described}:Masked")
    assert "Masked.forward takes 2 arguments (ids, mask)" in said
    assert "--input 'ids:int64[batch,seq]' --input 'mask:bf16[batch,seq]'" in said


@pytest.mark.parametrize(
    ("words", "kind", "said"),
    [
        (("ids:int64[batch,seq]",), UsageError, "no --input says what mask is"),
        ((*MASKED, "msk[batch]"), UnknownNameError, "'msk'; did you mean 'mask'?"),
        (("ids:int64[batch,sqe]",), UnknownNameError, "did you mean 'seq'?"),
        (("ids:int65[batch,seq]",), UnknownNameError, "did you mean 'int64'?"),
        (("ids int64",), UsageError, "not of the form NAME:DTYPE[DIM,..]"),
    ],
)
def test_inputs_that_do_not_fit_are_named(
    words: tuple[str, ...], kind: type[SlipstickError], said: str, described: str
) -> None:
    assert said in message(kind, f"{described}:Masked", options=TraceOptions(inputs=words))


def test_what_only_factories_need_is_refused_of_other_models() -> None:
    assert "--input: of factories" in message(UsageError, "llama-3.1-8b", options=TraceOptions(inputs=MASKED))


def test_a_dict_of_logits_gets_a_cross_entropy(described: str) -> None:
    graph = load(f"{described}:InDict")
    assert num_ops(graph)["cross_entropy"] == 1
    assert not any(SUMMED in note for note in graph.notes)


def test_training_without_a_loss_starts_from_the_sum_of_all_outputs_and_says_so(described: str) -> None:
    """Hidden states [batch, seq, H] as wide as the table of embeddings are no logits; three outputs are summed."""
    graph = load(f"{described}:Encoder")
    assert f"{SUMMED}; name one with --loss file.py:function" in graph.notes
    assert num_ops(graph)["cross_entropy"] == 0
    results = [p for r in load(f"{described}:Encoder", "prefill").regions for p in r.outputs if "result" in p.name]
    assert len(results) == 3


def test_images_have_a_batch_and_no_length(described: str) -> None:
    graph = load_model(f"{described}:Images", options=TraceOptions(inputs=("image:bf16[batch,3,32,32]",)))
    assert inputs_of(graph) == {"image": "bf16[batch, 3, 32, 32]"}
    assert flops(graph, Phase.FORWARD) == symbol("batch") * (16 * 2 * 3 * 8 * 8 * H + 2 * H * 10)
    said = message(TraceError, f"{described}:Images")
    assert "forward was run on token ids" in said
    assert "--input 'image:bf16[batch,3,224,224]'" in said


def test_guessed_dims_of_an_image_leave_its_channels_alone() -> None:
    graph = slipstick.trace(nets.Images(), torch.zeros(2, 3, 32, 32), phase="prefill")
    assert inputs_of(graph) == {"image": "fp32[batch, 3, 32, 32]"}


def test_a_loss_of_the_user_takes_the_place_of_any_other(described: str) -> None:
    graph = load_model(f"{described}:Masked", options=TraceOptions(inputs=MASKED, loss=f"{described}:square"))
    assert num_ops(graph)["cross_entropy"] == 0
    said = message(
        UnknownNameError, f"{described}:Masked", options=TraceOptions(inputs=MASKED, loss=f"{described}:sqare")
    )
    assert "did you mean 'square'?" in said


def test_decode_names_its_caches_in_words_or_in_the_record(described: str) -> None:
    said = load_model(f"{described}:Step", "decode", options=TraceOptions(inputs=CACHED, caches=("keys", "values")))
    for graph in (said, load(f"{described}:as_run", "decode")):
        assert inputs_of(graph) == {
            "ids": "int64[batch, 1]", "cache.keys": "bf16[batch, 4, kv, 16]", "cache.values": "bf16[batch, 4, kv, 16]",
        }  # fmt: skip
    assert "--kv-cache" in message(NotBuiltError, f"{described}:Step", "decode")
    wrong = TraceOptions(inputs=CACHED, caches=("key",))
    assert "did you mean 'keys'?" in message(UnknownNameError, f"{described}:Step", "decode", wrong)


def test_a_leaf_in_words_takes_its_sizes_from_the_class(described: str) -> None:
    """Top two of eight experts of 3 x H x 128, one of 3 x H x 96 for all, and the router."""
    graph = load_model(f"{described}:Sparse", "prefill", options=TraceOptions(leaves=("Moe=experts(top_k=2)",)))
    a_token = 2 * (H * 8 + 2 * 3 * H * 128 + 3 * H * 96 + H * V)
    assert flops(graph, Phase.FORWARD) == TOKENS * a_token
    assert graph.num_parameters == 2 * V * H + H * 8 + 8 * 3 * H * 128 + 3 * H * 96


@pytest.mark.parametrize(
    ("leaf", "said"),
    [
        ("Mo=experts(top_k=2)", "did you mean 'Moe'?"),
        ("Moe=expert(top_k=2)", "did you mean 'experts'?"),
        ("Moe=experts(topk=2)", "did you mean 'top_k'?"),
        ("Moe=experts", "top_k cannot be read from the parameters of Moe"),
        ("Moe=experts(top_k)", "write top_k=VALUE"),
        ("Moe", "not of the form CLASS=KIND"),
        ("Moe=experts(top_k=2,ffn=64)", "parameters, the module"),
    ],
)
def test_leaves_that_do_not_fit_are_named(leaf: str, said: str, described: str) -> None:
    assert said in message(UsageError, f"{described}:Sparse", "prefill", TraceOptions(leaves=(leaf,)))


def test_a_factory_that_returns_something_else_says_what_it_may(described: str) -> None:
    assert "returned inputs of type int" in message(UsageError, f"{described}:wrong_inputs")


def small() -> nn.Sequential:
    return nn.Sequential(nn.Embedding(V, H), nn.Linear(H, H), nn.Linear(H, V))


def test_frozen_parameters_have_no_gradients_and_no_products_for_them() -> None:
    """Backward of the last layer is both products; of the frozen one nothing, since nothing before it is trained."""
    ids, net = torch.zeros(2, 8, dtype=torch.int64), small()
    net[0].requires_grad_(False)
    net[1].requires_grad_(False)
    graph = slipstick.trace(net, ids)
    trained = {r.by_id[p].name for r in graph.regions for p, _ in r.grads}
    assert {name.rpartition(".")[2] for name in trained} == {"weight", "bias"}
    assert len(trained) == 2
    assert flops(graph, Phase.BACKWARD) == TOKENS * 2 * H * V
    with pytest.raises(TraceError, match="no parameter of Sequential is to be trained"):
        slipstick.trace(net.requires_grad_(False), ids)


def test_wrappers_count_what_is_in_them() -> None:
    ids = torch.zeros(2, 8, dtype=torch.int64)
    want = slipstick.trace(small(), ids)
    for wrapped in (nn.DataParallel(small()), torch.compile(small(), backend="eager")):
        graph = slipstick.trace(wrapped, ids)  # type: ignore[arg-type]
        assert graph.num_parameters == want.num_parameters
        assert flops(graph) == flops(want)


def test_a_wrapper_of_a_model_of_transformers_runs_as_that_model() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=V, hidden_size=H, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip

    class Wrapper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = LlamaForCausalLM(config)

        def forward(self, input_ids: object = None, labels: object = None) -> object:
            return self.inner(input_ids=input_ids, labels=labels)

    graph = slipstick.trace(Wrapper(), phase=Workload.DECODE)
    assert graph.counts["block0"] == 3
    assert num_ops(graph)["attention"] == 3


class Int8(Tensor):
    """A weight in int8 with a scale a row, in the manner of quantising libraries: one tensor that is made of two."""

    @staticmethod
    def __new__(cls, data: Tensor, scale: Tensor) -> Int8:
        return Tensor._make_wrapper_subclass(cls, data.shape, dtype=scale.dtype, device=data.device)

    def __init__(self, data: Tensor, scale: Tensor) -> None:
        self.whole, self.scale = data, scale

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["whole", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, Tensor], meta: object, size: object, stride: object) -> Int8:
        return cls(inner["whole"], inner["scale"])

    @classmethod
    def __torch_function__(
        cls, func: object, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        if func is F.linear:
            x, weight, bias = args
            assert isinstance(x, Tensor)
            assert isinstance(weight, Int8)
            assert isinstance(bias, Tensor)
            return (x @ weight.whole.t().to(x.dtype)) * weight.scale + bias
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: object, types: object, args: tuple[Int8, ...], kwargs: object = None
    ) -> object:
        assert func is torch.ops.aten.detach.default
        return cls(args[0].whole, args[0].scale)


def test_quantised_weights_count_in_the_type_that_they_are_kept_in() -> None:
    net = small()
    last = net[2]
    data, scale = torch.zeros(V, H, dtype=torch.int8), torch.ones(V)
    last.weight = nn.Parameter(Int8(data, scale), requires_grad=False)
    graph = slipstick.trace(net, torch.zeros(2, 8, dtype=torch.int64), phase="prefill")
    assert str(graph.dtype) == "fp32"
    assert graph.parameter_bytes == 4 * (V * H + H * H + H) + (V * H + 4 * V) + 4 * V
    assert flops(graph) == TOKENS * 2 * (H * H + H * V)
    assert type(last) is nn.Linear
    assert isinstance(last.weight, Int8)


class Absent(nn.Module):
    """A class of which the net has no part."""


def test_a_leaf_of_a_class_that_is_not_there_names_those_that_are() -> None:
    net, ids = nn.Sequential(nn.Embedding(8, 4), nn.Linear(4, 8)), torch.zeros(2, 4, dtype=torch.int64)
    with pytest.raises(UnknownNameError, match=r"'Absent'; allowed: Embedding, Linear"):
        slipstick.trace(net, ids, leaves={Absent: lambda part: part})


@pytest.mark.parametrize("part", [False, True])
def test_a_compiled_module_is_recorded_as_what_it_compiles(part: bool) -> None:
    net, ids = nn.Sequential(nn.Embedding(8, 4), nn.Linear(4, 8)), torch.zeros(2, 4, dtype=torch.int64)
    plain = [n.op for n in slipstick.trace(net, ids).regions[0].nodes]
    if part:
        net[1] = cast(nn.Module, torch.compile(net[1], backend="eager"))
    compiled = net if part else cast(nn.Module, torch.compile(net, backend="eager"))
    assert [n.op for n in slipstick.trace(compiled, ids).regions[0].nodes] == plain


def test_a_sharded_module_says_to_give_it_before_it_is_wrapped() -> None:
    from torch import distributed
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        sharded = nn.Linear(4, 8)
        fully_shard(sharded)
        wrapped = FullyShardedDataParallel(nn.Linear(4, 8), device_id=torch.device("cpu"))
        for net in (sharded, wrapped, nn.Sequential(sharded)):
            with pytest.raises(TraceError, match=r"give the module before it is wrapped"):
                slipstick.trace(net, torch.zeros(2, 4))
        same = nn.parallel.DistributedDataParallel(nn.Linear(4, 8))
        assert float(slipstick.trace(same, torch.zeros(2, 4)).num_parameters.evaluate({})) == 40
    finally:
        distributed.destroy_process_group()


def test_the_statistics_that_replicas_exchange_are_not_dropped_in_silence() -> None:
    net, x = nn.Sequential(nn.Conv2d(3, 4, 1), nn.SyncBatchNorm(4)), torch.zeros(2, 3, 8, 8)
    said = [note for note in slipstick.trace(net, x).notes if "SyncBatchNorm" in note]
    assert said == [
        "the exchange of statistics over dp of 1 SyncBatchNorm layer(s) is not priced: 2 C + 1 numbers of C channels "
        "forward and 2 C backward"
    ]
    assert not any("SyncBatchNorm" in note for note in slipstick.trace(net, x, phase="prefill").notes)
