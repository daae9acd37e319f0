"""One broken graph a rule: the complaint names the node and where it stands."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from slipstick.ir.errors import VerifyError
from slipstick.ir.graph import Graph, Node, Phase, Port, Region, Role, Run, Value
from slipstick.ir.ops.tensors.matmul import MatmulAttrs
from slipstick.ir.placement import DP, TP
from slipstick.ir.sizes.expr import symbol
from slipstick.ir.types import DType, TensorType
from slipstick.ir.verify import problems, verify

Edit = Callable[[Region], Region]


def test_the_sample_is_sound(train_graph: Graph) -> None:
    verify(train_graph)
    assert list(problems(train_graph)) == []


def edited(graph: Graph, edit: Edit, region: str = "block") -> Graph:
    return graph.with_regions(tuple(edit(r) if r.name == region else r for r in graph.regions))


def with_node(index: int, node: Node) -> Edit:
    return lambda r: replace(r, nodes=(*r.nodes[:index], node, *r.nodes[index + 1 :]))


def with_extra(*values: Value, outputs: tuple[Port, ...] = (), grads: tuple[tuple[int, int], ...] = ()) -> Edit:
    return lambda r: replace(
        r, values=(*r.values, *values), outputs=(*r.outputs, *outputs), grads=(*r.grads, *grads)
    )  # fmt: skip


def value(ident: int, storage: int, role: Role = Role.RESULT, name: str = "") -> Value:
    return Value(ident, TensorType((8, 8), DType.BF16), storage, role, name)


MATMUL = MatmulAttrs("abk,nk->abn")


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (with_node(0, Node("matmull", (0, 1), (3,), MATMUL, "layers.*.up")),
         "block: unknown op 'matmull' at layers.*.up"),
        (with_node(0, Node("matmul", (5, 1), (3,), MATMUL, "layers.*.up")),
         "block: 'matmul' at layers.*.up: reads [5] before made, makes [] again, [] unlisted"),
        (with_node(0, Node("matmul", (0, 99), (3,), MATMUL)),
         "block: 'matmul' at the top: reads [99] before made, makes [] again, [] unlisted"),
        (with_node(1, Node("copy", (3,), (3,), scope="layers.*.act")),
         "block: 'copy' at layers.*.act: reads [] before made, makes [3] again, [] unlisted"),
        (with_node(1, Node("topk", (3,), (4, 4), scope="layers.*.act")),
         "block: 'topk' at layers.*.act: reads [] before made, makes [4] again, [] unlisted"),
        (with_node(1, Node("copy", (3,), (98,), scope="layers.*.act")),
         "block: 'copy' at layers.*.act: reads [] before made, makes [] again, [98] unlisted"),
        (with_node(1, Node("copy", (3,), (), scope="layers.*.act")),
         "block: 'copy' at layers.*.act: reads [] before made, makes [] again, [] unlisted"),
        (with_node(0, Node("matmul", (0, 1), (3,), MatmulAttrs("abk,kn->abc"), "layers.*.up")),
         "block: letter c is None in the operands and 8 in the result  in  "
         '%3 = matmul(%0, %1) {spec="abk,kn->abc"} : bf16[batch, seq, 8] @layers.*.up'),
        (with_node(0, Node("matmul", (0, 1), (3,), scope="layers.*.up")),
         "block: needs MatmulAttrs, has Attrs  in  %3 = matmul(%0, %1) : bf16[batch, seq, 8] @layers.*.up"),
        (with_node(1, Node("copy", (3,), (4,), scope="layers.*.act", forward=77)),
         "block: 'copy' at layers.*.act belongs to forward node %77, no such node"),
        (with_node(3, Node("copy", (5,), (6,), scope="layers.*.act")),
         "block: forward node 'copy' at layers.*.act reads a value that is made later"),
        (with_extra(value(50, 50)), "block: value %50 is made by no node"),
        (with_extra(value(50, 51, Role.PARAM, "w2")), "block: value %50 shares storage with %51, no such value"),
        (with_extra(value(3, 3)), "block: value ids are not unique"),
        (with_extra(outputs=(Port("x", 60),)), "block: output 'x' is %60, no such value"),
        (with_extra(outputs=(Port("h", 3),)), "block: output 'h' is given 2 times"),
        (with_extra(value(50, 50, Role.PORT, "residual")), "block: port 'residual' (%50) has no source"),
        (with_extra(grads=((1, 70),)), "block: gradient %70 of parameter %1: no such value"),
        (with_extra(grads=((0, 6),)), "block: %0 has a gradient but is a port"),
        (with_extra(grads=((1, 6),)),
         "block: gradient %6 is bf16[batch, seq, 8], its parameter 'layers.*.weight' is bf16[8, 8]"),
    ],
)  # fmt: skip
def test_a_broken_rule_is_named(train_graph: Graph, edit: Edit, complaint: str) -> None:
    assert complaint in list(problems(edited(train_graph, edit)))


def test_region_names_are_unique(train_graph: Graph) -> None:
    twice = replace(train_graph, regions=(*train_graph.regions, train_graph.region("stem")))
    assert "region names are not unique: ['stem', 'block', 'head', 'stem']" in list(problems(twice))


def test_the_schedule_names_regions(train_graph: Graph) -> None:
    graph = replace(train_graph, schedule=(*train_graph.schedule, Run(("tail",))))
    assert list(problems(graph)) == ["the schedule names 'tail', no such region"]


def test_gradients_of_a_sharded_graph_may_lie_otherwise(train_graph: Graph) -> None:
    graph = edited(train_graph, with_extra(grads=((1, 6),)))
    assert list(problems(replace(graph, axes=(DP,)))) == []


def test_the_error_names_graph_and_pass_and_counts(train_graph: Graph) -> None:
    graph = edited(train_graph, with_extra(value(50, 50), value(51, 51)))
    with pytest.raises(VerifyError) as error:
        verify(graph, after="fuse")
    assert str(error.value) == (
        "graph 'tiny' after pass 'fuse' breaks 2 rule(s):\n"
        "  block: value %50 is made by no node\n"
        "  block: value %51 is made by no node"
    )


def test_many_problems_are_shown_in_part(train_graph: Graph) -> None:
    graph = edited(train_graph, with_extra(*(value(i, i) for i in range(50, 80))))
    with pytest.raises(VerifyError, match=r"breaks 30 rule\(s\)") as error:
        verify(graph)
    assert len(str(error.value).splitlines()) == 1 + 12


def test_symbols_are_compared_as_symbols(train_graph: Graph) -> None:
    other = TensorType((symbol("batch"), symbol("kv"), 8), DType.BF16)
    graph = edited(
        train_graph, lambda r: replace(r, values=tuple(replace(v, type=other) if v.id == 3 else v for v in r.values))
    )
    assert any("letter b is seq in the operands and kv in the result" in p for p in problems(graph))


def test_backward_nodes_may_read_forward_values(train_graph: Graph) -> None:
    phases = {n.phase for n in train_graph.region("block").users[3]}
    assert phases == {Phase.FORWARD, Phase.BACKWARD}


def test_regions_of_a_verified_graph_are_not_looked_at_again(train_graph: Graph) -> None:
    broken = edited(train_graph, with_node(0, replace(train_graph.region("block").nodes[0], op="nonsense")))
    assert list(problems(broken))
    assert not list(problems(broken, verified=broken))
    assert list(problems(broken, verified=train_graph))
    assert list(problems(replace(broken, axes=(TP,)), verified=broken))
