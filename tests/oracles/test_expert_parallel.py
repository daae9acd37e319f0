"""Expert parallelism against PyTorch: what two layers of Mixtral-8x7B exchange, gather, multiply and hold.

The model is that of transformers at its real sizes, on fake tensors and a fake process group that plays rank 0 of 32.
By hand is the dispatch, for that of transformers looks at its data, of which there is none: every expert gets as many
rows as any other, and they go to their experts and back by PyTorch's own collectives, as its users write it. PyTorch is
asked for all that follows: what autograd makes of those collectives in the backward phase, what DTensor sends for
attention, norms and both ends, what FSDP2 gathers and scatters where experts have replicas of their own. Compared are,
phase by phase, the collectives (kind, axes, ranks of the group, bytes of the full logical tensor), the FLOPs of the
experts' products, and the elements of each local parameter.

What differs on purpose: under sequence parallelism ours gathers the inputs of attention and of the head again in the
backward phase, where DTensor keeps them whole. What is not compared: reductions of gradients of replicated parameters,
which DTensor leaves to the optimizer and ours does once a step.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, parallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from slipstick.driver.estimate import pipeline_for
from slipstick.frontend import load
from slipstick.frontend.huggingface.configs.models import read_config
from slipstick.frontend.record.adapter import DispatchMode
from slipstick.ir.graph import Graph, Phase, Role
from slipstick.ir.ops import call_of, work_of
from slipstick.ir.ops.collectives import CollectiveAttrs, message_bytes
from slipstick.ir.plan import Family
from slipstick.ir.sizes.expr import Dim, as_expr
from slipstick.ir.types import DType

if TYPE_CHECKING:
    from transformers import MixtralForCausalLM

transformers = pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("no_packed_sequences")]

RANKS, BATCH, SEQ = 32, 1, 2048
EXPERTS, TOP_K, HIDDEN, INNER, BF16 = 8, 2, 4096, 14336, 2
ROWS_BYTES = BATCH * SEQ * TOP_K * HIDDEN * BF16  # all rows of a replica
HIDDEN_BYTES = BATCH * SEQ * HIDDEN * BF16
TABLE = 32000 * HIDDEN
# Attention with 8 key-value heads of 128, the router, and both norms.
DENSE = 2 * HIDDEN * HIDDEN + 2 * 1024 * HIDDEN + EXPERTS * HIDDEN + 2 * HIDDEN
BANK = EXPERTS * 3 * HIDDEN * INNER
KINDS = ("all_gather", "reduce_scatter")
SPLIT = Family(ep=True, sp=True, tp_plan="dtensor", fused=False)

Message = tuple[str, str, int, int]
Messages = Counter[Message]
Plan = dict[str, parallel.ParallelStyle]
Meshes = Mapping[str, DeviceMesh]
# Axes and ranks of a group, by its name.
Groups = Mapping[str, tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Degrees:
    """Ranks over which experts are sharded beside tp, and tp ranks; `whole` deals them out over tp too."""

    ep: int
    tp: int = 1
    whole: bool = False

    @property
    def dp(self) -> int:
        return RANKS // (self.ep * self.tp)

    @property
    def symbols(self) -> Mapping[str, int]:
        return {"dp": self.dp, "ep": self.ep, "tp": self.tp}

    @property
    def dealt_over(self) -> str:
        return "tp+ep" if self.whole else "ep"

    @property
    def inside(self) -> int:
        return 1 if self.whole else self.tp

    @property
    def local_experts(self) -> int:
        return EXPERTS * self.inside // (self.ep * self.tp)

    def message(self, kind: str, axes: str, num_bytes: int) -> Message:
        return kind, axes, math.prod(self.symbols[a] for a in axes.split("+")), num_bytes


@dataclass(frozen=True, slots=True)
class Ran:
    """One phase of one rank: collectives, and the FLOPs of each product of experts."""

    messages: Messages = field(default_factory=Counter)
    products: Counter[int] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Step:
    """Both phases, and the elements of each local parameter."""

    forward: Ran
    backward: Ran
    parameters: Counter[int]


# Our side: the lowered graph, evaluated.


def ours(graph: Graph, family: Family, degrees: Degrees) -> Step:
    lowered = pipeline_for(family).run(graph)[0]
    forward, backward = (_ran(lowered, phase, degrees) for phase in (Phase.FORWARD, Phase.BACKWARD))
    found: Counter[int] = Counter()
    for region in lowered.regions:
        for v in region.of_role(Role.PARAM):
            found[number(v.type.numel, degrees)] += lowered.counts[region.name]
    return Step(forward, backward, found)


def _ran(graph: Graph, phase: Phase, degrees: Degrees) -> Ran:
    ran = Ran()
    for region in graph.regions:
        count = graph.counts[region.name]
        for node in (n for n in region.nodes if n.phase is phase):
            if isinstance(node.attrs, CollectiveAttrs):
                size = number(message_bytes(call_of(region, node)), degrees)
                message = degrees.message(node.op, node.attrs.axis, size)
                ran.messages[message] += count if message[2] > 1 else 0
            elif node.op.startswith("expert_bank"):
                for gemm in work_of(region, node).gemms:
                    ran.products[number(gemm.batch * gemm.m * gemm.n * gemm.k * 2, degrees)] += count
    return Ran(+ran.messages, ran.products)


def number(dim: Dim, degrees: Degrees) -> int:
    found = float(as_expr(dim).evaluate({"mbs": BATCH, "seq": SEQ, **degrees.symbols}))
    assert found == int(found)
    return int(found)


# PyTorch's side: the real model with experts of other ranks, recorded.


class Dealt(nn.Module):
    """The experts of one rank. Rows lie by expert, so that equal runs of them go to each rank."""

    def __init__(self, degrees: Degrees, meshes: Meshes) -> None:
        super().__init__()
        self.experts, inner = degrees.local_experts, INNER // degrees.inside
        self.gate_up_proj = nn.Parameter(torch.empty(self.experts, 2 * inner, HIDDEN, dtype=torch.bfloat16))
        self.down_proj = nn.Parameter(torch.empty(self.experts, HIDDEN, inner, dtype=torch.bfloat16))
        self.group = meshes[degrees.dealt_over].get_group()
        self.split = meshes["tp"].get_group() if degrees.inside > 1 else None

    def forward(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        order = chosen.flatten().argsort()
        token = order // TOP_K
        rows = self._exchange(x[token])
        if self.split is not None:
            rows = functional.all_gather_single_autograd(rows, 0, self.split)
        rows = self._products(rows)
        if self.split is not None:
            rows = functional.reduce_scatter_single_autograd(rows, "sum", 0, self.split)
        weighted = self._exchange(rows) * weights.flatten()[order, None].to(rows.dtype)
        return torch.zeros_like(x).index_add(0, token, weighted)

    def _exchange(self, rows: Tensor) -> Tensor:
        ranks = self.group.size()
        equal = [rows.shape[0] // ranks] * ranks
        return functional.all_to_all_single_autograd(rows, equal, equal, self.group)

    def _products(self, rows: Tensor) -> Tensor:
        """What came from one rank lies together; the products want what goes to one expert together."""
        sources = self.group.size() * (1 if self.split is None else self.split.size())
        by_expert = rows.view(sources, self.experts, -1, HIDDEN).transpose(0, 1).flatten(1, 2)
        gate, up = torch.bmm(by_expert, self.gate_up_proj.mT).chunk(2, dim=-1)
        out = torch.bmm(nn.functional.silu(gate) * up, self.down_proj.mT)
        return out.view(self.experts, sources, -1, HIDDEN).transpose(0, 1).flatten(0, 2)


# Each with the position of its tensor and of its group.
_KINDS: Mapping[str, tuple[str, int, int]] = {
    "_c10d_functional.all_reduce.default": ("all_reduce", 0, 2),
    "_c10d_functional.all_gather_into_tensor.default": ("all_gather", 0, 2),
    "_c10d_functional.reduce_scatter_tensor.default": ("reduce_scatter", 0, 3),
    "_c10d_functional.all_to_all_single.default": ("all_to_all", 0, 3),
    "c10d._allgather_base_.default": ("all_gather", 1, 2),
    "c10d._reduce_scatter_base_.default": ("reduce_scatter", 1, 2),
}


class Recorder(DispatchMode):
    """Notes collectives with the axes of their group, and batched products, which only the experts make."""

    wrappers = (DTensor,)

    def __init__(self, groups: Groups) -> None:
        super().__init__()
        self.groups, self.ran = groups, Ran()

    def note(
        self, func: torch._ops.OpOverload, args: Sequence[object], kwargs: Mapping[str, object], out: object
    ) -> None:
        name = str(func)
        if name in _KINDS:
            kind, tensor, group = _KINDS[name]
            self._note(kind, args[tensor], _name(args[group]))
        elif name == "aten.bmm.default":
            (batch, m, k), (_, _, n) = (a.shape for a in args if isinstance(a, Tensor))
            self.ran.products[2 * batch * m * n * k] += 1
        else:
            assert "c10d" not in name or "wait_tensor" in name, name

    def _note(self, kind: str, given: object, group: str) -> None:
        """A gather starts from a shard of the full tensor, all else from the whole of it."""
        assert isinstance(given, Tensor)
        axes, num_ranks = self.groups[group]
        size = given.numel() * given.element_size() * (num_ranks if kind == "all_gather" else 1)
        self.ran.messages[kind, axes, num_ranks, size] += 1


def _name(group: object) -> str:
    return str(dist.ProcessGroup.unbox(group).group_name if isinstance(group, torch.ScriptObject) else group)


@contextmanager
def ranks(degrees: Degrees) -> Iterator[Meshes]:
    """The meshes of rank 0 by axes; made outside of fake tensors, for a mesh reads its ranks.

    That of tp is made first, so that its group has one name in all tests: DTensor remembers groups by their ranks.
    """
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    try:
        inner = init_device_mesh("cpu", (RANKS // degrees.tp, degrees.tp), mesh_dim_names=("others", "tp"))["tp"]
        mesh = init_device_mesh("cpu", (degrees.dp, degrees.ep, degrees.tp), mesh_dim_names=("dp", "ep", "tp"))
        flat = {"ep+dp": mesh["dp", "ep"]._flatten(), "tp+ep": mesh["ep", "tp"]._flatten()}
        yield {"dp": mesh["dp"], "ep": mesh["ep"], "tp": inner, **flat}
    finally:
        dist.destroy_process_group()


def run(text: str, degrees: Degrees, prepare: Callable[[MixtralForCausalLM, Meshes], None] | None = None) -> Step:
    """Run a step to warm up, and one that is recorded."""
    fields = cast("dict[str, object]", json.loads(text))
    config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with ranks(degrees) as meshes:
        groups = {str(mesh.get_group().group_name): (axes, mesh.size()) for axes, mesh in meshes.items()}
        with fake:
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
            for block in model.model.layers:
                block.mlp.experts = Dealt(degrees, meshes)
            if degrees.tp > 1:
                split(model, meshes["tp"])
        if prepare is not None:
            prepare(model, meshes)
        with fake:
            step(model, groups)
            model.zero_grad()
            forward, backward = step(model, groups)
            local = (p.to_local() if isinstance(p, DTensor) else p for p in model.parameters())
            return Step(forward, backward, Counter(p.numel() for p in local))


def split(model: MixtralForCausalLM, group: DeviceMesh) -> None:
    """Tensor parallelism with sequence parallelism; a router sees the tokens of its rank."""
    whole, along, states = Replicate(), Shard(1), "hidden_states"
    outer: Plan = {
        "model.embed_tokens": parallel.RowwiseParallel(input_layouts=whole, output_layouts=along),
        "model.norm": parallel.SequenceParallel(),
        "lm_head": parallel.ColwiseParallel(input_layouts=along, output_layouts=whole),
    }
    columns = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    layer: Plan = {
        **{name: parallel.ColwiseParallel() for name in columns},
        "self_attn.o_proj": parallel.RowwiseParallel(output_layouts=along),
        "input_layernorm": parallel.SequenceParallel(),
        "post_attention_layernorm": parallel.SequenceParallel(use_local_output=True),
        "self_attn": parallel.PrepareModuleInput(
            input_kwarg_layouts={states: along}, desired_input_kwarg_layouts={states: whole}
        ),
    }
    parallel.parallelize_module(model, group, outer)
    for block in model.model.layers:
        parallel.parallelize_module(block, group, layer)


def step(model: MixtralForCausalLM, groups: Groups) -> tuple[Ran, Ran]:
    ids, positions = torch.zeros(BATCH, SEQ, dtype=torch.int64), torch.arange(SEQ)[None]
    with Recorder(groups) as forward:
        logits = model(input_ids=ids, position_ids=positions, use_cache=False).logits
        loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids.flatten())
    with Recorder(groups) as backward:
        torch.autograd.backward(loss)
    return forward.ran, backward.ran


@pytest.fixture(scope="module")
def two_layers() -> str:
    fields = cast("dict[str, object]", json.loads(read_config("mixtral-8x7b").text))
    return json.dumps(fields | {"num_hidden_layers": 2})


@pytest.fixture(scope="module")
def graph(two_layers: str, tmp_path_factory: pytest.TempPathFactory) -> Graph:
    path = tmp_path_factory.mktemp("config") / "config.json"
    path.write_text(two_layers, encoding="utf-8")
    return load(str(path))


@pytest.mark.parametrize("ep", [2, 4, 8])
def test_rows_go_to_their_experts_and_back_in_both_phases(two_layers: str, graph: Graph, ep: int) -> None:
    degrees = Degrees(ep)
    theirs = run(two_layers, degrees)
    # There and back in each of two layers; the gradients the same way.
    exchanges = {degrees.message("all_to_all", "ep", ROWS_BYTES): 4}
    assert theirs.forward.messages == theirs.backward.messages == exchanges
    assert theirs.parameters[EXPERTS // ep * HIDDEN * INNER] == 2
    assert ours(graph, Family(ep=True, fused=False), degrees) == theirs


def assert_same_but_for_inputs(mine: Step, theirs: Step, degrees: Degrees) -> None:
    """Ours gathers the inputs of two attentions and of the head again."""
    again = Counter({degrees.message("all_gather", "tp", HIDDEN_BYTES): 3})
    assert mine.backward.messages == theirs.backward.messages + again
    assert replace(mine.backward, messages=theirs.backward.messages) == theirs.backward
    assert (mine.forward, mine.parameters) == (theirs.forward, theirs.parameters)


@pytest.mark.parametrize("ep", [2, 4, 8])
def test_rows_of_split_experts_are_gathered_behind_the_exchange(two_layers: str, graph: Graph, ep: int) -> None:
    degrees = Degrees(ep, tp=2)
    theirs = run(two_layers, degrees)
    rows: Messages = Counter({degrees.message("all_to_all", "ep", ROWS_BYTES // 2): 4})
    rows += {degrees.message(kind, "tp", ROWS_BYTES): 2 for kind in KINDS}
    assert not rows - theirs.forward.messages
    assert not rows - theirs.backward.messages
    assert_same_but_for_inputs(ours(graph, SPLIT, degrees), theirs, degrees)


@pytest.mark.parametrize("ep", [2, 4])
def test_whole_experts_take_one_exchange_over_both_axes(two_layers: str, graph: Graph, ep: int) -> None:
    degrees = Degrees(ep, tp=2, whole=True)
    theirs = run(two_layers, degrees)
    exchange = degrees.message("all_to_all", "tp+ep", ROWS_BYTES // 2)
    assert exchange[2] == 2 * ep
    assert theirs.forward.messages[exchange] == theirs.backward.messages[exchange] == 4
    assert theirs.parameters[EXPERTS // (2 * ep) * HIDDEN * INNER] == 2
    assert_same_but_for_inputs(ours(graph, replace(SPLIT, etp=False), degrees), theirs, degrees)


def longest(parameter: nn.Parameter) -> Shard:
    """Fewer experts than ranks would be padded."""
    return Shard(parameter.shape.index(max(parameter.shape)))


def shard_states(model: MixtralForCausalLM, meshes: Meshes) -> None:
    """FSDP2 as its users wrap experts: over the replicas of the same experts, and all else over all replicas."""
    for bank in [m for m in model.modules() if isinstance(m, Dealt)]:
        fully_shard(bank, mesh=meshes["dp"], shard_placement_fn=longest)
    for block in model.model.layers:
        fully_shard(block, mesh=meshes["ep+dp"], shard_placement_fn=longest)
    table, head = model.model.embed_tokens, [model.model.norm, model.lm_head]
    for unit in (table, head, model):
        fully_shard(unit, mesh=meshes["ep+dp"])
    cast(FSDPModule, table).set_unshard_in_backward(False)


@pytest.mark.parametrize("ep", [2, 4, 8])
def test_states_of_experts_are_sharded_over_their_replicas(two_layers: str, graph: Graph, ep: int) -> None:
    degrees = Degrees(ep)
    theirs = run(two_layers, degrees, shard_states)
    units = [("dp", BANK // ep)] * 2 + [("ep+dp", n) for n in (DENSE, DENSE, TABLE, TABLE + HIDDEN)]
    gathered, scattered = (Counter(degrees.message(kind, axes, n * BF16) for axes, n in units) for kind in KINDS)
    rows = Counter({degrees.message("all_to_all", "ep", ROWS_BYTES): 4})
    table = Counter({degrees.message("all_gather", "ep+dp", TABLE * BF16): 1})
    assert theirs.forward.messages == gathered + rows
    assert theirs.backward.messages == gathered - table + scattered + rows
    assert ours(graph, Family(ep=True, zero=3, grad_dtype=DType.BF16, fused=False), degrees) == theirs
