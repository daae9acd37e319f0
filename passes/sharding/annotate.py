"""Parameters and inputs of a region to their placements on each axis, from the plan and from how they are used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TypeAlias

from ...ir.graph import Graph, Node, Phase, Region, Role, Value
from ...ir.ops import OpClass, Trait, has
from ...ir.ops.fused.experts import ExpertsAttrs
from ...ir.ops.states import is_expert, moved_states
from ...ir.ops.tensors.matmul import MatmulAttrs
from ...ir.placement import CP, DP, EP, FSDP, REPLICATE, TP, UP, Shard
from ...ir.placement import MeshAxis as MeshAxis
from ...ir.placement import Placement as Placement
from ...ir.sizes.expr import Expr
from .follow import has_packed_channels
from .plans.plans import ROWS, Style, TpPlan

Placements = Mapping[MeshAxis, Placement]
# A state's path, and its region where the path has a star: each region of layers has its own.
StateKey: TypeAlias = tuple[str, str]
StateKeys: TypeAlias = frozenset[StateKey]


class OverEp(StrEnum):
    """What `ep` distributes: experts, what is inside of each, or columns of tables."""

    WHOLE = "whole"
    INSIDE = "inside"
    TABLES = "tables"


def source_placements(
    region: Region,
    plan: TpPlan,
    zero: int = 0,
    home: MeshAxis = DP,
    whole_experts: Placement | None = None,
    over_ep: OverEp = OverEp.WHOLE,
) -> dict[int, Placements]:
    """Return where parameters, inputs, caches and constants lie before anything runs (ports come from elsewhere).

    ZeRO stage 3 keeps every parameter sharded over `home`, which is `dp` or, in hybrid sharding, `fsdp`; where it is
    needed whole, it is gathered. `whole_experts` says how experts lie over `tp` that are not split inside; `over_ep`
    what is distributed there. A parameter of one number is never split.
    """
    found: dict[int, Placements] = {}
    for v in region.values:
        if v.role is Role.PARAM:
            at_rest: Placement = Shard(0) if zero == 3 and v.type.dims else REPLICATE
            expert = is_expert(region, v)
            split = _parameter(region, v, plan.style(v.name))
            along_tp = whole_experts if expert and whole_experts is not None else split
            # Of experts that a bank reads a range of, those in it are shared out apart from the others.
            ranges = any(has(n, Trait.TAKES_RANGE) for n in region.users.get(v.id, ()))
            dealt = split if over_ep is OverEp.INSIDE else Shard(0, packed=ranges)
            by_expert: Placement = dealt if expert else at_rest
            if over_ep is OverEp.TABLES and is_table(region, v):
                by_expert = Shard(v.type.rank - 1)
            data: dict[MeshAxis, Placement] = {DP: REPLICATE, FSDP: REPLICATE, EP: by_expert, UP: at_rest, CP: at_rest}
            found[v.id] = {**data, TP: along_tp, home: at_rest}
        elif v.role in (Role.INPUT, Role.CACHE):
            found[v.id] = _input(v)
        elif v.role is Role.BUFFER:
            found[v.id] = dict.fromkeys((DP, FSDP, EP, UP, CP, TP), REPLICATE)
    return found


def _input(v: Value) -> Placements:
    """Batches over the data axes, sequences over `cp`, cached heads over `tp`.

    The batch is the dim that has the micro-batch, the first where none says so: a state is often [layers, batch, ..].
    """
    if not v.type.dims:
        return dict.fromkeys((DP, FSDP, EP, UP, CP, TP), REPLICATE)  # one number, such as a rate
    batch = next((i for i, d in enumerate(v.type.dims) if isinstance(d, Expr) and "mbs" in d.symbols), 0)
    heads = v.role is Role.CACHE and v.type.rank == 4 and v.type.dims[1] != 1
    sequence = v.role is Role.INPUT and v.type.rank > 1 and v.type.dims[1] != 1
    along: Placement = Shard(1) if sequence else REPLICATE
    along = REPLICATE if batch == 1 else along
    data: dict[MeshAxis, Placement] = {**dict.fromkeys((DP, FSDP, EP), Shard(batch)), UP: along, CP: along}
    return {**data, TP: Shard(1) if heads else REPLICATE}


def state_key(region: Region, state: Value) -> StateKey:
    """Return the name of a state in a graph."""
    return (region.name if "*" in state.name else "", state.name)


def lay_whole(region: Region, sources: dict[int, Placements], states: StateKeys) -> dict[int, Placements]:
    """Return where sources lie when some of them are whole on every rank of `tp`."""
    keys = {i: state_key(region, region.by_id[i]) for i in sources}
    return {i: {**lies, TP: REPLICATE} if keys[i] in states else lies for i, lies in sources.items()}


def with_whole_states(shard: Callable[[StateKeys], Graph]) -> Graph:
    """Shard again with more states whole until no message inside a step moves one.

    `shard` shards a graph in which some states rest whole on every rank of `tp`.
    """
    whole: StateKeys = frozenset()
    while True:
        graph = shard(whole)
        moved = {state_key(r, state) for r in graph.regions for _, state in moved_states(r)} - whole
        if not moved:
            return graph
        whole |= moved


def weight_behind(region: Region, value: int) -> Value | None:
    """Return the parameter that a value is, or is cast from; None for another one."""
    made = region.producer.get(value)
    source = region.by_id[made.inputs[0] if made is not None and has(made, Trait.CASTS) else value]
    return source if source.role is Role.PARAM else None


def is_table(region: Region, v: Value) -> bool:
    """Whether a parameter is a table of which rows are read by ids."""
    return v.role is Role.PARAM and any(has(n, Trait.READS_TABLE) for n in region.users.get(v.id, ()))


def gives_rows(region: Region, node: Node) -> bool:
    """Whether rows of a table are as few as they get: just read, or behind the sum of a bag where there is one."""
    read = node if has(node, Trait.READS_TABLE) else region.producer.get(node.inputs[0]) if node.inputs else None
    if read is None or not has(read, Trait.READS_TABLE) or not is_table(region, region.by_id[read.inputs[1]]):
        return False
    bags = [n for n in region.users.get(read.key, ()) if n.phase is Phase.FORWARD and has(n, Trait.REDUCES)]
    return node in bags if bags else node is read


def enters_bag(region: Region, node: Node) -> bool:
    """Whether a node is the first that spreads the gradient of a bag's sum over its rows."""
    summed = region.producer.get(node.forward) if node.forward is not None else None
    if summed is None or node is summed or not has(summed, Trait.REDUCES) or not gives_rows(region, summed):
        return False
    return region.by_id[node.inputs[0]].type.dims == region.by_id[summed.key].type.dims


def _parameter(region: Region, v: Value, style: Style) -> Placement:
    if style is Style.REPLICATE:
        return REPLICATE
    if style is Style.EMBEDDING:
        return Shard(0)
    if style is Style.PER_HEAD:
        return Shard(next((i for i, d in enumerate(v.type.dims) if d != 1), 0))
    if style is Style.EMBEDDING_COLWISE:
        return Shard(v.type.rank - 1)
    node = next((n for n in region.users.get(v.id, ()) if n.phase is Phase.FORWARD), None)
    if node is None:
        return REPLICATE
    if has(node, Trait.CASTS):
        return _parameter(region, region.by_id[node.key], style)  # it rests in a type that is widened for its layer
    if isinstance(node.attrs, ExpertsAttrs):
        return _expert_weight(v, node.attrs, style)
    if has(node, OpClass.CONV) and style in (Style.COLWISE, Style.PACKED_COLWISE):
        return Shard(0, style is Style.PACKED_COLWISE and has_packed_channels(region, node))
    if has(node, Trait.RESHAPES) and style is Style.COLWISE and v.type.rank > 1:
        return Shard(0)  # seen by heads, which a column-parallel layer has in its rows
    return _linear(v, node, style)


def _expert_weight(v: Value, attrs: ExpertsAttrs, style: Style) -> Placement:
    rows = style in ROWS
    packed = attrs.gated and not rows
    if v.type.rank == 2:
        return REPLICATE if rows else Shard(1, packed)
    return Shard(1 if rows == attrs.transposed else 2, packed)


def _linear(v: Value, node: Node, style: Style) -> Placement:
    """Column-parallel splits the letter that the result has, row-parallel the one that is summed over."""
    rows, packed = style in ROWS, style in (Style.PACKED_COLWISE, Style.PACKED_ROWWISE)
    if v.type.rank == 1:
        return REPLICATE if rows or v.type.dims[0] == 1 else Shard(0, packed)
    if not isinstance(node.attrs, MatmulAttrs):
        return REPLICATE
    left, right, out = node.attrs.letters
    letters = left if node.inputs[0] == v.id else right
    wanted = [i for i, letter in enumerate(letters) if (letter in out) != rows and v.type.dims[i] != 1]
    return Shard(wanted[0], packed) if wanted else REPLICATE


def gathers_output(region: Region, node: Node, plan: TpPlan) -> bool:
    """Whether the plan wants the result of this layer whole on every rank; a tied matrix bears another layer's name."""
    if not node.phase.is_forward_work:
        return False
    names = [v.name for i in node.inputs if (v := weight_behind(region, i))]
    if not names:
        return False
    wanted = {Style.COLWISE_GATHER} | ({Style.EMBEDDING_COLWISE} if has(node, Trait.READS_TABLE) else set())
    return any(plan.style(n) in wanted for n in (*names, f"{node.scope}.weight"))


def splits_input(region: Region, node: Node, plan: TpPlan) -> bool:
    """Whether this is a row-parallel layer, or its input gradient, that the plan gives a whole input to split.

    The adjoint of taking a shard of the input is gathering the shards of its gradient.
    """
    if not has(node, OpClass.MATMUL) or not (node.phase.is_forward_work or node.phase is Phase.BACKWARD):
        return False
    params = [v for i in node.inputs if (v := weight_behind(region, i))]
    return any(plan.style(p.name) is Style.ROWWISE_SPLIT for p in params)


def reduces_output(region: Region, node: Node, plan: TpPlan) -> bool:
    """Whether this is a row-parallel layer (or experts) under a plan that completes the sum of each on its own."""
    if not plan.eager_grads or not node.phase.is_forward_work:
        return False
    params = [v for i in node.inputs if (v := weight_behind(region, i))]
    return has(node, Trait.ROUTES) or any(plan.style(p.name) in ROWS for p in params)


def reduces_input_grad(region: Region, node: Node, plan: TpPlan) -> bool:
    """Whether this is the input gradient of a column-parallel layer under a plan that reduces each on its own.

    Experts reduce the gradients of both their inputs: of the hidden states and of the routing weights.
    """
    if not plan.eager_grads or node.phase is not Phase.BACKWARD:
        return False
    if has(node, Trait.ROUTES):
        return True
    if not has(node, OpClass.MATMUL):
        return False
    params = [v for i in node.inputs if (v := weight_behind(region, i))]
    return any(plan.style(p.name) in (Style.COLWISE, Style.PACKED_COLWISE, Style.COLWISE_GATHER) for p in params)
