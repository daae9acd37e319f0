"""The textual form: one golden graph, and print then parse is the identity for every graph."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.ir.graph import (
    NO_ATTRS,
    Attrs,
    Constraint,
    Graph,
    Node,
    Phase,
    Port,
    Region,
    Role,
    Run,
    Value,
    Workload,
)
from slipstick.ir.ops import OPS
from slipstick.ir.ops.collectives import CollectiveAttrs
from slipstick.ir.ops.fused.attention import AttentionAttrs
from slipstick.ir.ops.tensors.layout import ConcatAttrs, SliceAttrs
from slipstick.ir.ops.tensors.matmul import MatmulAttrs
from slipstick.ir.ops.tensors.normalize import ReduceAttrs
from slipstick.ir.ops.tensors.pointwise import ElementwiseAttrs
from slipstick.ir.placement import DP, PARTIAL, REPLICATE, TP, MeshAxis, Placement, Shard, group_axes
from slipstick.ir.saved import mark_saved
from slipstick.ir.sizes.expr import Dim, Expr
from slipstick.ir.text.parse import parse_graph
from slipstick.ir.text.printer import print_graph, print_node
from slipstick.ir.types import DType, TensorType

GOLDEN = """\
slipstick.graph 1
graph "tiny" train bf16
note "two regions, one \\"tied\\" weight"
axes dp, tp
schedule stem | block x2
constraint 4096 % tp "heads of layers.*"
constraint 2*batch % dp "batch"
region stem
  %0 = input "input_ids" : int64[batch, seq] saved
  %1 = param "embed.weight" : bf16[16, 8] <dp=R, tp=S(0p)>
  %2 = port "dh" : bf16[batch, seq, 8]
  %3 = embedding(%0, %1) : bf16[batch, seq, 8] saved <dp=S(0), tp=P> @embed
  %4 = embedding_bwd(%2, %0) : bf16[16, 8] @embed backward of %3
  out "h" = %3
  grad %1 = %4
end
region block
  %0 = port "h" : bf16[batch, seq, 8] saved
  %1 = param "layers.*.weight" : bf16[8, 8]
  %2 = port "dh" : bf16[batch, seq, 8]
  %3 = matmul(%0, %1) {spec="abk,nk->abn"} : bf16[batch, seq, 8] saved @layers.*
  %4 = elementwise(%3) {fns=["silu"]} : bf16[batch, seq, 8] @layers.*.act
  %5 = elementwise(%2, %3) {fns=["silu_bwd"]} : bf16[batch, seq, 8] @layers.*.act backward of %4
  %6 = matmul(%5, %1) {spec="abn,nk->abk"} : bf16[batch, seq, 8] @layers.* backward of %3
  %7 = matmul(%5, %0) {spec="abn,abk->nk"} : bf16[8, 8] @layers.* backward of %3
  out "h" = %4
  out "dh" = %6
  grad %1 = %7
end
"""


@pytest.fixture
def golden_graph(train_graph: Graph) -> Graph:
    """Stem and block of the sample, marked, with placements on two values and everything a header can hold."""
    stem, block, _ = mark_saved(train_graph).regions
    batch = stem.by_id[0].type.dims[0]
    where: dict[int, tuple[tuple[MeshAxis, Placement], ...]] = {
        1: ((DP, REPLICATE), (TP, Shard(0, packed=True))),
        3: ((DP, Shard(0)), (TP, PARTIAL)),
    }
    stem = replace(stem, values=tuple(replace(v, placements=where.get(v.id, ())) for v in stem.values))
    block = replace(block, values=tuple(replace(v, saved=v.saved and v.id != 4) for v in block.values))
    return replace(
        train_graph,
        regions=(stem, block),
        schedule=(Run(("stem",)), Run(("block",), 2)),
        constraints=(Constraint(4096, TP.group, "heads of layers.*"), Constraint(batch * 2, DP.group, "batch")),
        axes=(DP, TP),
        notes=('two regions, one "tied" weight',),
    )


def test_golden(golden_graph: Graph) -> None:
    assert print_graph(golden_graph) == GOLDEN


def test_golden_reads_back(golden_graph: Graph) -> None:
    assert parse_graph(GOLDEN) == golden_graph
    assert print_graph(parse_graph(GOLDEN)) == GOLDEN


def test_the_whole_sample_reads_back(train_graph: Graph) -> None:
    assert parse_graph(print_graph(train_graph)) == train_graph


def test_one_node_alone(train_graph: Graph) -> None:
    head = train_graph.region("head")
    assert print_node(head, head.nodes[1]) == (
        "%4, %5 = cross_entropy(%3, %2) : fp32[] ; fp32[batch, seq, 3]"
    )  # fmt: skip
    assert print_node(head, head.nodes[2]) == '%6 = fill() {kind="ones"} : fp32[] backward'


def test_a_region_may_be_named_like_a_count() -> None:
    regions = (Region("a", (), ()), Region("x3", (), ()))
    graph = Graph("g", Workload.TRAIN, DType.BF16, regions, (Run(("a", "x3")), Run(("x3",), 0), Run(("a", "x3"), 2)))
    assert parse_graph(print_graph(graph)) == graph


def test_a_view_names_its_storage() -> None:
    t = TensorType((4,), DType.FP8)
    region = Region("r", (Value(0, t, 0, Role.CACHE, "k"), Value(1, t, 0)), (Node("identity", (0,), (1,)),))
    assert print_node(region, region.nodes[0]) == "%1 = identity(%0) : fp8[4] ~0"


# Random graphs: any ops on any types, since text must not depend on sense.
paths = st.from_regex(r"[a-z_]{1,6}(\.[a-z_]{1,6}|\.\*|\.[0-9]){0,3}", fullmatch=True)
words = st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True)
symbols = st.sampled_from(["batch", "seq", "kv", "tp", "dp"])
exponents = st.dictionaries(symbols, st.sampled_from([-2, -1, 1, 2, 3]), min_size=1, max_size=3)
monomials = exponents.map(lambda e: tuple(sorted(e.items())))
coefficients = st.integers(-9, 4096).filter(bool) | st.sampled_from([0.5, -0.125, 1e-7])
exprs = st.dictionaries(monomials, coefficients, min_size=1, max_size=3).map(Expr)
dims: st.SearchStrategy[Dim] = st.integers(0, 1 << 40) | exprs
types = st.builds(TensorType, st.lists(dims, max_size=4).map(tuple), st.sampled_from(DType))
placements: st.SearchStrategy[Placement] = st.one_of(
    st.just(REPLICATE), st.just(PARTIAL), st.builds(Shard, st.integers(0, 12), st.booleans())
)
axes = st.sampled_from(MeshAxis)
several = st.lists(axes, min_size=1, max_size=2).map(tuple)
placed = st.lists(st.tuples(axes, placements), max_size=2).map(tuple)
calls: st.SearchStrategy[tuple[str, Attrs]] = st.one_of(
    st.just(("copy", NO_ATTRS)),
    st.tuples(st.just("matmul"), st.builds(MatmulAttrs, st.text())),
    st.tuples(st.just("attention"), st.builds(
        AttentionAttrs, st.booleans(), st.integers(0, 9), st.booleans(), st.sampled_from([0.0, 0.1, 1e-5]))),
    st.tuples(st.just("slice"), st.builds(SliceAttrs, st.integers(0, 3), dims, st.booleans())),
    st.tuples(st.just("concat"), st.builds(ConcatAttrs, st.integers(0, 3))),
    st.tuples(st.just("reduce"), st.builds(
        ReduceAttrs, st.text(), st.lists(st.integers(0, 4), max_size=3).map(tuple), st.booleans())),
    st.tuples(st.just("elementwise"), st.builds(ElementwiseAttrs, st.lists(st.text(), max_size=3).map(tuple))),
    st.tuples(st.just("all_gather"), st.builds(
        CollectiveAttrs, st.builds(group_axes, several, st.integers(0, 9)), st.integers(-1, 3), st.text())),
)  # fmt: skip


@st.composite
def values(draw: st.DrawFn, ident: int, role: Role, name: str) -> Value:
    storage = draw(st.just(ident) | st.integers(0, ident))
    return Value(ident, draw(types), storage, role, name, draw(st.booleans()), draw(placed))


@st.composite
def regions(draw: st.DrawFn, name: str) -> Region:
    roles = st.sampled_from([r for r in Role if r is not Role.RESULT])
    made = [draw(values(i, draw(roles), draw(st.text()))) for i in range(draw(st.integers(0, 3)))]
    nodes: list[Node] = []
    for _ in range(draw(st.integers(0, 4))):
        outs = range(len(made), len(made) + draw(st.integers(1, 3)))
        reads = st.lists(st.integers(0, len(made) - 1), max_size=3) if made else st.just([])
        op, attrs = draw(calls)
        forward = draw(st.none() | st.integers(0, 9))
        scope, phase = draw(st.just("") | paths), draw(st.sampled_from(Phase))
        nodes.append(Node(op, tuple(draw(reads)), tuple(outs), attrs, scope, phase, forward))
        made.extend(draw(values(i, Role.RESULT, "")) for i in outs)
    ports = draw(st.lists(st.builds(Port, st.text(), st.integers(0, 99)), max_size=2))
    grads = draw(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=2))
    return Region(name, tuple(made), tuple(nodes), tuple(ports), tuple(grads))


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    names = draw(st.lists(words, max_size=3, unique=True))
    blocks = tuple(draw(regions(n)) for n in names)
    one_run = st.builds(Run, st.lists(st.sampled_from(names or [""]), min_size=1).map(tuple), st.integers(0, 126))
    return Graph(
        name=draw(st.text()),
        workload=draw(st.sampled_from(Workload)),
        dtype=draw(st.sampled_from(DType)),
        regions=blocks,
        schedule=tuple(draw(st.lists(one_run, max_size=3))) if names else (),
        constraints=tuple(
            draw(st.lists(st.builds(Constraint, dims, several.map(group_axes), st.text(), st.booleans()), max_size=2))
        ),
        axes=tuple(draw(st.lists(axes, max_size=3, unique=True))),
        notes=tuple(draw(st.lists(st.text(), max_size=2))),
    )


@given(graphs())
def test_print_and_parse_is_the_identity(graph: Graph) -> None:
    text = print_graph(graph)
    assert parse_graph(text) == graph
    assert print_graph(parse_graph(text)) == text


def test_the_random_ops_exist() -> None:
    named = {"copy", "matmul", "attention", "slice", "concat", "reduce", "elementwise", "all_gather"}
    assert named <= OPS.keys()
