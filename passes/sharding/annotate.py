"""Parameters and inputs of a region to their placements on each axis, from the plan and from how they are used."""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.graph import Node, Phase, Region, Role, Value
from ...ir.ops.experts import ExpertsAttrs
from ...ir.ops.matmul import MatmulAttrs
from ...ir.placement import REPLICATE, Placement, Shard
from .plans import Style, TpPlan

DP, EP, CP, TP = "dp", "ep", "cp", "tp"
Placements = Mapping[str, Placement]


def source_placements(
    region: Region, plan: TpPlan, zero: int = 0, whole_experts: Placement | None = None
) -> dict[int, Placements]:
    """Return where parameters, inputs, caches and constants lie before anything runs (ports come from elsewhere).

    ZeRO stage 3 keeps every parameter sharded over `dp`; where it is needed whole, it is gathered. `whole_experts` says
    how experts lie over `tp` that are not split inside.
    """
    at_rest: Placement = Shard(0) if zero == 3 else REPLICATE
    found: dict[int, Placements] = {}
    for v in region.values:
        if v.role is Role.PARAM:
            expert = is_expert(region, v)
            split = _parameter(region, v, plan.style(v.name))
            over_tp = whole_experts if expert and whole_experts is not None else split
            found[v.id] = {DP: at_rest, EP: Shard(0) if expert else at_rest, CP: at_rest, TP: over_tp}
        elif v.role in (Role.INPUT, Role.CACHE):
            found[v.id] = _input(v)
        elif v.role is Role.BUFFER:
            found[v.id] = dict.fromkeys((DP, EP, CP, TP), REPLICATE)
    return found


def _input(v: Value) -> Placements:
    """Batches over the data axes, sequences over `cp`, cached heads over `tp`."""
    heads = v.role is Role.CACHE and v.type.rank == 4 and v.type.dims[1] != 1
    sequence = v.role is Role.INPUT and v.type.rank > 1 and v.type.dims[1] != 1
    return {
        DP: Shard(0), EP: Shard(0), CP: Shard(1) if sequence else REPLICATE, TP: Shard(1) if heads else REPLICATE,
    }  # fmt: skip


def is_expert(region: Region, v: Value) -> bool:
    """Whether a parameter holds one entry an expert."""
    return any(n.op.startswith("expert") and v.id in n.inputs for n in region.users.get(v.id, ()))


def _parameter(region: Region, v: Value, style: Style) -> Placement:
    if style is Style.REPLICATE:
        return REPLICATE
    if style in (Style.EMBEDDING, Style.PER_HEAD):
        return Shard(0)
    node = next((n for n in region.users.get(v.id, ()) if n.phase is Phase.FORWARD), None)
    if node is None:
        return REPLICATE
    if isinstance(node.attrs, ExpertsAttrs):
        return _expert_weight(v, node.attrs, style)
    return _linear(v, node, style)


def _expert_weight(v: Value, attrs: ExpertsAttrs, style: Style) -> Placement:
    packed = attrs.gated and style is not Style.ROWWISE
    if v.type.rank == 2:
        return REPLICATE if style is Style.ROWWISE else Shard(1, packed)
    rows = style is Style.ROWWISE
    return Shard(1 if rows == attrs.transposed else 2, packed)


def _linear(v: Value, node: Node, style: Style) -> Placement:
    """Column-parallel splits the letter that the result has, row-parallel the one that is summed over."""
    rows = style is Style.ROWWISE
    if v.type.rank == 1:
        return REPLICATE if rows else Shard(0, style is Style.PACKED_COLWISE)
    if not isinstance(node.attrs, MatmulAttrs):
        return REPLICATE
    left, right, out = node.attrs.letters
    letters = right if node.inputs[1] == v.id else left
    wanted = [i for i, letter in enumerate(letters) if (letter in out) != rows]
    return Shard(wanted[0], style is Style.PACKED_COLWISE) if wanted else REPLICATE


def gathers_output(region: Region, node: Node, plan: TpPlan) -> bool:
    """Whether the plan wants the result of this layer whole on every rank."""
    params = [region.by_id[i] for i in node.inputs if region.by_id[i].role is Role.PARAM]
    return node.phase is Phase.FORWARD and any(plan.style(p.name) is Style.COLWISE_GATHER for p in params)


def reduces_input_grad(region: Region, node: Node, plan: TpPlan) -> bool:
    """Whether this is the input gradient of a column-parallel layer under a plan that reduces each on its own."""
    if not plan.eager_grads or node.op != "matmul" or node.phase is not Phase.BACKWARD:
        return False
    params = [region.by_id[i] for i in node.inputs if region.by_id[i].role is Role.PARAM]
    return any(plan.style(p.name) in (Style.COLWISE, Style.PACKED_COLWISE, Style.COLWISE_GATHER) for p in params)
