"""Counts, parameters and saved bytes of graphs, and what mark_saved marks."""

from dataclasses import replace

import pytest

from slipstick.ir.errors import InternalError
from slipstick.ir.graph import Graph, Node, Phase, Port, Region, Role, Run, Value, Workload
from slipstick.ir.ops.tensors.layout import PermuteAttrs
from slipstick.ir.placement import CP, DP, REPLICATE, TP, Shard
from slipstick.ir.saved import mark_saved
from slipstick.ir.sizes.expr import symbol
from slipstick.ir.types import DType, TensorType

TOKENS = symbol("batch") * symbol("seq")


def value(ident: int, *dims: int, role: Role = Role.RESULT, name: str = "", storage: int | None = None) -> Value:
    return Value(ident, TensorType(dims, DType.BF16), ident if storage is None else storage, role, name)


def saved(graph: Graph) -> dict[str, set[int]]:
    return {r.name: {v.id for v in r.values if v.saved} for r in graph.regions}


def test_counts_and_sequence() -> None:
    regions = tuple(Region(n, (), ()) for n in ("a", "b", "c", "unused"))
    graph = Graph("g", Workload.PREFILL, DType.BF16, regions, (Run(("a",)), Run(("b", "c"), 2), Run(("b",))))
    assert graph.counts == {"a": 1, "b": 3, "c": 2, "unused": 0}
    assert list(graph.sequence()) == ["a", "b", "c", "b", "c", "b"]
    assert graph.sequence_once() == ("a", "b", "c")


def test_a_region_by_name(train_graph: Graph) -> None:
    assert train_graph.region("block") is train_graph.regions[1]
    with pytest.raises(InternalError, match="no region 'blok' in graph 'tiny'"):
        train_graph.region("blok")


def test_who_makes_and_who_reads(train_graph: Graph) -> None:
    block = train_graph.region("block")
    assert block.producer[6].key == 6
    assert [n.key for n in block.users[0]] == [3, 7]
    assert [n.key for n in block.users[5]] == [6, 7]
    assert 1 not in block.producer
    assert [v.name for v in block.of_role(Role.PORT, Role.PARAM)] == ["h", "layers.*.weight", "dh"]
    assert [str(t) for t in block.types((1, 0))] == ["bf16[8, 8]", "bf16[batch, seq, 8]"]


def test_a_value_read_twice_by_one_node_has_one_user() -> None:
    region = Region("r", (value(0, 2, role=Role.INPUT), value(1, 2)), (Node("elementwise", (0, 0), (1,)),))
    assert len(region.users[0]) == 1


def test_values_stand_in_one_order() -> None:
    x, y, z = value(0, 2, role=Role.INPUT), value(1, 2), value(2, 2)
    nodes = (Node("copy", (0,), (2,)), Node("copy", (2,), (1,)))
    assert Region("r", (y, z, x), nodes) == Region("r", (x, z, y), nodes)
    assert [v.id for v in Region("r", (y, z, x), nodes).values] == [0, 2, 1]


def test_the_placement_along_an_axis() -> None:
    v = replace(value(0, 2), placements=((DP, REPLICATE), (TP, Shard(0))))
    assert v.placement(TP) == Shard(0)
    assert v.placement(CP) is None


def test_tied_parameters_count_once_and_starred_ones_by_layer(train_graph: Graph) -> None:
    # Embedding 16 x 8, tied with the head; two layers of 8 x 8.
    assert train_graph.num_parameters == 16 * 8 + 2 * 8 * 8


def test_starred_names_of_different_blocks_are_different_parameters() -> None:
    param = value(0, 3, role=Role.PARAM, name="layers.*.w")
    regions = (Region("dense", (param,), ()), Region("sparse", (param,), ()))
    graph = Graph("g", Workload.TRAIN, DType.BF16, regions, (Run(("dense",), 3), Run(("sparse",), 58)))
    assert graph.num_parameters == 3 * 61


def test_a_parameter_that_all_layers_share_counts_once() -> None:
    param = value(0, 3, role=Role.PARAM, name="shared.w")
    graph = Graph("g", Workload.TRAIN, DType.BF16, (Region("block", (param,), ()),), (Run(("block",), 61),))
    assert graph.num_parameters == 3


def test_mark_saved_by_hand(train_graph: Graph) -> None:
    marked = mark_saved(train_graph)
    assert saved(marked) == {
        "stem": {0, 3},  # ids for the embedding's gradient; the hidden state that the first layer keeps
        "block": {0, 3, 4},  # port and pre-activation; the hidden state that the next region keeps
        "head": {0, 2, 3, 5},  # port, labels, logits, statistics
    }
    assert mark_saved(marked) == marked


def test_saved_bytes_count_where_a_tensor_is_made(train_graph: Graph) -> None:
    marked = mark_saved(train_graph)
    assert train_graph.saved_bytes == 0
    assert marked.region("stem").saved_bytes == TOKENS * (8 + 8 * 2)
    assert marked.region("block").saved_bytes == TOKENS * (8 * 2 + 8 * 2)
    assert marked.region("head").saved_bytes == TOKENS * (8 + 16 * 2 + 3 * 4)
    assert marked.saved_bytes == TOKENS * (24 + 2 * 32 + 52)


def view_graph(source: Value) -> Graph:
    """A permuted view of `source`, read by one backward node."""
    values = (source, value(1, 3, 2, storage=0), value(2, 3, 2))
    nodes = (
        Node("permute", (0,), (1,), PermuteAttrs((1, 0))),
        Node("copy", (1,), (2,), phase=Phase.BACKWARD),
    )
    region = Region("r", values, nodes)
    return mark_saved(Graph("g", Workload.TRAIN, DType.BF16, (region,), (Run(("r",)),)))


def test_a_saved_view_keeps_its_storage_once() -> None:
    graph = view_graph(value(0, 2, 3, role=Role.INPUT, name="x"))
    assert saved(graph) == {"r": {0, 1}}
    assert graph.saved_bytes == 12


@pytest.mark.parametrize("role", [Role.PARAM, Role.BUFFER, Role.PORT])
def test_a_saved_view_of_what_lives_elsewhere_costs_nothing_here(role: Role) -> None:
    assert view_graph(value(0, 2, 3, role=role, name="w")).saved_bytes == 0


def test_a_small_view_keeps_the_whole_storage() -> None:
    whole, part = value(0, 100, role=Role.INPUT), replace(value(1, 10, storage=0), saved=True)
    assert Region("r", (whole, part), ()).saved_bytes == 200


def test_backward_values_and_ports_are_never_saved(train_graph: Graph) -> None:
    marked = mark_saved(train_graph)
    for region in marked.regions:
        for v in region.values:
            node = region.producer.get(v.id)
            assert not (v.saved and (v.name == "dh" or (node is not None and node.phase is Phase.BACKWARD)))


def test_marks_that_are_no_longer_true_are_removed(train_graph: Graph) -> None:
    wrong = train_graph.with_regions(
        tuple(replace(r, values=tuple(replace(v, saved=True) for v in r.values)) for r in train_graph.regions)
    )
    assert mark_saved(wrong) == mark_saved(train_graph)


def test_recomputation_keeps_what_it_reads_and_not_what_it_makes() -> None:
    values = (value(0, 4, role=Role.PORT, name="h"), *(value(i, 4) for i in range(1, 6)))
    nodes = (
        Node("copy", (0,), (1,)),
        Node("copy", (1,), (2,)),
        Node("copy", (1,), (3,), phase=Phase.RECOMPUTE, forward=2),
        Node("copy", (3,), (4,), phase=Phase.BACKWARD),
        Node("copy", (0,), (5,), phase=Phase.RECOMPUTE),
    )
    region = Region("r", values, nodes, (Port("h", 2),))
    graph = mark_saved(Graph("g", Workload.TRAIN, DType.BF16, (region,), (Run(("r",), 2),)))
    assert saved(graph) == {"r": {0, 1, 2}}  # 2 is what the next layer's recomputation reads as its port
