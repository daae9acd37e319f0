"""Tensor-parallel degrees that do not divide: the largest share is what a rank has, and few heads are held in copies.

Small models are drawn as text: attention with any number of heads, and a table with any vocabulary.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.machine.load import load_system
from slipstick.driver.estimate import estimate, lower
from slipstick.frontend import load
from slipstick.ir.graph import Graph, Phase, Region, Role, Run, Workload
from slipstick.ir.ops.collectives import CollectiveAttrs
from slipstick.ir.ops.tensors.layout import SliceAttrs
from slipstick.ir.placement import TP
from slipstick.ir.plan import Family, Plan, make_plan
from slipstick.ir.plan.divisibility import Uneven, check_divisibility, legal_degrees
from slipstick.ir.sizes.expr import Dim, as_expr
from slipstick.ir.sizes.rounding import share
from slipstick.ir.text.parse import parse_graph
from slipstick.passes.manager import parse_pipeline

HEAD_DIM = 16
PREFILL = Family(workload=Workload.PREFILL)


def table(vocabulary: int) -> Graph:
    """An embedding and a head."""
    return parse_graph(f"""slipstick.graph 1
graph "drawn" prefill bf16
schedule all
region all
  %0 = input "input_ids" : int64[batch, seq]
  %1 = param "embed_tokens.weight" : bf16[{vocabulary}, 64]
  %2 = param "lm_head.weight" : bf16[{vocabulary}, 64]
  %3 = embedding(%0, %1) : bf16[batch, seq, 64] @embed_tokens
  %4 = matmul(%3, %2) {{spec="abc,dc->abd"}} : bf16[batch, seq, {vocabulary}] @lm_head
  out "result0" = %4
end
""")


_CORE = """
  %10 = reshape(%7) : bf16[batch, seq, {heads}, 16]
  %11 = permute(%10) {{dims=[0, 2, 1, 3]}} : bf16[batch, {heads}, seq, 16]
  %12 = reshape(%8) : bf16[batch, seq, {kv}, 16]
  %13 = permute(%12) {{dims=[0, 2, 1, 3]}} : bf16[batch, {kv}, seq, 16]
  %14 = reshape(%9) : bf16[batch, seq, {kv}, 16]
  %15 = permute(%14) {{dims=[0, 2, 1, 3]}} : bf16[batch, {kv}, seq, 16]
  %16, %17 = attention(%11, %13, %15) : bf16[batch, seq, {heads}, 16] ; fp32[batch, {heads}, seq] @attn
  %18 = reshape(%16) : bf16[batch, seq, {q}]
  %19 = matmul(%18, %4) {{spec="abc,dc->abd"}} : bf16[batch, seq, 64] @o_proj
  out "result0" = %19
end
"""


def attention(heads: int, kv: int) -> Graph:
    """One attention layer with a projection for each of q, k and v."""
    text = """slipstick.graph 1
graph "drawn" prefill bf16
schedule all
region all
  %0 = input "x" : bf16[batch, seq, 64]
  %1 = param "attn.q_proj.weight" : bf16[{q}, 64]
  %2 = param "attn.k_proj.weight" : bf16[{n}, 64]
  %3 = param "attn.v_proj.weight" : bf16[{n}, 64]
  %4 = param "attn.o_proj.weight" : bf16[64, {q}]
  %5 = param "attn.k_proj.bias" : bf16[{n}]
  %7 = matmul(%0, %1) {{spec="abc,dc->abd"}} : bf16[batch, seq, {q}] @q_proj
  %8 = matmul(%0, %2, %5) {{spec="abc,dc->abd"}} : bf16[batch, seq, {n}] @k_proj
  %9 = matmul(%0, %3) {{spec="abc,dc->abd"}} : bf16[batch, seq, {n}] @v_proj"""
    return parse_graph((text + _CORE).format(heads=heads, kv=kv, q=heads * HEAD_DIM, n=kv * HEAD_DIM))


def packed(heads: int, kv: int) -> Graph:
    """One attention layer with a fused projection."""
    text = """slipstick.graph 1
graph "drawn" prefill bf16
schedule all
region all
  %0 = input "x" : bf16[batch, seq, 64]
  %1 = param "attn.qkv_proj.weight" : bf16[{all}, 64]
  %4 = param "attn.o_proj.weight" : bf16[64, {q}]
  %6 = matmul(%0, %1) {{spec="abc,dc->abd"}} : bf16[batch, seq, {all}] @qkv_proj
  %7 = slice(%6) {{dim=2, start=0}} : bf16[batch, seq, {q}] ~6
  %8 = slice(%6) {{dim=2, start={q}}} : bf16[batch, seq, {n}] ~6
  %9 = slice(%6) {{dim=2, start={qk}}} : bf16[batch, seq, {n}] ~6"""
    q, n = heads * HEAD_DIM, kv * HEAD_DIM
    return parse_graph((text + _CORE).format(heads=heads, kv=kv, q=q, n=n, qk=q + n, all=q + 2 * n))


def shard(graph: Graph, options: str = "") -> Graph:
    return parse_pipeline(f"shard{{{options}}}" if options else "shard").run(graph)[0]


def number(dim: Dim, tp: int) -> int:
    found = float(as_expr(dim).evaluate({"tp": float(tp), "dp": 1.0, "mbs": 1.0, "seq": 64.0}))
    assert found == pytest.approx(round(found), rel=1e-12)
    return round(found)


def parameters(region: Region, tp: int) -> dict[str, tuple[int, ...]]:
    return {v.name: tuple(number(d, tp) for d in v.type.dims) for v in region.of_role(Role.PARAM)}


def plan(tp: int, family: Family = PREFILL, seq_len: int = 64) -> Plan:
    return make_plan(num_gpus=tp, tp=tp, seq_len=seq_len, family=family)


# Sizes with heads, copies of them, and none of either.
KV = st.integers(2, 12)
GROUPS = st.integers(2, 8)


@given(vocabulary=st.integers(1, 100_000), tp=st.integers(1, 64))
def test_all_ranks_hold_the_table_and_what_fills_up_the_last_share(vocabulary: int, tp: int) -> None:
    sharded = shard(table(vocabulary)).region("all")
    rows, hidden = parameters(sharded, tp)["lm_head.weight"]
    assert hidden == 64
    # As `torch.chunk` distributes: full shares, then the rest, then nothing.
    held = [max(0, min(rows, vocabulary - rank * rows)) for rank in range(tp)]
    assert (sum(held), held[0]) == (vocabulary, rows)
    assert 0 <= rows * tp - vocabulary < tp


@given(kv=KV, groups=GROUPS, data=st.data())
def test_all_ranks_hold_the_projections_once_and_keys_and_values_as_often_as_counted(
    kv: int, groups: int, data: st.DataObject
) -> None:
    heads = kv * groups
    graph = shard(attention(heads, kv))
    tp = data.draw(st.sampled_from(legal_degrees(graph, plan(1), TP.group)))
    local = parameters(graph.region("all"), tp)
    copies = tp // kv if tp > kv else 1
    wanted = {"q_proj.weight": 1, "k_proj.weight": copies, "v_proj.weight": copies, "k_proj.bias": copies}
    whole = {"q_proj.weight": heads * 16 * 64, "k_proj.weight": kv * 16 * 64, "v_proj.weight": kv * 16 * 64}
    whole["k_proj.bias"] = kv * 16
    for name, times in wanted.items():
        numel = 1
        for d in local[f"attn.{name}"]:
            numel *= d
        assert numel * tp == whole[name] * times
    # Whole groups: every rank's queries find their keys and values.
    assert local["attn.k_proj.weight"][0] == max(kv // tp, 1) * HEAD_DIM


@given(kv=KV, groups=GROUPS)
def test_legal_degrees_divide_the_heads_and_fit_the_key_value_heads(kv: int, groups: int) -> None:
    heads = kv * groups
    wanted = [d for d in range(1, heads + 1) if heads % d == 0 and (kv % d == 0 or d % kv == 0)]
    assert legal_degrees(shard(attention(heads, kv)), plan(1), TP.group) == wanted
    assert legal_degrees(shard(packed(heads, kv)), plan(1), TP.group) == wanted


@given(kv=KV, groups=GROUPS, tp=st.integers(1, 32))
def test_a_fused_projection_holds_the_shares_side_by_side(kv: int, groups: int, tp: int) -> None:
    graph = shard(packed(kv * groups, kv))
    if tp not in legal_degrees(graph, plan(1), TP.group):
        return
    region = graph.region("all")
    q, n = kv * groups // tp * HEAD_DIM, max(kv // tp, 1) * HEAD_DIM
    assert parameters(region, tp)["attn.qkv_proj.weight"] == (q + 2 * n, 64)
    slices = [n for n in region.nodes if isinstance(n.attrs, SliceAttrs)]
    starts = [number(s.attrs.start, tp) for s in slices if isinstance(s.attrs, SliceAttrs)]
    assert starts == [0, q, q + n]
    assert [number(region.by_id[s.key].type.dims[2], tp) for s in slices] == [q, n, n]


def test_one_head_of_keys_and_values_is_gathered_for_the_queries_of_every_rank() -> None:
    graph = shard(attention(32, 1))
    # The degree must divide the heads of the queries and, for the projections, the 16 entries of the one head.
    assert legal_degrees(graph, plan(1), TP.group) == [1, 2, 4, 8, 16]
    region = graph.region("all")
    (call,) = (n for n in region.nodes if n.op == "attention")
    assert [number(region.by_id[i].type.dims[1], 8) for i in call.inputs] == [4, 1, 1]
    gathers = [region.by_id[n.key].type.dims[-1] for n in region.nodes if n.op == "all_gather"]
    assert gathers == [16, 16]


def test_one_head_of_a_fused_projection_is_held_by_every_rank() -> None:
    graph = shard(packed(32, 1))
    # The degree must divide the 32 heads of the queries, and nothing else: no rank has a part of the one head.
    assert legal_degrees(graph, plan(1), TP.group) == [1, 2, 4, 8, 16, 32]
    region = graph.region("all")
    # Beside 32 / 8 heads of queries, of 16 entries each, stand one of keys and one of values.
    assert parameters(region, 8)["attn.qkv_proj.weight"] == (4 * 16 + 2 * 16, 64)
    (call,) = (n for n in region.nodes if n.op == "attention")
    assert [number(region.by_id[i].type.dims[1], 8) for i in call.inputs] == [4, 1, 1]
    assert not any(n.op == "all_gather" for n in region.nodes)


def test_as_many_heads_of_keys_as_of_queries_are_never_copied() -> None:
    graph = shard(attention(8, 8))
    assert legal_degrees(graph, plan(1), TP.group) == [1, 2, 4, 8]
    assert not any(c.copied for c in graph.constraints)


def test_keys_that_lie_between_their_queries_are_not_copied() -> None:
    # One matrix of groups, each of two queries, a key and a value: a copy of a group would be one of its queries too.
    graph = parse_graph("""slipstick.graph 1
graph "drawn" prefill bf16
schedule all
region all
  %0 = input "x" : bf16[batch, seq, 64]
  %1 = param "attn.qkv_proj.weight" : bf16[256, 64]
  %6 = matmul(%0, %1) {spec="abc,dc->abd"} : bf16[batch, seq, 256] @qkv_proj
  %7 = reshape(%6) : bf16[batch, seq, 4, 4, 16] ~6
  %8 = slice(%7) {dim=3, start=0} : bf16[batch, seq, 4, 2, 16] ~6
  %9 = reshape(%8) : bf16[batch, seq, 8, 16] ~6
  %10 = slice(%7) {dim=3, start=2, drop=true} : bf16[batch, seq, 4, 16] ~6
  %11 = slice(%7) {dim=3, start=3, drop=true} : bf16[batch, seq, 4, 16] ~6
  %12 = permute(%9) {dims=[0, 2, 1, 3]} : bf16[batch, 8, seq, 16] ~6
  %13 = permute(%10) {dims=[0, 2, 1, 3]} : bf16[batch, 4, seq, 16] ~6
  %14 = permute(%11) {dims=[0, 2, 1, 3]} : bf16[batch, 4, seq, 16] ~6
  %15, %16 = attention(%12, %13, %14) : bf16[batch, seq, 8, 16] ; fp32[batch, 8, seq] @attn
  out "result0" = %15
end
""")
    sharded = shard(graph.with_regions(tuple(graph.regions)), 'tp_plan="megatron"')
    assert not any(c.copied for c in sharded.constraints)


@pytest.mark.parametrize(("vocabulary", "printed"), [(50257, "ceil_50257_tp"), (50400, "50400/tp")])
def test_what_every_number_of_heads_divides_stays_a_quotient(vocabulary: int, printed: str) -> None:
    # Twelve heads: a legal degree divides 12, and 50400 = 12 x 4200.
    layer, ends = attention(12, 3).regions[0], table(vocabulary).regions[0]
    both = replace(
        table(vocabulary),
        regions=(replace(ends, outputs=()), replace(layer, name="layer")),
        schedule=(Run(("all",)), Run(("layer",))),
    )
    head = next(v for v in shard(both).region("all").values if v.name == "lm_head.weight")
    assert str(head.type.dims[0]) == printed


def test_experts_must_be_divided_inside(tiny_mixtral: Graph) -> None:
    found = {(str(c.dim), c.axis) for c in shard(tiny_mixtral).constraints}
    # Gate and up projection side by side, and the inner size.
    assert {("192", "tp"), ("96", "tp")} <= found


def test_where_nothing_must_be_even_every_number_of_ranks_is_legal() -> None:
    graph = shard(table(1000))
    assert graph.constraints == ()
    assert legal_degrees(graph, plan(6), TP.group) == [1, 2, 3, 6]


def test_a_reader_learns_what_is_uneven() -> None:
    assert list(Uneven.of(shard(table(1000))).notes(plan(3))) == [
        "tp=3 does not divide 1000 ('embed_tokens.weight'): the largest share, 334, is priced; the smallest is 332"
    ]
    assert list(Uneven.of(shard(table(1000))).notes(plan(4))) == []
    assert list(Uneven.of(shard(attention(8, 2))).notes(plan(4))) == [
        "tp=4 is more than the 2 key-value heads of attn: 2 ranks hold a copy of each"
    ]
    assert list(Uneven.of(shard(attention(8, 2))).notes(plan(2))) == []


def test_the_largest_share_is_what_memory_counts() -> None:
    system = load_system("dgx-h100")
    weights = [estimate(table(1000), system, plan(tp)).memory_bytes["weights"] for tp in (1, 3)]
    # Two tables in bf16: of 1000 rows one rank holds all, three ranks 334 each at most.
    assert weights == [2 * 1000 * 64 * 2, 2 * 334 * 64 * 2]


@pytest.mark.parametrize(("tp", "heads"), [(8, 1), (16, 1), (32, 1), (4, 2), (1, 8)])
def test_llama_31_8b_has_at_least_one_key_value_head_a_rank(llama_8b: Graph, tp: int, heads: int) -> None:
    graph = shard(llama_8b, "sp=true")
    check_divisibility(graph, plan(tp, Family(sp=True), seq_len=8192))
    region = graph.region("block0")
    local = parameters(region, tp)
    assert local["model.layers.*.self_attn.k_proj.weight"] == (heads * 128, 4096)
    assert local["model.layers.*.self_attn.q_proj.weight"] == (4096 // tp, 4096)
    calls = [n for n in region.nodes if n.op == "attention"]
    shapes = [[number(region.by_id[i].type.dims[1], tp) for i in n.inputs] for n in calls]
    assert shapes == [[32 // tp, heads, heads]]


def test_latent_attention_knows_no_limit_but_its_heads() -> None:
    graph = shard(load("deepseek-v3"))
    assert not any(c.copied for c in graph.constraints)
    assert min(c.dim for c in graph.constraints if isinstance(c.dim, int)) == 128


def test_ranks_with_copies_sum_their_gradients_once_a_step(llama_8b: Graph) -> None:
    lowered = lower(llama_8b, Family())
    region = lowered.graph.region("block0")
    (sums,) = (n for n in region.nodes if isinstance(n.attrs, CollectiveAttrs) and n.attrs.axis == "tp/8")
    assert (sums.op, sums.phase) == ("all_reduce", Phase.REDUCE)
    local = share(8, "tp") * 128
    assert [region.by_id[i].type.dims for i in sums.inputs] == [(local, 4096), (local, 4096)]
    name = f"block0/%{sums.key}"
    times = {}
    for tp in (1, 8, 16, 32):
        answer = estimate(llama_8b, load_system("dgx-h100"), plan(tp, Family(), seq_len=8192), lowered=lowered)
        times[tp] = next(s for e, s in answer.table.timing.rows() if e.name == name)
    # Up to eight ranks no head is held twice. More ranks share one among two or four neighbours.
    assert times[1] == times[8] == 0
    assert 0 < times[16] < times[32]
