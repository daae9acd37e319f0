"""Hybrid sharding, reshard policies and the type of reductions against PyTorch's own FSDP2, over groups and phases.

The real models run forward and backward at real sizes on fake tensors; the process group is fake too and plays rank 0
of eight, on a mesh of replicas x shards x tensor-parallel ranks. Compared are the collectives of each phase (kind,
axis, bytes of the full logical tensor) and the shapes that parameters rest in.

What differs on purpose, and what makes it equal (see `test_fsdp.py` for units, tables and the last unit):

- Summing over replicas. FSDP2 sums the shards of every micro-batch over the replicas unless told to wait for the last
  (`set_requires_all_reduce`); ours does so once a step, as people do who accumulate.
- Parameters kept for a step. FSDP2 gathers at the first use of a step, in the forward phase; ours books the same
  gathers in a phase of their own that runs once a step.
- A type of reductions. FSDP2 converts back to the type of the parameters, ours to the type of the sums.
- Tied weights. FSDP2 keeps them in one unit; ours gathers them for each region that reads them.
- Padding. FSDP2 pads the first dim to a multiple of the shards; ours cuts evenly, as if rows could be cut.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore

from slipstick.driver.estimate import pipeline_for
from slipstick.frontend import load
from slipstick.frontend.huggingface.configs.models import read_config
from slipstick.frontend.record.adapter import DispatchMode
from slipstick.ir.graph import Graph, Phase, Role
from slipstick.ir.ops import call_of
from slipstick.ir.ops.collectives import CollectiveAttrs, message_bytes
from slipstick.ir.plan import Family
from slipstick.ir.sizes.expr import Dim, as_expr
from slipstick.ir.types import DType

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

transformers = pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("no_packed_sequences")]

RANKS, BATCH, SEQ = 8, 1, 512
BF16, FP32 = 2, 4  # bytes
AXES = ("dp", "fsdp", "tp")

# Sizes of the models as published; two layers of each.
LLAMA_TABLE = 128256 * 4096
LLAMA_LAYER = 2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096 + 2 * 4096
LLAMA_UNITS = (LLAMA_TABLE, LLAMA_LAYER, LLAMA_LAYER, LLAMA_TABLE + 4096)
QWEN_TABLE = 151936 * 4096
QWEN_LAYER = 2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 12288 * 4096 + 2 * 4096 + 2 * 128  # norms of queries and keys
GPT2_LAYER = 12 * 768 * 768 + 13 * 768  # with biases and two norms of two vectors

Shape = tuple[int, ...]
Message = tuple[str, str, int]
Messages = Counter[Message]
FP32_SUMS = Family(zero=3, tp_plan="dtensor-naive", fused=False)
BF16_SUMS = Family(zero=3, tp_plan="dtensor-naive", fused=False, grad_dtype=DType.BF16)


def gathers(*numels: int, axis: str = "fsdp") -> Messages:
    return Counter(("all_gather", axis, n * BF16) for n in numels)


def scatters(*numels: int, axis: str = "fsdp", width: int = BF16) -> Messages:
    return Counter(("reduce_scatter", axis, n * width) for n in numels)


@dataclass(frozen=True, slots=True)
class Degrees:
    """Replicas x shards x tensor-parallel ranks; without replicas, `hybrid` is false and the shards are `dp`."""

    fsdp: int
    tp: int = 1
    hybrid: bool = True

    @property
    def sizes(self) -> Shape:
        return (RANKS // (self.fsdp * self.tp), self.fsdp, self.tp)

    @property
    def symbols(self) -> Mapping[str, int]:
        dp, fsdp, tp = self.sizes
        return {"dp": dp, "fsdp": fsdp, "tp": tp} if self.hybrid else {"dp": fsdp, "tp": tp}


@dataclass(frozen=True, slots=True)
class Ran:
    """Collectives of a forward and a backward phase, and parameters at rest."""

    forward: Messages
    backward: Messages
    parameters: Counter[Shape]


# Our side: the lowered graph, evaluated.


@dataclass(frozen=True, slots=True)
class Ours:
    graph: Graph
    degrees: Degrees

    def messages(self, *phases: Phase) -> Messages:
        found: Messages = Counter()
        for region in self.graph.regions:
            for node in region.nodes:
                if isinstance(node.attrs, CollectiveAttrs) and node.phase in phases and self._talks(node.attrs):
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
    def once(self) -> Messages:
        return self.messages(Phase.REDUCE)

    @property
    def parameters(self) -> Counter[Shape]:
        found: Counter[Shape] = Counter()
        for region in self.graph.regions:
            for v in region.of_role(Role.PARAM):
                found[tuple(map(self.number, v.type.dims))] += self.graph.counts[region.name]
        return found

    def _talks(self, attrs: CollectiveAttrs) -> bool:
        # Copies of heads (`tp/8`) there are only with more ranks than heads.
        return any(self.degrees.symbols.get(a, 1) > 1 for a in attrs.axes)

    def number(self, dim: Dim) -> int:
        found = float(as_expr(dim).evaluate({"mbs": BATCH, "seq": SEQ, **self.degrees.symbols}))
        assert found == int(found)
        return int(found)


def lowered(graph: Graph, degrees: Degrees, family: Family) -> Ours:
    return Ours(pipeline_for(family).run(graph)[0], degrees)


# PyTorch's side: the real model, recorded.


class Recorder(DispatchMode):
    """Notes the collectives of one rank with the mesh axis of their group."""

    wrappers = (DTensor,)

    def __init__(self, axis_of: Mapping[str, str]) -> None:
        super().__init__()
        self.axis_of, self.found = axis_of, cast(Messages, Counter())

    def note(
        self, func: torch._ops.OpOverload, args: Sequence[object], kwargs: Mapping[str, object], out: object
    ) -> None:
        name = str(func)
        if name == "c10d._allgather_base_.default":
            self._note("all_gather", args[0], args[2])
        elif name == "c10d._reduce_scatter_base_.default":
            self._note("reduce_scatter", args[1], args[2])
        elif name == "c10d.allreduce_.default":
            self._note("all_reduce", cast("Sequence[object]", args[0])[0], args[1])
        elif name == "_c10d_functional.all_reduce.default":
            self._note("all_reduce", args[0], "tp")
        else:
            assert "c10d" not in name or "wait_tensor" in name

    def _note(self, kind: str, tensor: object, group: object) -> None:
        assert isinstance(tensor, torch.Tensor)
        name = dist.ProcessGroup.unbox(group).group_name if isinstance(group, torch.ScriptObject) else "tp"
        axis = self.axis_of.get(name, name)
        self.found[kind, axis, int(tensor.numel() * tensor.element_size())] += 1


@contextmanager
def ranks(degrees: Degrees) -> Iterator[DeviceMesh]:
    """The mesh of rank 0; made outside of fake tensors, for a mesh reads its ranks."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    try:
        yield init_device_mesh("cpu", degrees.sizes, mesh_dim_names=AXES)
    finally:
        dist.destroy_process_group()


@dataclass(frozen=True, slots=True)
class Wrap:
    """Units that are our regions (or the layers of GPT-2 and the rest), freed or not, and the type of reductions."""

    free: bool = True
    reduced: torch.dtype | None = None

    def apply(self, model: LlamaForCausalLM, mesh: DeviceMesh) -> None:
        precision = MixedPrecisionPolicy(reduce_dtype=self.reduced)
        blocks = dict(model.named_modules()).get("transformer.h")
        if blocks is None:
            table, units = model.model.embed_tokens, [*model.model.layers, [model.model.norm, model.lm_head]]
        else:
            table, *units = blocks.children()
        for unit in (table, *units):
            fully_shard(unit, mesh=mesh, mp_policy=precision, reshard_after_forward=self.free)
        fully_shard(model, mesh=mesh, mp_policy=precision)
        if blocks is None:
            cast(FSDPModule, table).set_unshard_in_backward(False)


def run(config_text: str, degrees: Degrees, wrap: Wrap, before: Callable[[FSDPModule], None] | None = None) -> Ran:
    """Run a step to warm up, then, after what `before` sets, one micro-batch that is recorded."""
    fields = cast("dict[str, object]", json.loads(config_text))
    config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with ranks(degrees) as mesh:
        names = AXES if degrees.hybrid else ("", "dp", "tp")
        axis_of = {str(mesh.get_group(a).group_name): name for a, name in zip(AXES, names, strict=True)}
        with fake:
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
            if degrees.tp > 1:
                split_layers(model, mesh["tp"])
        wrap.apply(model, mesh["dp", "fsdp"] if degrees.hybrid else mesh["fsdp"])
        with fake:
            step(model, axis_of)
            model.zero_grad()
            if before is not None:
                before(model)
                step(model, axis_of)
            forward, backward = step(model, axis_of)
            parameters = [p.to_local() if isinstance(p, DTensor) else p for p in model.parameters()]
            return Ran(forward, backward, Counter(tuple(p.shape) for p in parameters))


def split_layers(model: LlamaForCausalLM, group: DeviceMesh) -> None:
    columns = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
    plan: dict[str, ParallelStyle] = {name: ColwiseParallel() for name in columns}
    plan |= {name: RowwiseParallel() for name in ("self_attn.o_proj", "mlp.down_proj")}
    for layer in model.model.layers:
        parallelize_module(layer, group, plan)


def step(model: LlamaForCausalLM, axis_of: Mapping[str, str]) -> tuple[Messages, Messages]:
    ids, positions = torch.zeros(BATCH, SEQ, dtype=torch.int64), torch.arange(SEQ)[None]
    with Recorder(axis_of) as forward:
        logits = model(input_ids=ids, position_ids=positions, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids.flatten())
    with Recorder(axis_of) as backward:
        torch.autograd.backward(loss)
    return forward.found, backward.found


def two_layers_of(name: str) -> str:
    fields = cast("dict[str, object]", json.loads(read_config(name).text))
    return json.dumps(fields | {"n_layer" if "n_layer" in fields else "num_hidden_layers": 2})


def graph_of(text: str, path: Path) -> Graph:
    path.write_text(text, encoding="utf-8")
    return load(str(path))


def assert_same(ours: Ours, theirs: Ran) -> None:
    """FSDP2 sums over replicas in the backward phase of each micro-batch, ours once a step: the same for one."""
    assert theirs.forward == ours.forward
    assert theirs.backward == ours.backward + ours.once
    assert ours.parameters == theirs.parameters


@pytest.mark.parametrize("fsdp", [2, 4])
def test_shards_are_gathered_inside_a_group_and_summed_over_the_groups(
    two_layers: str, two_layer_graph: Graph, fsdp: int
) -> None:
    degrees = Degrees(fsdp)
    theirs = run(two_layers, degrees, Wrap())
    ours = lowered(two_layer_graph, degrees, replace(BF16_SUMS, hsdp=True))
    assert theirs.forward == gathers(*LLAMA_UNITS) == ours.forward
    # The sums over groups are of shards.
    late: Messages = Counter(("all_reduce", "dp", n // fsdp * BF16) for n in LLAMA_UNITS)
    assert theirs.backward == gathers(*LLAMA_UNITS[1:]) + scatters(*LLAMA_UNITS) + late
    assert ours.once == late
    assert_same(ours, theirs)


def test_replicas_of_groups_of_tensor_parallel_ranks(two_layers: str, two_layer_graph: Graph) -> None:
    degrees = Degrees(2, tp=2)
    theirs = run(two_layers, degrees, Wrap())
    ours = lowered(two_layer_graph, degrees, replace(BF16_SUMS, hsdp=True))
    split = (LLAMA_LAYER - 2 * 4096) // 2 + 2 * 4096  # half of every matrix, and both norms
    in_group: Messages = Counter({("all_reduce", "tp", BATCH * SEQ * 4096 * BF16): 4})
    assert theirs.forward - in_group == gathers(LLAMA_TABLE, split, split, LLAMA_TABLE + 4096)
    assert_same(ours, theirs)


def test_accumulating_people_sum_over_the_groups_once_a_step(two_layers: str, two_layer_graph: Graph) -> None:
    # A micro-batch that is not the last.
    degrees = Degrees(4)
    theirs = run(two_layers, degrees, Wrap(), lambda model: model.set_requires_all_reduce(False))
    ours = lowered(two_layer_graph, degrees, replace(BF16_SUMS, hsdp=True))
    assert theirs.forward == ours.forward
    assert theirs.backward == ours.backward == gathers(*LLAMA_UNITS[1:]) + scatters(*LLAMA_UNITS)


@pytest.mark.parametrize("degrees", [Degrees(8, hybrid=False), Degrees(4, tp=2, hybrid=False), Degrees(4)])
def test_kept_until_the_backward_phase_nothing_is_gathered_again(
    two_layers: str, two_layer_graph: Graph, degrees: Degrees
) -> None:
    theirs = run(two_layers, degrees, Wrap(free=False))
    family = replace(BF16_SUMS, hsdp=degrees.hybrid, reshard="microbatch")
    ours = lowered(two_layer_graph, degrees, family)
    assert not only(theirs.backward, "all_gather")
    assert_same(ours, theirs)


def test_kept_for_a_step_parameters_are_gathered_once(two_layers: str, two_layer_graph: Graph) -> None:
    degrees = Degrees(8, hybrid=False)
    ours = lowered(two_layer_graph, degrees, replace(BF16_SUMS, reshard="step"))
    last = run(two_layers, degrees, Wrap(free=False), partial(kept, last=True))
    within = run(two_layers, degrees, Wrap(free=False), partial(kept, last=False))
    # Nothing is gathered after the first micro-batch; gradients are scattered with the last.
    assert within.forward == within.backward == Counter() == ours.forward == ours.backward
    assert last.forward == Counter()
    assert last.backward == scatters(*LLAMA_UNITS, axis="dp") == ours.once
    cold = run(two_layers, degrees, Wrap(free=False))
    assert cold.forward == gathers(*LLAMA_UNITS, axis="dp") == ours.messages(Phase.PREPARE)
    assert ours.messages(Phase.OPTIMIZER) == Counter()


def kept(model: FSDPModule, last: bool) -> None:
    model.set_reshard_after_backward(False)
    model.set_requires_gradient_sync(last)


@pytest.mark.parametrize("degrees", [Degrees(8, hybrid=False), Degrees(4)])
def test_gradients_converted_before_they_are_reduced(two_layers: str, two_layer_graph: Graph, degrees: Degrees) -> None:
    theirs = run(two_layers, degrees, Wrap(reduced=torch.float32))
    axis = "fsdp" if degrees.hybrid else "dp"
    for base in (FP32_SUMS, BF16_SUMS):
        ours = lowered(two_layer_graph, degrees, replace(base, hsdp=degrees.hybrid, reduce_dtype=DType.FP32))
        assert_same(ours, theirs)
        assert ours.backward - gathers(*LLAMA_UNITS, axis=axis) == scatters(*LLAMA_UNITS, axis=axis, width=FP32)


@pytest.mark.parametrize("degrees", [Degrees(8, hybrid=False), Degrees(2)])
def test_norms_of_queries_and_keys_are_in_their_layer(tmp_path: Path, degrees: Degrees) -> None:
    text = two_layers_of("qwen3-8b")
    theirs = run(text, degrees, Wrap())
    ours = lowered(graph_of(text, tmp_path / "config.json"), degrees, replace(BF16_SUMS, hsdp=degrees.hybrid))
    axis = "fsdp" if degrees.hybrid else "dp"
    assert theirs.forward == gathers(QWEN_TABLE, QWEN_LAYER, QWEN_LAYER, QWEN_TABLE + 4096, axis=axis)
    assert_same(ours, theirs)


@pytest.mark.parametrize("degrees", [Degrees(8, hybrid=False), Degrees(4)])
def test_biases_and_tied_tables(tmp_path: Path, degrees: Degrees) -> None:
    text = two_layers_of("gpt2")
    theirs = run(text, degrees, Wrap())
    ours = lowered(graph_of(text, tmp_path / "config.json"), degrees, replace(BF16_SUMS, hsdp=degrees.hybrid))
    axis = "fsdp" if degrees.hybrid else "dp"
    layers = gathers(GPT2_LAYER, GPT2_LAYER, axis=axis)
    assert not layers - theirs.forward
    assert not layers - ours.forward
    # The tied table is gathered by both regions that read it; root, theirs, has it once, padded.
    table, padding = 50257 * 768 * BF16, -50257 % degrees.fsdp * 768 * BF16
    assert total_bytes(ours.forward) - table == total_bytes(theirs.forward) - padding
    mine, given = (only(ran.backward, "reduce_scatter") for ran in (ours, theirs))
    assert not scatters(GPT2_LAYER, GPT2_LAYER, axis=axis) - mine
    assert total_bytes(mine) == total_bytes(given) - padding
    summed = padding // degrees.fsdp if degrees.hybrid else 0
    assert total_bytes(ours.once) == total_bytes(only(theirs.backward, "all_reduce")) - summed


def only(found: Messages, kind: str) -> Messages:
    return Counter({message: times for message, times in found.items() if message[0] == kind})


def total_bytes(found: Messages) -> int:
    return sum(size * times for (_, _, size), times in found.items())
