"""One training graph, small enough to count by hand: embedding, two equal layers, tied head with loss."""

from collections.abc import Callable

import pytest

from slipstick import GraphBuilder
from slipstick.ir.graph import Graph, Phase, Region, Run, Workload
from slipstick.ir.types import DType

TOKENS = ("batch", "seq")
HIDDEN, VOCAB = 8, 16
BACKWARD = Phase.BACKWARD


FORWARD, OF_INPUT, OF_WEIGHT = 'spec="abk,nk->abn"', 'spec="abn,nk->abk"', 'spec="abn,abk->nk"'


def stem() -> Region:
    build = GraphBuilder("stem")
    ids = build.source("input_ids", TOKENS, dtype=DType.INT64)
    table, dh = build.source("embed.weight", (VOCAB, HIDDEN), "param"), build.source("dh", (*TOKENS, HIDDEN), "port")
    build.at("embed")
    h = build.node("embedding", ids, table)
    build.at("embed", BACKWARD)
    grad = build.node("embedding_bwd", dh, ids, dims=(VOCAB, HIDDEN), forward=h)
    build.output("h", h)
    build.gradient(table, grad)
    return build.finish()


def block() -> Region:
    build = GraphBuilder("block")
    h = build.source("h", (*TOKENS, HIDDEN), "port")
    w = build.source("layers.*.weight", (HIDDEN, HIDDEN), "param")
    dh = build.source("dh", (*TOKENS, HIDDEN), "port")
    build.at("layers.*")
    y = build.node("matmul", h, w, attrs=FORWARD)
    build.at("layers.*.act")
    act = build.node("elementwise", y, attrs='fns=["silu"]')
    build.at("layers.*.act", BACKWARD)
    dy = build.node("elementwise", dh, y, attrs='fns=["silu_bwd"]', forward=act)
    build.at("layers.*", BACKWARD)
    build.output("h", act)
    build.output("dh", build.node("matmul", dy, w, attrs=OF_INPUT, forward=y))
    build.gradient(w, build.node("matmul", dy, h, attrs=OF_WEIGHT, forward=y))
    return build.finish()


def head() -> Region:
    build = GraphBuilder("head")
    h, w = build.source("h", (*TOKENS, HIDDEN), "port"), build.source("embed.weight", (VOCAB, HIDDEN), "param")
    labels = build.source("labels", TOKENS, dtype=DType.INT64)
    build.at("lm_head")
    logits = build.node("matmul", h, w, attrs=FORWARD)
    build.at()
    loss = build.node("cross_entropy", logits, labels, dtype=DType.FP32, others=[((*TOKENS, 3), DType.FP32)])
    build.at(phase=BACKWARD)
    one = build.node("fill", attrs='kind="ones"', dims=(), dtype=DType.FP32)
    grad = build.node("cross_entropy_bwd", one, logits, labels, loss.outputs[1], forward=loss)
    build.at("lm_head", BACKWARD)
    build.output("dh", build.node("matmul", grad, w, attrs=OF_INPUT, forward=logits))
    build.output("result0", loss)
    build.gradient(w, build.node("matmul", grad, h, attrs=OF_WEIGHT, forward=logits))
    return build.finish()


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
