"""Latent attention over the latents: the same numbers, the FLOPs and bytes of the closed form, and less time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.system import System
from slipstick.cost.flops import Convention, ModelFlops
from slipstick.driver.estimate import estimate, lower, pipeline_for
from slipstick.frontend import load
from slipstick.ir.errors import PlanError, UnknownNameError
from slipstick.ir.graph import Graph, Node, Region, Role, Workload
from slipstick.ir.ops import work_of
from slipstick.ir.ops.tensors.layout import ConcatAttrs, PermuteAttrs, SliceAttrs
from slipstick.ir.ops.tensors.matmul import MatmulAttrs
from slipstick.ir.plan import Family, make_plan
from slipstick.ir.sizes.expr import as_expr, symbol
from slipstick.ir.text.parse import parse_graph
from slipstick.ir.text.printer import print_graph
from slipstick.passes.fusion.absorb import Absorb, absorbed, expands

CONFIGS = Path(__file__).parents[2] / "data" / "configs"
DECODE = Family(workload=Workload.DECODE)
# Of the tiny model: heads, widths without positions, of values and with positions, and the rank of keys and values.
HEADS, NOPE, WIDE, ROPE, RANK = 4, 16, 16, 8, 16
Numbers: TypeAlias = NDArray[np.float64]
Arrays: TypeAlias = dict[int, Numbers]
Traced: TypeAlias = Callable[[str], Graph]


@pytest.fixture(scope="module")
def tiny() -> Graph:
    return load(str(CONFIGS / "tiny-deepseek.json"), "decode")


@pytest.fixture(scope="module")
def deepseek() -> Graph:
    return load("deepseek-v3", "decode")


@pytest.fixture(scope="module")
def h200() -> System:
    return load_system("dgx-h200")


def attention(region: Region) -> Node:
    return next(n for n in region.nodes if n.op == "attention")


def run(region: Region, given: Arrays, env: Mapping[str, float]) -> Arrays:
    """Numbers of the nodes around attention, in the order of the graph; what is not known there is left out."""
    found = dict(given)
    for node in region.nodes:
        if node.key not in found and all(i in found for i in node.inputs):
            dims = [int(as_expr(d).evaluate(env)) for d in region.by_id[node.key].type.dims]
            made = apply(node, [found[i] for i in node.inputs], dims)
            if made is not None:
                found[node.key] = made
    return found


def apply(node: Node, inputs: list[Numbers], dims: list[int]) -> Numbers | None:
    attrs, first = node.attrs, inputs[0]
    if node.op == "attention":
        return attended(*(np.broadcast_to(t, (t.shape[0], HEADS, *t.shape[2:])) for t in inputs))
    if isinstance(attrs, MatmulAttrs):
        return np.asarray(np.einsum(attrs.spec, *inputs))
    if isinstance(attrs, PermuteAttrs):
        return np.transpose(first, attrs.dims)
    if isinstance(attrs, SliceAttrs):
        assert isinstance(attrs.start, int)
        return np.asarray(np.take(first, range(attrs.start, attrs.start + dims[attrs.dim]), attrs.dim))
    if isinstance(attrs, ConcatAttrs):
        return np.concatenate(inputs, attrs.dim)
    if node.op == "kv_append":
        return np.concatenate(inputs, 2)
    if node.op == "expand":
        return np.broadcast_to(first, dims)
    return np.reshape(first, dims) if node.op == "reshape" else None


def attended(q: Numbers, k: Numbers, v: Numbers) -> Numbers:
    scores = np.exp(q @ np.swapaxes(k, 2, 3))
    return np.swapaxes(scores / scores.sum(-1, keepdims=True) @ v, 1, 2)


def test_the_numbers_are_the_same(tiny: Graph) -> None:
    # What comes before (projections, norms, rotations) is drawn once and given to both graphs; caches side by side.
    draw, env = np.random.default_rng(7), {"batch": 2.0, "kv": 5.0}
    before, after = tiny.region("block0"), absorbed(tiny).region("block0")
    known = {i for r in (before, after) for i in r.by_id if r.by_id[i].role is not Role.RESULT}
    known |= {o for n in before.nodes if n.op in ("norm", "rope") or ".q_b_proj" in n.scope for o in n.outputs}

    def drawn(ids: set[int], region: Region) -> Arrays:
        kinds = {i: region.by_id[i].type.dims for i in sorted(ids) if i in region.by_id}
        return {i: draw.normal(size=[int(as_expr(d).evaluate(env)) for d in dims]) / 4 for i, dims in kinds.items()}

    given = drawn(known & set(before.by_id), before)
    old = [v.id for v in before.of_role(Role.CACHE)]
    (new,) = (v.id for v in after.of_role(Role.CACHE))
    same = {**given, new: np.concatenate([given[i] for i in old], 3)}
    key = attention(before).key
    one, other = run(before, given, env)[key], run(after, same, env)[key]
    assert one.shape == (2, 1, HEADS, WIDE)
    np.testing.assert_allclose(other, one, rtol=1e-12)


def test_attention_reads_one_cached_tensor_for_all_heads(tiny: Graph) -> None:
    region = absorbed(tiny).region("block0")
    node, batch, kv = attention(region), symbol("batch"), symbol("kv") + 1
    q, k, v = (region.by_id[i] for i in node.inputs)
    assert q.type.dims == (batch, HEADS, 1, RANK + ROPE)
    assert k.type.dims == (batch, 1, kv, RANK + ROPE)
    assert v.type.dims == (batch, 1, kv, RANK)
    assert k.storage == v.storage
    assert [c.name for c in region.of_role(Role.CACHE)] == ["cache.*.latents"]
    read = batch * kv * (RANK + ROPE) * 2 + batch * HEADS * (RANK + ROPE) * 2
    assert work_of(region, node).read_bytes == read


def test_halves_one_behind_the_other_in_length_are_no_latent_attention(tiny: Graph) -> None:
    def turned(region: Region) -> Region:
        nodes = (replace(n, attrs=ConcatAttrs(2)) if n.attrs == ConcatAttrs(3) else n for n in region.nodes)
        return replace(region, nodes=tuple(nodes))

    other = tiny.with_regions(tuple(map(turned, tiny.regions)))
    assert absorbed(other) == other
    assert absorbed(tiny) != tiny


def test_flops_are_those_of_the_absorbed_form(tiny: Graph) -> None:
    # Of a token and layer, per head: q into latents 2 nope rank, scores 2 (rank + rope), outputs 2 rank a cached token,
    # out of latents 2 rank values; the expanded form has 2 rank (nope + values) for each cached token instead.
    batch, kv, layers = 3.0, 100.0, 4
    env = {"batch": np.array([batch]), "kv": np.array([kv]), "seq": np.array([0.0])}
    one, other = (ModelFlops.of(g).total(env, Convention.FULL)[0] for g in (tiny, absorbed(tiny)))
    each = 2 * batch * HEADS * layers
    over_latents = each * (RANK * (NOPE + WIDE) + (kv + 1) * (2 * RANK + ROPE))
    expanded = each * (kv + 1) * (RANK * (NOPE + WIDE) + NOPE + ROPE + WIDE)
    assert other - one == over_latents - expanded


def test_a_cached_token_of_deepseek_is_70272_bytes_whatever_tp(deepseek: Graph, h200: System) -> None:
    # 61 layers of 512 + 64 numbers of two bytes (DeepSeek-V3, arXiv 2412.19437); in prefill likewise.
    for tp in (1, 8):
        plan = make_plan(num_gpus=tp, tp=tp, seq_len=1, kv_len=999, micro_batch=2, family=DECODE)
        assert estimate(deepseek, h200, plan).memory_bytes["kv_cache"] == 2 * 1000 * 61 * 576 * 2
    family = Family(workload=Workload.PREFILL)
    plan = make_plan(num_gpus=8, tp=8, seq_len=1000, micro_batch=2, family=family)
    prefill = estimate(load("deepseek-v3", "prefill"), h200, plan)
    assert prefill.memory_bytes["kv_cache"] == 2 * 1000 * 70272


def test_a_step_over_latents_takes_less_time(deepseek: Graph, h200: System) -> None:
    def step(mla: str, kv: int) -> tuple[float, float]:
        family = Family(workload=Workload.DECODE, mla=mla)
        plan = make_plan(num_gpus=8, tp=8, seq_len=1, kv_len=kv, micro_batch=32, family=family)
        found = estimate(deepseek, h200, plan)
        return found.metrics["step_time_s"], found.metrics["mfu"]

    latent, expanded = step("latent", 4096), step("expanded", 4096)
    assert latent[0] < 0.4 * expanded[0]
    assert latent[1] < 1  # useful work alone: the expansion counts only where it is done
    assert step("latent", 8192)[0] > latent[0]


def test_heads_lie_over_tp_and_the_cache_is_whole(deepseek: Graph) -> None:
    region = lower(deepseek, DECODE).graph.region("block0")
    node = attention(region)
    q, k = (region.by_id[i] for i in node.inputs[:2])
    assert q.type.dims[1] == as_expr(128) / symbol("tp")
    assert k.type.dims[1] == 1
    over_tp = [n for n in region.nodes if n.op == "all_reduce"]
    assert len(over_tp) == 2  # behind attention and behind the MLP: nothing more than with keys and values by head
    weights = {v.name: v.type.dims for v in region.of_role(Role.PARAM)}
    assert weights["model.layers.*.self_attn.kv_b_proj.weight"] == (as_expr(32768) / symbol("tp"), 512)


def test_other_graphs_are_left_alone(traced: Traced) -> None:
    for graph in (traced("tiny-llama.decode"), load(str(CONFIGS / "tiny-deepseek.json"), "prefill")):
        assert Absorb().apply(graph).graph is graph


def test_the_rewritten_graph_prints_and_parses(tiny: Graph) -> None:
    graph = absorbed(tiny)
    assert parse_graph(print_graph(graph)) == graph
    assert not expands(graph)


def test_expanded_keeps_the_graph_and_says_so(tiny: Graph, h200: System) -> None:
    family = Family(workload=Workload.DECODE, mla="expanded")
    assert "absorb" not in str(pipeline_for(family))
    assert "absorb" in str(pipeline_for(DECODE))
    plan = make_plan(num_gpus=1, seq_len=1, kv_len=64, family=family)
    assert any("--mla latent" in w for w in estimate(tiny, h200, plan).warnings)
    plan = make_plan(num_gpus=1, seq_len=1, kv_len=64, family=DECODE)
    assert not any("--mla" in w for w in estimate(tiny, h200, plan).warnings)


def test_a_word_that_is_not_known_and_a_phase_that_has_no_use_for_it_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="latent"):
        make_plan(num_gpus=1, seq_len=1, family=Family(workload=Workload.DECODE, mla="latents"))
    with pytest.raises(PlanError, match="decode step attends, and this is prefill"):
        make_plan(num_gpus=1, seq_len=1, family=Family(workload=Workload.PREFILL, mla="expanded"))
