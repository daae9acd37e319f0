"""One training graph, small enough to count by hand: embedding, two equal layers, tied head with loss."""

from collections.abc import Callable

import pytest

from slipstick.ir.graph import Graph, Node, Phase, Port, Region, Role, Run, Value, Workload
from slipstick.ir.ops.tensors.matmul import MatmulAttrs
from slipstick.ir.ops.tensors.pointwise import ElementwiseAttrs, FillAttrs
from slipstick.ir.sizes.expr import Dim, symbol
from slipstick.ir.types import DType, TensorType

BATCH, SEQ = symbol("batch"), symbol("seq")
HIDDEN, VOCAB = 8, 16
BACKWARD = Phase.BACKWARD


def value(ident: int, dims: tuple[Dim, ...], role: Role = Role.RESULT, name: str = "", dtype: str = "bf16") -> Value:
    return Value(ident, TensorType(dims, DType(dtype)), ident, role, name)


def stem() -> Region:
    x = (BATCH, SEQ, HIDDEN)
    values = (
        value(0, (BATCH, SEQ), Role.INPUT, "input_ids", "int64"),
        value(1, (VOCAB, HIDDEN), Role.PARAM, "embed.weight"),
        value(2, x, Role.PORT, "dh"),
        value(3, x),
        value(4, (VOCAB, HIDDEN)),
    )
    nodes = (
        Node("embedding", (0, 1), (3,), scope="embed"),
        Node("embedding_bwd", (2, 0), (4,), scope="embed", phase=BACKWARD, forward=3),
    )
    return Region("stem", values, nodes, (Port("h", 3),), ((1, 4),))


def block() -> Region:
    x, w = (BATCH, SEQ, HIDDEN), (HIDDEN, HIDDEN)
    values = (
        value(0, x, Role.PORT, "h"),
        value(1, w, Role.PARAM, "layers.*.weight"),
        value(2, x, Role.PORT, "dh"),
        *(value(i, x) for i in (3, 4, 5, 6)),
        value(7, w),
    )
    at = "layers.*"
    nodes = (
        Node("matmul", (0, 1), (3,), MatmulAttrs("abk,nk->abn"), at),
        Node("elementwise", (3,), (4,), ElementwiseAttrs(("silu",)), f"{at}.act"),
        Node("elementwise", (2, 3), (5,), ElementwiseAttrs(("silu_bwd",)), f"{at}.act", BACKWARD, 4),
        Node("matmul", (5, 1), (6,), MatmulAttrs("abn,nk->abk"), at, BACKWARD, 3),
        Node("matmul", (5, 0), (7,), MatmulAttrs("abn,abk->nk"), at, BACKWARD, 3),
    )
    return Region("block", values, nodes, (Port("h", 4), Port("dh", 6)), ((1, 7),))


def head() -> Region:
    x, logits = (BATCH, SEQ, HIDDEN), (BATCH, SEQ, VOCAB)
    values = (
        value(0, x, Role.PORT, "h"),
        value(1, (VOCAB, HIDDEN), Role.PARAM, "embed.weight"),
        value(2, (BATCH, SEQ), Role.INPUT, "labels", "int64"),
        value(3, logits),
        value(4, (), dtype="fp32"),
        value(5, (BATCH, SEQ, 3), dtype="fp32"),
        value(6, (), dtype="fp32"),
        value(7, logits),
        value(8, x),
        value(9, (VOCAB, HIDDEN)),
    )
    nodes = (
        Node("matmul", (0, 1), (3,), MatmulAttrs("abk,nk->abn"), "lm_head"),
        Node("cross_entropy", (3, 2), (4, 5)),
        Node("fill", (), (6,), FillAttrs("ones"), phase=BACKWARD),
        Node("cross_entropy_bwd", (6, 3, 2, 5), (7,), phase=BACKWARD, forward=4),
        Node("matmul", (7, 1), (8,), MatmulAttrs("abn,nk->abk"), "lm_head", BACKWARD, 3),
        Node("matmul", (7, 0), (9,), MatmulAttrs("abn,abk->nk"), "lm_head", BACKWARD, 3),
    )
    return Region("head", values, nodes, (Port("dh", 8), Port("result0", 4)), ((1, 9),))


@pytest.fixture
def train_graph() -> Graph:
    schedule = (Run(("stem",)), Run(("block",), 2), Run(("head",)))
    return Graph("tiny", Workload.TRAIN, DType.BF16, (stem(), block(), head()), schedule)


@pytest.fixture
def twelve(traced: Callable[[str], Graph]) -> Graph:
    """The small Llama with twelve layers."""
    graph = traced("tiny-llama.train")
    runs = tuple(Run(r.regions, 12) if r.count > 1 else r for r in graph.schedule)
    return Graph(graph.name, graph.workload, graph.dtype, graph.regions, runs)
