"""ZeRO and recomputation against PyTorch's own FSDP2: parameters at rest and collectives of two Llama-3.1-8B layers.

The real model runs forward and backward at real sizes on fake tensors; the process group is fake too and plays rank 0
of eight, as eight replicas or as two replicas of tensor-parallel groups of four. Compared are, phase by phase, the
collectives (kind, axis, bytes of the full logical tensor) and the shapes that parameters rest in.

What differs on purpose, and what makes it equal:

- Units. Ours are the regions: the table; each layer; norm and head. FSDP2's are what the user wraps; wrapped like
  ours, the collectives are the same. Wrapped layer by layer only, it gathers table, norm and head as one root unit.
- The table. FSDP2 gathers every unit again for its backward phase unless told that it does not need to; ours gathers
  what is read, and the gradient of a table reads no table.
- The last unit. FSDP2 leaves the root unit gathered between the phases, as users do with norm and head; ours frees
  it like the others, and keeps it with `bucket{keep_last=true}`.
- Type of reductions. FSDP2 reduces gradients in their own type, or converts first (`reduce_dtype`); ours reduces in
  their own type and then adds to a sum, which may be wider.
- Stage 2 (`reshard_after_forward=False`). FSDP2 gathers at the first use of a step, ours behind the optimizer.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore

from slipstick.frontend.record.adapter import DispatchMode
from slipstick.ir.graph import Graph, Phase, Role
from slipstick.ir.ops import call_of
from slipstick.ir.ops.collectives import CollectiveAttrs, message_bytes
from slipstick.ir.sizes.expr import Dim, as_expr
from slipstick.passes.manager import parse_pipeline

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

transformers = pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("no_packed_sequences")]

RANKS, BATCH, SEQ = 8, 1, 2048
BF16, FP32 = 2, 4  # bytes
HIDDEN_BYTES = BATCH * SEQ * 4096 * BF16
TABLE = 128256 * 4096
LAYER = 2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096 + 2 * 4096
HEAD = TABLE + 4096  # with the norm before it

Shape = tuple[int, ...]
Message = tuple[str, str, int]
Messages = Counter[Message]
Precision = MixedPrecisionPolicy


def gathers(*numels: int) -> Messages:
    return Counter(("all_gather", "dp", n * BF16) for n in numels)


def scatters(*numels: int, width: int = BF16) -> Messages:
    return Counter(("reduce_scatter", "dp", n * width) for n in numels)


def reduces(times: int) -> Messages:
    return Counter({("all_reduce", "tp", HIDDEN_BYTES): times})


# Our side: the lowered graph, evaluated.


@dataclass(frozen=True, slots=True)
class Ours:
    """Collectives by phase, and parameters at rest; `tp` ranks a group."""

    graph: Graph
    tp: int = 1

    def messages(self, *phases: Phase) -> Messages:
        found: Messages = Counter()
        for region in self.graph.regions:
            for node in region.nodes:
                if isinstance(node.attrs, CollectiveAttrs) and node.phase in phases and self._talks(node.attrs.axis):
                    size = self.number(message_bytes(call_of(region, node)))
                    found[node.op, node.attrs.axis, size] += self.graph.counts[region.name]
        return found

    @property
    def forward(self) -> Messages:
        return self.messages(Phase.FORWARD)

    @property
    def backward(self) -> Messages:
        return self.messages(Phase.RECOMPUTE, Phase.BACKWARD)

    @property
    def parameters(self) -> Counter[Shape]:
        found: Counter[Shape] = Counter()
        for region in self.graph.regions:
            for v in region.of_role(Role.PARAM):
                found[tuple(map(self.number, v.type.dims))] += self.graph.counts[region.name]
        return found

    def _talks(self, axis: str) -> bool:
        return axis == "dp" or self.tp > 1

    def number(self, dim: Dim) -> int:
        found = float(as_expr(dim).evaluate({"mbs": BATCH, "seq": SEQ, "tp": self.tp, "dp": RANKS // self.tp}))
        assert found == int(found)
        return int(found)


def lowered(graph: Graph, zero: int = 3, recompute: str = "", keep_last: bool = False, tp: int = 1) -> Ours:
    passes = (
        'accumulate{dtype="bf16"}',
        f'shard{{tp_plan="dtensor-naive", zero={zero}}}',
        *([f"recompute{{{recompute}}}"] if recompute else []),
        f"bucket{{keep_last={str(keep_last).lower()}}}",
        "optimizer",
    )
    return Ours(parse_pipeline(",".join(passes)).run(graph)[0], tp)


# PyTorch's side: the real model, recorded.


@dataclass(frozen=True, slots=True)
class Theirs:
    """Collectives of the forward and the backward phase, and parameters at rest."""

    forward: Messages
    backward: Messages
    parameters: Counter[Shape] = field(default_factory=Counter)


class Recorder(DispatchMode):
    """Notes the collectives of one rank: FSDP's and DDP's run on `dp`, DTensor's on `tp`."""

    wrappers = (DTensor,)

    def __init__(self) -> None:
        super().__init__()
        self.found: Messages = Counter()

    def note(
        self, func: torch._ops.OpOverload, args: Sequence[object], kwargs: Mapping[str, object], out: object
    ) -> None:
        name = str(func)
        if name == "c10d._allgather_base_.default":
            self.found["all_gather", "dp", _num_bytes(args[0])] += 1
        elif name == "c10d._reduce_scatter_base_.default":
            self.found["reduce_scatter", "dp", _num_bytes(args[1])] += 1
        elif name == "c10d.allreduce_.default":
            self.found["all_reduce", "dp", _num_bytes(cast("Sequence[object]", args[0])[0])] += 1
        elif name == "_c10d_functional.all_reduce.default":
            self.found["all_reduce", "tp", _num_bytes(args[0])] += 1
        else:
            assert "c10d" not in name or "wait_tensor" in name


def _num_bytes(t: object) -> int:
    assert isinstance(t, torch.Tensor)
    return int(t.numel() * t.element_size())


@contextmanager
def ranks(tp: int) -> Iterator[tuple[DeviceMesh, DeviceMesh]]:
    """Replicas and tensor-parallel group of rank 0; made outside of fake tensors, for a mesh reads its ranks."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    try:
        mesh = init_device_mesh("cpu", (RANKS // tp, tp), mesh_dim_names=("dp", "tp"))
        yield mesh["dp"], mesh["tp"]
    finally:
        dist.destroy_process_group()


Wrap = Callable[["LlamaForCausalLM", DeviceMesh], None]


def like_regions(reduce_dtype: torch.dtype | None = None, free: bool = True, free_last: bool = True) -> Wrap:
    """Units that are our regions, freed after the forward phase or not."""

    def wrap(model: LlamaForCausalLM, mesh: DeviceMesh) -> None:
        precision = Precision(reduce_dtype=reduce_dtype)
        table, last = model.model.embed_tokens, [model.model.norm, model.lm_head]
        fully_shard(table, mesh=mesh, mp_policy=precision, reshard_after_forward=free)
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh, mp_policy=precision, reshard_after_forward=free)
        fully_shard(last, mesh=mesh, mp_policy=precision, reshard_after_forward=free and free_last)
        fully_shard(model, mesh=mesh, mp_policy=precision)
        assert isinstance(table, FSDPModule)
        table.set_unshard_in_backward(False)

    return wrap


def layer_by_layer(model: LlamaForCausalLM, mesh: DeviceMesh) -> None:
    """Layers are units; what is left belongs to the root."""
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def replicas(model: LlamaForCausalLM, mesh: DeviceMesh) -> None:
    """Nothing is sharded."""
    for unit in (model.model.embed_tokens, *model.model.layers, [model.model.norm, model.lm_head], model):
        replicate(unit, mesh=mesh)


def run(config_text: str, wrap: Wrap, tp: int = 1, checkpoints: Mapping[str, bool] | None = None) -> Theirs:
    fields = cast("dict[str, object]", json.loads(config_text))
    config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with ranks(tp) as (replica_mesh, group):
        with fake:
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
            if tp > 1:
                split_layers(model, group)
        wrap(model, replica_mesh)
        if checkpoints is not None:
            model.activation_checkpointing_enable(dict(checkpoints))
        with fake:
            # The first run shows DTensor's own propagation of global shapes and FSDP's preparations too.
            step(model)
            model.zero_grad()
            forward, backward = step(model)
            parameters = [p.to_local() if isinstance(p, DTensor) else p for p in model.parameters()]
            return Theirs(forward, backward, Counter(tuple(p.shape) for p in parameters))


def split_layers(model: LlamaForCausalLM, group: DeviceMesh) -> None:
    columns = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
    plan: dict[str, ParallelStyle] = {name: ColwiseParallel() for name in columns}
    plan |= {name: RowwiseParallel() for name in ("self_attn.o_proj", "mlp.down_proj")}
    for layer in model.model.layers:
        parallelize_module(layer, group, plan)


def step(model: LlamaForCausalLM) -> tuple[Messages, Messages]:
    ids, positions = torch.zeros(BATCH, SEQ, dtype=torch.int64), torch.arange(SEQ)[None]
    with Recorder() as forward:
        logits = model(input_ids=ids, position_ids=positions, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids.flatten())
    with Recorder() as backward:
        torch.autograd.backward(loss)
    return forward.found, backward.found


def assert_same(ours: Ours, theirs: Theirs) -> None:
    assert ours.forward == theirs.forward
    assert ours.backward == theirs.backward
    assert ours.parameters == theirs.parameters


def test_units_like_our_regions(two_layers: str, two_layer_graph: Graph) -> None:
    theirs = run(two_layers, like_regions())
    assert theirs.forward == gathers(TABLE, LAYER, LAYER, HEAD)
    assert theirs.backward == gathers(LAYER, LAYER, HEAD) + scatters(TABLE, LAYER, LAYER, HEAD)
    assert_same(lowered(two_layer_graph), theirs)


def test_a_last_unit_that_stays_gathered(two_layers: str, two_layer_graph: Graph) -> None:
    theirs = run(two_layers, like_regions(free_last=False))
    assert theirs.backward == gathers(LAYER, LAYER) + scatters(TABLE, LAYER, LAYER, HEAD)
    assert_same(lowered(two_layer_graph, keep_last=True), theirs)


def test_the_root_as_one_unit_is_our_prologue_and_epilogue(two_layers: str, two_layer_graph: Graph) -> None:
    theirs, ours = run(two_layers, layer_by_layer), lowered(two_layer_graph, keep_last=True)
    assert theirs.forward - gathers(TABLE + HEAD) == ours.forward - gathers(TABLE, HEAD) == gathers(LAYER, LAYER)
    assert theirs.backward - scatters(TABLE + HEAD) == ours.backward - scatters(TABLE, HEAD)
    assert total_bytes(theirs.forward) == total_bytes(ours.forward)
    assert total_bytes(theirs.backward) == total_bytes(ours.backward)
    assert ours.parameters == theirs.parameters


def total_bytes(found: Messages) -> int:
    return sum(size * times for (_, _, size), times in found.items())


def test_converted_before_they_are_reduced_gradients_are_twice_as_long(two_layers: str, two_layer_graph: Graph) -> None:
    theirs, ours = run(two_layers, like_regions(torch.float32)), lowered(two_layer_graph)
    again = gathers(LAYER, LAYER, HEAD)
    assert theirs.forward == ours.forward
    assert theirs.backward - again == scatters(TABLE, LAYER, LAYER, HEAD, width=FP32)
    assert ours.backward - again == scatters(TABLE, LAYER, LAYER, HEAD)


def test_two_replicas_of_tensor_parallel_groups(two_layers: str, two_layer_graph: Graph) -> None:
    theirs = run(two_layers, like_regions(), tp=4)
    split = (LAYER - 2 * 4096) // 4 + 2 * 4096  # a rank holds a quarter of every matrix, and both norms
    # Two all-reduces a layer forward; backward one a column-parallel layer, q, k, v, gate and up.
    assert theirs.forward == gathers(TABLE, split, split, HEAD) + reduces(4)
    assert theirs.backward == gathers(split, split, HEAD) + scatters(TABLE, split, split, HEAD) + reduces(10)
    assert_same(lowered(two_layer_graph, tp=4), theirs)


@pytest.mark.parametrize("tp", [1, 4])
def test_recomputed_layers_are_gathered_once_in_backward(two_layers: str, two_layer_graph: Graph, tp: int) -> None:
    theirs = run(two_layers, like_regions(), tp, {"use_reentrant": False})
    kept = lowered(two_layer_graph, tp=tp)
    # The sum behind attention once more a layer; checkpoints stop before the one behind the MLP, which nothing needs.
    assert theirs.backward == kept.backward + (reduces(2) if tp > 1 else Counter())
    assert_same(lowered(two_layer_graph, recompute='policy="full"', tp=tp), theirs)


def test_stage_2_gathers_once_a_step(two_layers: str, two_layer_graph: Graph) -> None:
    theirs, ours = run(two_layers, like_regions(free=False)), lowered(two_layer_graph, zero=2)
    assert theirs.forward == gathers(TABLE, LAYER, LAYER, HEAD) == ours.messages(Phase.OPTIMIZER)
    assert theirs.backward == scatters(TABLE, LAYER, LAYER, HEAD) == ours.backward
    assert ours.forward == Counter()


def test_replicas_reduce_every_region(two_layers: str, two_layer_graph: Graph) -> None:
    theirs, ours = run(two_layers, replicas), lowered(two_layer_graph, zero=0)
    everything = Counter(("all_reduce", "dp", n * BF16) for n in (TABLE, LAYER, LAYER, HEAD))
    assert theirs.backward == everything == ours.messages(Phase.REDUCE)
    assert theirs.forward == ours.forward == ours.backward == Counter()
    assert ours.parameters == theirs.parameters
