"""Kernels of serving engines: launches by hand, nothing computed twice or lost, and what each reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.pricing.program import PricedEntry
from slipstick.driver.estimate import Lowered, lower
from slipstick.frontend import load
from slipstick.ir.errors import UsageError, VerifyError
from slipstick.ir.graph import Graph, Role, Workload
from slipstick.ir.placement import MeshAxis
from slipstick.ir.plan import Family
from slipstick.ir.sizes.expr import Expr, total
from slipstick.ir.text.parse import parse_graph
from slipstick.ir.text.printer import print_graph
from slipstick.ir.verify import verify
from slipstick.passes.manager import parse_pipeline

Traced = Callable[[str], Graph]
GOLDEN = Path(__file__).parent / "golden" / "tiny-llama.decode-fused.graph"
CONFIGS = Path(__file__).parents[1] / "data" / "configs"
# tiny-llama: hidden 64, 4 heads and 2 of keys of 16, MLP 96, vocabulary 160.
TOKENS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, TP = 3, 64, 4, 2, 16, 2
ENV = {"mbs": float(TOKENS), "kv": 40.0, "seq": 40.0, "tp": float(TP), "dp": 1.0, "ceil_2_tp": 1.0}
SHARES = {"ceil_2_tp": 2, "ceil_4_tp": 4}


@pytest.fixture(scope="module")
def decode(traced: Traced) -> Graph:
    return traced("tiny-llama.decode")


@pytest.fixture(scope="module")
def fused(decode: Graph) -> Lowered:
    return served(decode, "fused")


def served(graph: Graph, kernels: str, **more: object) -> Lowered:
    return lower(graph, Family(workload=graph.workload, kernels=kernels, **more))  # type: ignore[arg-type]


def kernels(lowered: Lowered, region: str) -> list[PricedEntry]:
    """Kernels of a region in running order; messages are none."""
    place = {n.key: k for k, n in enumerate(lowered.graph.region(region).nodes)}
    found = [e for e in lowered.program.entries if e.region == region and e.message is None]
    return sorted(found, key=lambda e: place[e.key])


def amount(value: Expr) -> float:
    return float(value.evaluate(ENV))


def test_a_layer_has_nine_kernels(decode: Graph, fused: Lowered) -> None:
    # norm, q, k, v, two rotations, two appends, attention, o, sum, norm, gate, up, silu x up, down, sum.
    assert len(kernels(served(decode, "eager"), "block0")) == 17
    ops = ["matmul", "rope", "attention", "matmul", "norm", "matmul", "elementwise", "matmul", "norm"]
    assert [e.op for e in kernels(fused, "block0")] == ops
    # No kernels for angles; behind the head one that draws tokens.
    assert [e.op for e in kernels(fused, "prologue")] == ["embedding", "norm"]
    assert [e.op for e in kernels(fused, "epilogue")] == ["matmul", "reduce"]


def test_a_layer_of_experts_has_as_many_as_engines_have() -> None:
    pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")
    graph = load(str(CONFIGS / "tiny-deepseek.json"), Workload.DECODE)
    ops = [e.op for e in kernels(served(graph, "fused"), "block1")]
    # Behind attention: o, sum with norm, router, routing, experts, shared gate and up, activation, down, both results
    # added, sum with the next norm.
    behind = ["matmul", "norm", "matmul", "topk", "experts", "matmul", "elementwise", "matmul", "elementwise", "norm"]
    assert ops[-len(behind) :] == behind


def test_the_fused_graph_is_the_golden_one(fused: Lowered, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden", default=False):
        GOLDEN.write_text(print_graph(fused.graph), encoding="utf-8")
    text = GOLDEN.read_text(encoding="utf-8")
    assert print_graph(fused.graph) == text
    assert parse_graph(text) == fused.graph


def test_a_rank_multiplies_by_its_part_of_all_three(fused: Lowered) -> None:
    region = fused.graph.region("block0")
    node = next(n for n in region.nodes if n.op == "matmul")
    weight = region.by_id[node.inputs[1]]
    assert weight.name == "model.layers.*.self_attn.q_proj+k_proj+v_proj.weight"
    assert str(weight.placement(MeshAxis.TP)) == "S(0p)"
    # Both heads of keys and values are one a rank; more ranks than heads hold copies.
    rows = weight.type.dims[0]
    assert isinstance(rows, Expr)
    assert amount(rows) == (HEADS + 2 * KV_HEADS) / TP * HEAD_DIM
    assert float(rows.evaluate({"tp": 4.0, "ceil_2_tp": 1.0})) == (1 + 2) * HEAD_DIM


def test_weights_stay_as_many(decode: Graph, fused: Lowered) -> None:
    whole = {"tp": 1.0, **{k: float(n) for k, n in SHARES.items()}}
    assert float(fused.graph.num_parameters.evaluate(whole)) == float(decode.num_parameters.evaluate({}))


def test_a_sum_with_its_norm_reads_two_and_writes_two(fused: Lowered) -> None:
    sums = [e for e in kernels(fused, "block0") if e.op == "norm"]
    assert [e.inside for e in sums] == [("elementwise", "norm")] * 2
    assert [e.behind for e in sums] == ["tp"] * 2
    for e in sums:
        assert amount(e.work.read_bytes) == 2 * (2 * TOKENS * HIDDEN + HIDDEN)
        assert amount(e.work.write_bytes) == 2 * 2 * TOKENS * HIDDEN


def test_rotation_and_append_read_what_is_new_once(fused: Lowered) -> None:
    (rope,) = [e for e in kernels(fused, "block0") if e.op == "rope"]
    assert rope.inside == ("rope", "rope", "kv_append", "kv_append")
    queries, keys = (TOKENS * heads // TP * HEAD_DIM for heads in (HEADS, KV_HEADS))
    angles = TOKENS * 2 * HEAD_DIM
    assert amount(rope.work.read_bytes) == 2 * (queries + 2 * keys + angles)
    # Queries for attention, keys and values into the cache alone.
    assert amount(rope.work.write_bytes) == 2 * (queries + 2 * keys)


def test_logits_are_gathered_and_read_once(fused: Lowered) -> None:
    region = fused.graph.region("epilogue")
    gather = next(n for n in region.nodes if n.op == "all_gather")
    assert str(region.by_id[gather.key].type) == "bf16[mbs, 1, 160]"
    drawn = kernels(fused, "epilogue")[-1]
    assert (amount(drawn.work.read_bytes), amount(drawn.work.write_bytes)) == (2 * TOKENS * 160, 8 * TOKENS)


def test_stages_hand_on_the_norm_too(decode: Graph) -> None:
    boundary = served(decode, "fused", pp=True).graph.region("boundary")
    assert [v.name for v in boundary.of_role(Role.INPUT)] == ["x0", "x0_normed"]


@pytest.fixture(scope="module", params=["llama", "mixtral", "mixtral-ep", "gpt2"])
def pair(request: pytest.FixtureRequest) -> tuple[Lowered, Lowered]:
    """A prefill as PyTorch and as engines run it."""
    pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")
    name, _, ep = request.param.partition("-")
    graph = load(str(CONFIGS / f"tiny-{name}.json"), Workload.PREFILL)
    eager, fused = (served(graph, kernels, ep=bool(ep)) for kernels in ("eager", "fused"))
    return eager, fused


@given(tp=st.sampled_from([1, 2, 4]), ep=st.sampled_from([1, 2]), batch=st.integers(1, 9), seq=st.integers(1, 70))
def test_nothing_is_computed_twice_and_less_is_moved(
    pair: tuple[Lowered, Lowered], tp: int, ep: int, batch: int, seq: int
) -> None:
    env = {"mbs": float(batch), "seq": float(seq), "tp": float(tp), "ep": float(ep), "dp": 1.0}
    flops, moved = zip(*(amounts_of(lowered, env) for lowered in pair), strict=True)
    assert flops[1] == pytest.approx(flops[0], rel=1e-12)
    assert moved[1] <= moved[0]
    for entry in pair[1].program.entries:
        assert at(entry.work.read_bytes, env) >= 0
        assert at(entry.work.write_bytes, env) >= 0


def amounts_of(lowered: Lowered, env: Mapping[str, float]) -> tuple[float, float]:
    """FLOPs of matrix units and bytes of a pass over the model, without the drawing of tokens."""
    entries = [e for e in lowered.program.entries if e.scope != "sampler"]
    return tuple(  # type: ignore[return-value]
        at(total(amount * e.count for e, amount in zip(entries, values, strict=True)), env)
        for values in ([e.work.tensor_flops for e in entries], [e.work.num_bytes for e in entries])
    )


def at(value: Expr, env: Mapping[str, float]) -> float:
    """Evaluate with shares as the ranks' largest."""
    shares = {s: -(-float(s.split("_")[1]) // env["tp"]) for s in value.symbols if s.startswith("ceil_")}
    return float(value.evaluate({**env, **shares}))


def test_norms_stay_where_readers_differ(decode: Graph) -> None:
    sharded = parse_pipeline("shard").run(decode)[0]
    end = sharded.region("epilogue")
    kept = tuple(n for n in end.nodes if n.op != "norm")
    weights = {i for n in end.nodes if n.op == "norm" for i in n.inputs[1:]}
    made = {o for n in end.nodes if n.op == "norm" for o in n.outputs}
    port = next(v.id for v in end.of_role(Role.PORT))
    plain = replace(
        end,
        nodes=tuple(replace(n, inputs=tuple(port if i in made else i for i in n.inputs)) for n in kept),
        values=tuple(v for v in end.values if v.id not in made | weights),
    )
    other = sharded.with_regions(tuple(plain if r is end else r for r in sharded.regions))
    assert parse_pipeline("next_norm").run(other)[0] is other


def test_passes_on_kernels_come_behind_sharding(decode: Graph) -> None:
    for name in ("merge_products", "next_norm", "sample", "one_kernel"):
        with pytest.raises(UsageError, match=f"pass '{name}' belongs behind 'shard'"):
            parse_pipeline(name).run(decode)


@pytest.mark.parametrize(
    ("home", "said"), [("%999", "runs in the kernel of %999, no such node"), ("%29", "runs in that of another")]
)
def test_a_kernel_of_nobody_is_an_error(fused: Lowered, home: str, said: str) -> None:
    # %28, the rotation of keys, runs in the kernel of %27, as the append %29 does.
    text = print_graph(fused.graph)
    assert text.count(" in %27\n") == 3
    with pytest.raises(VerifyError, match=said):
        verify(parse_graph(text.replace(" in %27\n", f" in {home}\n", 1)))
