"""What hand-fused kernels keep and write in place, and what PyTorch's own loss keeps, against counts by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slipstick.cost.memory.liveness import live_bytes
from slipstick.driver.estimate import lower
from slipstick.ir.graph import Graph, Region
from slipstick.ir.plan import Family
from slipstick.ir.sizes.expr import Expr
from slipstick.passes.manager import parse_pipeline

Traced = Callable[[str], Graph]

# tiny-llama: hidden 64, 4 heads of 16, 2 of them for keys and values, MLP 96, vocabulary 160.
HIDDEN, KV, MLP, VOCAB = 64, 32, 96, 160
ENV = {"mbs": 3.0, "seq": 64.0, "tp": 2.0, "dp": 4.0}
TOKENS = 3 * 64


def lowered(graph: Graph, **policy: object) -> Graph:
    return lower(graph, Family(**policy)).graph  # type: ignore[arg-type]


def at(e: Expr) -> float:
    return float(e.evaluate(ENV))


def kept(region: Region) -> float:
    """Kept bytes of activations: everything but row statistics."""
    rows = [v for v in region.values if v.saved and v.storage == v.id and v.type.rank == 3 and v.type.dims[2] == 1]
    lse = [v for v in region.values if v.saved and v.type.rank == 3 and str(v.type.dtype) == "fp32"]
    small = {v.id: at(v.type.num_bytes) for v in (*rows, *lse) if v.role.value == "result"}
    return at(region.saved_bytes) - sum(small.values())


@pytest.mark.parametrize(("kernels", "widths"), [("eager", 8), ("compiled", 6), ("fused", 6)])
def test_a_layer_keeps_what_the_closed_form_says(traced: Traced, kernels: str, widths: int) -> None:
    # Korthikanti et al. (arXiv 2205.05198) for a gated layer with flash attention and sequence parallelism:
    # two inputs and two norms over the shard, q, k, v and result over heads, and 6 (fused) or 8 bytes of MLP width.
    block = lowered(traced("tiny-llama.train"), kernels=kernels, sp=True).region("block0")
    wanted = TOKENS * (8 * HIDDEN / 2 + 2 * (2 * HIDDEN + 2 * KV) / 2 + widths * MLP / 2)
    assert kept(block) == wanted


def test_what_is_repeated_becomes_part_of_the_kernel_that_reads_it(traced: Traced) -> None:
    block = lowered(traced("tiny-llama.train"), kernels="fused").region("block0")
    silu = [n for n in block.nodes if "silu" in getattr(n.attrs, "fns", ())]
    assert [n.phase.value for n in silu] == ["forward", "backward"]
    assert all("mul" in getattr(n.attrs, "fns", ()) for n in silu)


@pytest.mark.parametrize(("kernels", "a_logit"), [("eager", 8), ("torch", 12), ("compiled", 4), ("fused", 6)])
def test_bytes_a_logit_at_the_loss(traced: Traced, kernels: str, a_logit: int) -> None:
    # eager: fp32 logits and their gradient. torch: log-probabilities, their gradient and that of the logits.
    # compiled: 2-byte logits and their gradient of 2 bytes, no cast in memory.
    # fused: 2-byte logits beside the fp32 copy, which then turns into the gradient in place.
    head = lowered(traced("tiny-llama.train"), kernels=kernels).region("epilogue")
    most = max(at(e) for e in live_bytes(head)) / (TOKENS * VOCAB / 2)
    others = (3 * 2 * HIDDEN + 64) / (VOCAB / 2)  # hidden states, statistics, targets
    assert a_logit <= most <= a_logit + others


def test_weight_gradients_are_added_in_place_but_norms_are_not(traced: Traced) -> None:
    block = lowered(traced("tiny-llama.train"), kernels="fused").region("block0")
    sums = {n.inputs[0]: n.key for n in block.nodes if n.op == "accumulate"}
    in_place = {g for g, s in sums.items() if block.by_id[g].storage == s}
    assert {block.by_id[g].type.rank for g in in_place} == {2}
    assert {block.by_id[g].type.rank for g in sums.keys() - in_place} == {1}


def test_gradients_that_are_reduced_first_are_not_added_in_place(traced: Traced) -> None:
    block = lowered(traced("tiny-llama.train"), kernels="fused", zero=2).region("block0")
    assert all(block.by_id[n.inputs[0]].storage != n.key for n in block.nodes if n.op == "accumulate")


def test_inference_has_nothing_to_keep(traced: Traced) -> None:
    graph = parse_pipeline("shard").run(traced("tiny-llama.decode"))[0]
    for name in ("remat", "inplace", "two_step_loss", "compiled_loss"):
        assert not parse_pipeline(name).run(graph)[1][0].changed
