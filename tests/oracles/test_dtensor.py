"""The sharded graph against PyTorch's own DTensor: local shapes and collectives of two Llama-3.1-8B layers, TP = 8.

The real model runs forward and backward at real sizes on fake tensors; the process group is fake too and plays rank 0
of eight. Compared are, phase by phase, the collectives (kind and bytes of the full logical tensor), the sizes of
every matrix product, the heads that attention sees, and the shapes of the local parameters, of four plans.

What is not compared, because it differs on purpose:

- Reductions of weight gradients. DTensor leaves gradients of replicated parameters partial (those of norms under
  sequence parallelism) for the optimizer to reduce; our graph does it in its own phase, `reduce`.
- The gradient of a vocabulary-parallel table. DTensor computes the whole table's gradient on every rank; ours keeps
  the rows of the rank. Neither is a collective or a product, and the table itself is sharded alike.
- What moves no data: `wait_tensor`, casts, the rotary embedding.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import cast

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.testing._internal.distributed.fake_pg import FakeStore

from slipstick.frontend.record.adapter import DispatchMode
from slipstick.ir.graph import Graph, Phase, Role
from slipstick.ir.ops import call_of, work_of
from slipstick.ir.ops.collectives import CollectiveAttrs, message_bytes
from slipstick.ir.sizes.expr import Dim, as_expr
from slipstick.passes.manager import parse_pipeline

transformers = pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")


pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("no_packed_sequences")]

TP, BATCH, SEQ = 8, 1, 2048
BF16, FP32 = 2, 4  # bytes
HIDDEN_BYTES = BATCH * SEQ * 4096 * BF16  # the full logical [batch, seq, hidden]
LOGITS_BYTES = BATCH * SEQ * 128256 * BF16

Shape = tuple[int, ...]
Plan = dict[str, ParallelStyle]


@dataclass(frozen=True, slots=True)
class Ran:
    """What one phase runs on one rank."""

    collectives: Counter[tuple[str, int]] = field(default_factory=Counter)
    products: Counter[Shape] = field(default_factory=Counter)
    heads: Counter[tuple[Shape, ...]] = field(default_factory=Counter)


# Our side: the sharded graph, evaluated.


def sharded(graph: Graph, options: str) -> Graph:
    return parse_pipeline(f"shard{{{options}}}").run(graph)[0]


def number(dim: Dim) -> int:
    found = float(as_expr(dim).evaluate({"mbs": BATCH, "seq": SEQ, "tp": TP, "dp": 1}))
    assert found == int(found)
    return int(found)


def ours(graph: Graph, phase: Phase) -> Ran:
    ran = Ran()
    for region in graph.regions:
        count = graph.counts[region.name]
        for node in (n for n in region.nodes if n.phase is phase):
            call, work = call_of(region, node), work_of(region, node)
            if isinstance(node.attrs, CollectiveAttrs):
                ran.collectives[node.op, number(message_bytes(call))] += count
            for gemm in work.gemms:
                ran.products[number(gemm.batch * gemm.m), number(gemm.n), number(gemm.k)] += count
            if work.attention is not None:
                first = 0 if phase is Phase.FORWARD else 1
                shapes = (tuple(map(number, t.dims)) for t in call.inputs[first : first + 3])
                ran.heads[tuple(shapes)] += count
    return ran


def our_parameters(graph: Graph) -> Counter[Shape]:
    found: Counter[Shape] = Counter()
    for region in graph.regions:
        for v in region.of_role(Role.PARAM):
            found[tuple(map(number, v.type.dims))] += graph.counts[region.name]
    return found


# DTensor's side: the real model, recorded.

_KINDS = {
    "_c10d_functional.all_reduce.default": "all_reduce",
    "_c10d_functional.all_gather_into_tensor.default": "all_gather",
    "_c10d_functional.reduce_scatter_tensor.default": "reduce_scatter",
}


class Recorder(DispatchMode):
    """Notes what reaches the local tensors of the rank; DTensor turns its own calls into those first."""

    wrappers = (DTensor,)

    def __init__(self) -> None:
        super().__init__()
        self.ran = Ran()

    def note(
        self, func: torch._ops.OpOverload, args: Sequence[object], kwargs: Mapping[str, object], out: object
    ) -> None:
        self._note(str(func), [tuple(a.shape) for a in args if isinstance(a, torch.Tensor)], args, out)

    def _note(self, name: str, shapes: list[Shape], args: Sequence[object], result: object) -> None:
        if "c10d" in name and "wait_tensor" not in name:
            # The full logical tensor is the larger of what goes in and what comes out.
            self.ran.collectives[_KINDS[name], max(_num_bytes(args[0]), _num_bytes(result))] += 1
        elif name == "aten.mm.default":
            (m, k), (_, n) = shapes
            self.ran.products[m, n, k] += 1
        elif "attention" in name:
            first = 1 if "backward" in name else 0
            self.ran.heads[tuple(shapes[first : first + 3])] += 1
        assert "bmm" not in name
        assert "addmm" not in name


def _num_bytes(t: object) -> int:
    assert isinstance(t, torch.Tensor)
    return int(t.numel() * t.element_size())


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    """Eight ranks on the CPU; made outside of fake tensors, for a mesh reads its own ranks."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=TP)
    try:
        yield init_device_mesh("cpu", (TP,), mesh_dim_names=("tp",))
    finally:
        dist.destroy_process_group()


def layer_plan(between: Placement) -> Plan:
    """The layers of Megatron: column-parallel, then row-parallel; `between` is how activations lie in between."""
    columns = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
    rows = ("self_attn.o_proj", "mlp.down_proj")
    return {
        **{name: ColwiseParallel() for name in columns},
        **{name: RowwiseParallel(output_layouts=between) for name in rows},
    }


def prepared_layer_plan(between: Placement) -> Plan:
    """Attention and MLP receive one whole input, so that gradients of all layers behind it are summed first."""
    whole, states = Replicate(), "hidden_states"
    plan = layer_plan(between)
    plan["self_attn"] = PrepareModuleInput(
        input_kwarg_layouts={states: between}, desired_input_kwarg_layouts={states: whole}
    )
    plan["mlp"] = PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(whole,))
    if between != whole:
        plan |= {name: SequenceParallel() for name in ("input_layernorm", "post_attention_layernorm")}
    return plan


def outer_plan(between: Placement, whole_logits: bool) -> Plan:
    """Vocabulary-parallel table and head."""
    whole = Replicate()
    logits = whole if whole_logits else Shard(-1)
    plan: Plan = {
        "model.embed_tokens": RowwiseParallel(input_layouts=whole, output_layouts=between),
        "lm_head": ColwiseParallel(input_layouts=between, output_layouts=logits, use_local_output=whole_logits),
    }
    return plan if between == whole else {**plan, "model.norm": SequenceParallel()}


@dataclass(frozen=True, slots=True)
class Theirs:
    """Forward and backward phase as DTensor runs them, and the local parameters."""

    forward: Ran
    backward: Ran
    parameters: Counter[Shape]


def run(config_text: str, mesh: DeviceMesh, layer: Plan, outer: Plan, vocabulary_loss: bool = False) -> Theirs:
    fields = cast("dict[str, object]", json.loads(config_text))
    config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
        parallelize_module(model, mesh, outer)
        for block in model.model.layers:
            parallelize_module(block, mesh, layer)
        # The first run shows the global shapes too, of which DTensor propagates placements; the second does not.
        step(model, vocabulary_loss)
        model.zero_grad()
        forward, backward = step(model, vocabulary_loss)
        shapes = (p.to_local().shape if isinstance(p, DTensor) else p.shape for p in model.parameters())
        return Theirs(forward, backward, Counter(tuple(shape) for shape in shapes))


def step(model: Callable[..., object], vocabulary_loss: bool) -> tuple[Ran, Ran]:
    ids, positions = torch.zeros(BATCH, SEQ, dtype=torch.int64), torch.arange(SEQ)[None]
    with loss_parallel() if vocabulary_loss else nullcontext():
        with Recorder() as forward:
            # Positions are given: from embeddings sharded over the sequence the model would count the local ones only.
            logits = model(input_ids=ids, position_ids=positions, use_cache=False).logits  # type: ignore[attr-defined]
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids.flatten())
        with Recorder() as backward:
            loss.backward()  # type: ignore[no-untyped-call]
    return forward.ran, backward.ran


def assert_same(graph: Graph, theirs: Theirs) -> None:
    assert ours(graph, Phase.FORWARD) == theirs.forward
    assert ours(graph, Phase.BACKWARD) == theirs.backward
    assert our_parameters(graph) == theirs.parameters


def test_layers_split_module_by_module(two_layer_graph: Graph, two_layers: str, mesh: DeviceMesh) -> None:
    theirs = run(two_layers, mesh, layer_plan(Replicate()), {})
    assert theirs.forward.collectives == {("all_reduce", HIDDEN_BYTES): 4}
    # One a column-parallel layer: q, k, v, gate and up of two layers.
    assert theirs.backward.collectives == {("all_reduce", HIDDEN_BYTES): 10}
    assert_same(sharded(two_layer_graph, 'tp_plan="dtensor-naive"'), theirs)


def test_gradients_of_a_prepared_input_are_summed_before_they_are_reduced(
    two_layer_graph: Graph, two_layers: str, mesh: DeviceMesh
) -> None:
    whole = Replicate()
    theirs = run(two_layers, mesh, prepared_layer_plan(whole), outer_plan(whole, whole_logits=True))
    # Two a layer, and one for the table; the logits are gathered for an ordinary loss.
    assert theirs.forward.collectives == {("all_reduce", HIDDEN_BYTES): 5, ("all_gather", LOGITS_BYTES): 1}
    # Two a layer, and one for the input of the head.
    assert theirs.backward.collectives == {("all_reduce", HIDDEN_BYTES): 5}
    assert_same(sharded(two_layer_graph, 'tp_plan="dtensor"'), theirs)


def test_sequence_parallelism(two_layer_graph: Graph, two_layers: str, mesh: DeviceMesh) -> None:
    along = Shard(1)
    theirs = run(two_layers, mesh, prepared_layer_plan(along), outer_plan(along, whole_logits=True))
    assert theirs.forward.collectives == {
        ("all_gather", HIDDEN_BYTES): 5,
        ("reduce_scatter", HIDDEN_BYTES): 5,
        ("all_gather", LOGITS_BYTES): 1,
    }
    assert theirs.backward.collectives == {("all_gather", HIDDEN_BYTES): 5, ("reduce_scatter", HIDDEN_BYTES): 5}
    assert_same(sharded(two_layer_graph, 'tp_plan="dtensor", sp=true'), theirs)


def test_a_vocabulary_parallel_loss_reduces_twelve_bytes_a_token(
    two_layer_graph: Graph, two_layers: str, mesh: DeviceMesh
) -> None:
    along = Shard(1)
    outer = outer_plan(along, whole_logits=False)
    theirs = run(two_layers, mesh, prepared_layer_plan(along), outer, vocabulary_loss=True)
    graph = sharded(two_layer_graph, 'tp_plan="megatron", sp=true')
    # DTensor reduces maximum, sum and target logit one by one; ours are three columns of one message.
    row_bytes = BATCH * SEQ * FP32
    assert theirs.forward.collectives.pop(("all_reduce", row_bytes)) == 3
    forward = ours(graph, Phase.FORWARD)
    assert forward.collectives.pop(("all_reduce", 3 * row_bytes)) == 1
    assert forward == theirs.forward
    assert ours(graph, Phase.BACKWARD) == theirs.backward
    assert our_parameters(graph) == theirs.parameters
