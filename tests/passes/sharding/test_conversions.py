"""From one placement to another: the right collective, between the two placements that need it and nowhere else."""

from __future__ import annotations

import pytest

from slipstick.ir.graph import Graph, Node, Phase, Region, Role, Value
from slipstick.ir.ops.collectives import CollectiveAttrs
from slipstick.ir.placement import DP, PARTIAL, REPLICATE, TP, Partial, Placement, Replicate, Shard
from slipstick.ir.sizes.expr import as_expr, symbol
from slipstick.ir.types import DType, TensorType
from slipstick.passes.manager import parse_pipeline
from slipstick.passes.sharding.builder import RegionBuilder

AXES = (DP, TP)
X = TensorType((64, 32), DType.BF16)
USER = Node("norm", (0,), (1,), scope="model.norm")


def builder(regather: bool = False) -> RegionBuilder:
    region = Region("block", (Value(0, X, 0, Role.INPUT, "x"),), ())
    return RegionBuilder(region, AXES, regather)


def laid(have: Placement, want: Placement) -> tuple[RegionBuilder, Value]:
    b = builder()
    b.add_source(b.old.values[0], {DP: REPLICATE, TP: have})
    return b, b.values[b.lay(0, {DP: REPLICATE, TP: want}, USER)]


@pytest.mark.parametrize(
    ("have", "want", "ops"),
    [
        (PARTIAL, REPLICATE, ["all_reduce"]),
        (PARTIAL, Shard(0), ["reduce_scatter"]),
        (Shard(0), REPLICATE, ["all_gather"]),
        (Shard(0), Shard(1), ["all_to_all"]),
        (REPLICATE, Shard(1), ["slice"]),  # each rank has its shard already
        (REPLICATE, PARTIAL, ["identity"]),  # one rank's copy is the sum
        (Shard(0), PARTIAL, ["all_gather", "identity"]),
        (REPLICATE, REPLICATE, []),
        (PARTIAL, PARTIAL, []),
        (Shard(1), Shard(1), []),
        (Shard(1), Shard(1, packed=True), ["all_gather", "slice"]),  # other rows on each rank
    ],
)
def test_each_pair_has_its_conversion(have: Placement, want: Placement, ops: list[str]) -> None:
    b, value = laid(have, want)
    assert [n.op for n in b.nodes] == ops
    assert all(n.phase is USER.phase and n.scope == USER.scope for n in b.nodes)
    tp = symbol("tp")
    dims = {0: (as_expr(64) / tp, 32), 1: (64, as_expr(32) / tp)}
    wanted = dims[want.dim] if isinstance(want, Shard) else (64, 32)
    assert value.type.dims == wanted


@pytest.mark.parametrize(
    ("have", "want", "dim"), [(PARTIAL, Shard(1), 1), (Shard(1), REPLICATE, 1), (PARTIAL, REPLICATE, -1)]
)
def test_a_collective_names_its_axis_its_dim_and_why(have: Placement, want: Placement, dim: int) -> None:
    b, _ = laid(have, want)
    assert [n.attrs for n in b.nodes] == [CollectiveAttrs(TP.group, dim, f"{have} to {want} for norm at model.norm")]


def test_what_is_converted_once_is_used_again() -> None:
    b = builder()
    b.add_source(b.old.values[0], {DP: REPLICATE, TP: Shard(0)})
    need = {DP: REPLICATE, TP: REPLICATE}
    assert b.lay(0, need, USER) == b.lay(0, need, USER)
    assert len(b.nodes) == 1


@pytest.mark.parametrize(("regather", "num_gathers"), [(False, 1), (True, 2)])
def test_the_backward_phase_gathers_again_only_when_told(regather: bool, num_gathers: int) -> None:
    b = builder(regather)
    b.add_source(b.old.values[0], {DP: REPLICATE, TP: Shard(0)})
    need = {DP: REPLICATE, TP: REPLICATE}
    b.lay(0, need, USER)
    b.lay(0, need, Node("matmul", (0,), (2,), phase=Phase.BACKWARD))
    assert [n.op for n in b.nodes] == ["all_gather"] * num_gathers


def test_axes_are_converted_one_after_the_other() -> None:
    b = builder()
    b.add_source(b.old.values[0], {DP: PARTIAL, TP: PARTIAL})
    b.lay(0, {DP: REPLICATE, TP: Shard(0)}, USER)
    assert [(n.op, n.attrs) for n in b.nodes] == [
        ("all_reduce", CollectiveAttrs(DP.group, -1, "P to R for norm at model.norm")),
        ("reduce_scatter", CollectiveAttrs(TP.group, 0, "P to S(0) for norm at model.norm")),
    ]


_MOVES = {"all_reduce": (Partial, Replicate), "reduce_scatter": (Partial, Shard), "all_gather": (Shard, Replicate)}


@pytest.mark.parametrize("options", ['tp_plan="megatron"', "sp=true", 'tp_plan="dtensor", sp=true'])
def test_every_collective_of_a_model_changes_a_placement(tiny: Graph, options: str) -> None:
    graph = parse_pipeline(f"shard{{{options}}}").run(tiny)[0]
    for region in graph.regions:
        for node in region.nodes:
            if not isinstance(node.attrs, CollectiveAttrs):
                continue
            (axis,), copies = node.attrs.axis.axes, node.attrs.axis.pieces
            before, after = (region.by_id[i].placement(axis) for i in (node.inputs[0], node.outputs[0]))
            if copies:  # ranks with a copy of the same head add up its gradient, which lies as before
                assert (before, node.op, node.phase) == (after, "all_reduce", Phase.REDUCE)
            else:
                assert (type(before), type(after)) == _MOVES[node.op]


@pytest.mark.parametrize("options", ['tp_plan="megatron"', "sp=true", 'tp_plan="dtensor-naive"'])
def test_nothing_is_reduced_twice(tiny: Graph, options: str) -> None:
    graph = parse_pipeline(f"shard{{{options}}}").run(tiny)[0]
    for region in graph.regions:
        moved = [(n.inputs, n.attrs.axis) for n in region.nodes if isinstance(n.attrs, CollectiveAttrs)]
        assert len(moved) == len(set(moved))
