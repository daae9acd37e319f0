"""Attention product by product, against the fused op and against counts by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slipstick.cost.flops import Convention, ModelFlops
from slipstick.driver.estimate import lower
from slipstick.ir.errors import NotBuiltError, PlanError
from slipstick.ir.graph import Graph
from slipstick.ir.plan import Family
from slipstick.passes.manager import parse_pipeline

Traced = Callable[[str], Graph]
HEADS, HEAD, LAYERS = 4, 16, 2


def test_flops_are_those_of_the_fused_op(traced: Traced) -> None:
    graph = traced("tiny-gpt2.train")
    apart = parse_pipeline("unfuse").run(graph)[0]
    import numpy as np

    env = {"batch": np.array([3.0]), "seq": np.array([64.0]), "kv": np.array([0.0])}
    both = [ModelFlops.of(g).total(env, Convention.FULL)[0] for g in (graph, apart)]
    assert both[0] == both[1]


def test_probabilities_mask_and_what_is_left_are_kept(traced: Traced) -> None:
    # 2 + 1 + 2 bytes a score; the fused op's log-sum-exp (4 bytes a row) goes.
    env = {"mbs": 3.0, "seq": 64.0, "tp": 2.0, "dp": 1.0}
    kept = [
        lower(traced("tiny-gpt2.train"), Family(attention=kind)).graph.region("block0").saved_bytes.evaluate(env)
        for kind in ("flash", "unfused")
    ]
    dropout = any("dropout" in getattr(n.attrs, "fns", ()) for r in traced("tiny-gpt2.train").regions for n in r.nodes)
    scores = 3 * HEADS / 2 * 64 * 64
    assert dropout
    assert kept[1] - kept[0] == (2 + 1 + 2) * scores - 4 * 3 * HEADS / 2 * 64


def test_heads_stay_apart_over_tp(traced: Traced) -> None:
    block = lower(traced("tiny-gpt2.train"), Family(attention="unfused")).graph.region("block0")
    over_tp = [n.op for n in block.nodes if getattr(n.attrs, "axis", "") == "tp" and n.phase.value == "forward"]
    fused = lower(traced("tiny-gpt2.train"), Family()).graph.region("block0")
    assert over_tp == [n.op for n in fused.nodes if getattr(n.attrs, "axis", "") == "tp" and n.phase.value == "forward"]


def test_fewer_heads_for_keys_are_refused(traced: Traced) -> None:
    with pytest.raises(NotBuiltError, match="as many heads for keys"):
        parse_pipeline("unfuse").run(traced("tiny-llama.train"))


def test_a_graph_without_attention_has_none_to_take_apart(traced: Traced) -> None:
    graph = parse_pipeline("unfuse").run(traced("tiny-gpt2.train"))[0]
    with pytest.raises(PlanError, match=r"attention=unfused changes nothing in .*: it has no attention"):
        parse_pipeline("unfuse").run(graph)
