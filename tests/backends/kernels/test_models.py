"""What the kernel models are given for nodes of a graph: sizes derived by hand, then the kernel asked directly."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from slipstick.backends.kernels.attention.forms import attention_times
from slipstick.backends.kernels.attention.sizes import AttentionSizes
from slipstick.backends.kernels.experts import ExpertsConstants, ExpertSizes, experts_times
from slipstick.backends.kernels.gemm import GemmMachine, GemmSizes, gemm_sizes, gemm_times
from slipstick.backends.kernels.grouped import GroupedSizes, grouped_times
from slipstick.backends.kernels.rowwise import RowwiseSizes, rowwise_times
from slipstick.backends.kernels.terms import Array, KernelTimes
from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.power import powered
from slipstick.backends.pricing.models.attention import AttentionModel
from slipstick.backends.pricing.models.built_in import GemmModel, RowwiseModel
from slipstick.backends.pricing.models.experts import ExpertsModel
from slipstick.backends.pricing.program import compile_graph
from slipstick.backends.pricing.roofline import Backend
from slipstick.driver.estimate import lower
from slipstick.ir.graph import Graph, Phase
from slipstick.ir.plan import Family
from slipstick.ir.text.parse import parse_graph

H100 = load_system("dgx-h100")
# The graphs below train: matrices are multiplied at the clock that the power leaves.
CHIP, KERNELS = powered(H100, steady=True), H100.kernels
BF16_PEAK = CHIP.matmul_flop_per_s("bf16")


def number(x: float) -> Array:
    return np.array(float(x))


def priced(model: Backend, text: str) -> KernelTimes:
    """Price the only node of a region that the model claims."""
    header = 'slipstick.graph 1\ngraph "one" train bf16\nschedule r\nregion r\n'
    graph = parse_graph(header + text + "end\n")
    (group,) = (g for g in compile_graph(graph).compute if any(model.claims(e) for e in g.entries))
    assert len(group.entries) == 1
    return model.bind(group, H100)(group.amounts({}, 1))


def same(found: KernelTimes, wanted: KernelTimes) -> None:
    assert float(found.time_s.item()) == pytest.approx(float(wanted.time_s), rel=1e-12)


def gemm(m: float, n: float, k: float, c_bytes: float, batch: float = 1) -> KernelTimes:
    two = number(2)
    sizes = GemmSizes(number(m), number(n), number(k), "bf16", number(batch), two, two, number(c_bytes), number(0))
    return gemm_times(sizes, CHIP, KERNELS.gemm["bf16"])


def test_a_linear_layer_is_tokens_by_weight_rows() -> None:
    text = """\
  %0 = input "x" : bf16[2, 512, 1024]
  %1 = param "w" : bf16[4096, 1024]
  %2 = matmul(%0, %1) {spec="abk,nk->abn"} : bf16[2, 512, 4096]
"""
    same(priced(GemmModel(), text), gemm(1024, 4096, 1024, 2))


def test_logits_in_fp32_are_written_in_four_bytes() -> None:
    text = """\
  %0 = input "x" : bf16[2, 512, 1024]
  %1 = param "w" : bf16[32000, 1024]
  %2 = matmul(%0, %1) {spec="abk,nk->abn"} : fp32[2, 512, 32000]
"""
    same(priced(GemmModel(), text), gemm(1024, 32000, 1024, 4))


def test_weights_in_few_bits_are_widened_inside_of_the_product() -> None:
    text = """\
  %0 = input "x" : bf16[2, 512, 1024]
  %1 = param "w" : int4_group[4096, 1024]
  %2 = matmul(%0, %1) {spec="abk,nk->abn"} : bf16[2, 512, 4096]
"""
    sizes = gemm_sizes(1024, 4096, 1024, "bf16", weights="int4_group")
    widened = GemmMachine.of(CHIP, "bf16", KERNELS.gemm["bf16"], "int4_group").times(sizes)
    as_they_are = GemmMachine.of(CHIP, "bf16", KERNELS.gemm["bf16"]).times(sizes)
    assert widened.time_s != as_they_are.time_s
    same(priced(GemmModel(), text), widened)


def test_functions_of_a_chain_choose_its_kernel() -> None:
    text = """\
slipstick.graph 1
graph "one" train bf16
schedule r
region r
  %0 = input "x" : bf16[4096, 1024]
  %1 = input "y" : bf16[4096, 1024]
  %2 = elementwise(%0, %1) {fns=["silu", "mul"]} : bf16[4096, 1024]
end
"""
    ((entry,),) = (g.entries for g in compile_graph(parse_graph(text)).compute)
    assert RowwiseModel().numbers(entry, H100)[-1] == "calibration.rowwise.silu_mul."


def test_a_weight_gradient_sums_over_tokens_and_adds_to_an_fp32_sum_in_place() -> None:
    text = """\
  %0 = input "dy" : bf16[2, 512, 4096]
  %1 = input "x" : bf16[2, 512, 1024]
  %2 = input "sum" : fp32[4096, 1024]
  %3 = matmul(%0, %1, %2) {spec="abn,abk->nk"} : fp32[4096, 1024]
"""
    # The sum is read and written: eight bytes an element.
    same(priced(GemmModel(), text), gemm(4096, 1024, 1024, 8))


def test_products_of_heads_are_a_batch() -> None:
    text = """\
  %0 = input "q" : bf16[2, 8, 512, 64]
  %1 = input "k" : bf16[2, 8, 512, 64]
  %2 = matmul(%0, %1) {spec="bhqd,bhkd->bhqk"} : bf16[2, 8, 512, 512]
"""
    same(priced(GemmModel(), text), gemm(512, 512, 64, 2, batch=16))


ATTENTION = """\
  %0 = input "q" : bf16[2, 32, 4096, 128]
  %1 = input "k" : bf16[2, 8, 4096, 128]
  %2 = input "v" : bf16[2, 8, 4096, 128]
  %3, %4 = attention(%0, %1, %2){attrs} : bf16[2, 4096, 32, 128] ; fp32[2, 32, 4096]
"""


def attention(sizes: AttentionSizes) -> KernelTimes:
    kind = H100.stack.attention
    return attention_times(sizes, CHIP, KERNELS.attention[kind], KERNELS.decode["grouped"])


@pytest.mark.parametrize(
    ("attrs", "causal", "window"),
    [("", True, 0), (" {causal=false}", False, 0), (" {window=1024}", True, 1024)],
)
def test_attention_has_its_heads_its_mask_and_its_window(attrs: str, causal: bool, window: int) -> None:
    found = priced(AttentionModel(), ATTENTION.replace("{attrs}", attrs))
    same(found, attention(AttentionSizes.of(2, 32, 8, 4096, 4096, 128, causal=causal, window=window)))


def test_the_share_of_a_context_parallel_rank_is_balanced() -> None:
    text = (
        ATTENTION.replace("{attrs}", " {balanced=true}").replace("32, 4096", "32, 1024").replace("2, 4096", "2, 1024")
    )
    found = priced(AttentionModel(), text)
    same(found, attention(AttentionSizes.of(2, 32, 8, 1024, 4096, 128, balanced=True)))
    # A quarter of all pairs of a whole sequence, and not the last quarter of its queries, which sees more.
    assert found.time_s.item() < attention(AttentionSizes.of(2, 32, 8, 1024, 4096, 128)).time_s


def test_attention_backward_is_the_backward_phase_with_the_same_sizes() -> None:
    text = """\
  %0 = input "q" : bf16[2, 32, 4096, 128]
  %1 = input "k" : bf16[2, 8, 4096, 128]
  %2 = input "v" : bf16[2, 8, 4096, 64]
  %3 = input "o" : bf16[2, 4096, 32, 64]
  %4 = input "lse" : fp32[2, 32, 4096]
  %5, %6, %7 = attention_bwd(%3, %0, %1, %2, %3, %4) : bf16[2, 32, 4096, 128] ; \
bf16[2, 8, 4096, 128] ; bf16[2, 8, 4096, 64]
"""
    same(priced(AttentionModel(), text), attention(AttentionSizes.of(2, 32, 8, 4096, 4096, 128, 64, backward=True)))


@pytest.mark.parametrize(("tp", "heads", "kv_heads"), [(1, 4, 2), (2, 2, 1), (4, 1, 1)])
def test_a_tensor_parallel_rank_has_its_part_of_the_heads(
    traced: Callable[[str], Graph], tp: int, heads: int, kv_heads: int
) -> None:
    """Four heads of queries on two of keys; with more ranks than those, a rank holds a copy of one."""
    program = compile_graph(lower(traced("tiny-llama.train"), Family()).graph)
    env = {"mbs": 2.0, "seq": 512.0, "kv": 0.0, "tp": float(tp), "dp": 1.0}
    claimed = [g for g in program.compute if any(AttentionModel().claims(e) for e in g.entries)]
    assert sum(len(g.entries) for g in claimed) == 2  # forward and backward of the block
    for group in claimed:
        found = AttentionModel().bind(group, H100)(group.amounts(env, 1))
        for i, entry in enumerate(group.entries):
            backward = entry.phase is Phase.BACKWARD
            wanted = attention(AttentionSizes.of(2, heads, kv_heads, 512, 512, 16, backward=backward))
            assert found.time_s[i].item() == pytest.approx(float(wanted.time_s), rel=1e-12)


def test_one_query_over_a_cache_is_decode() -> None:
    text = ATTENTION.replace("{attrs}", "").replace("32, 4096", "32, 1").replace("[2, 4096, 32", "[2, 1, 32")
    same(priced(AttentionModel(), text), attention(AttentionSizes.of(2, 32, 8, 1, 4096, 128)))


BANK = """\
  %0 = input "rows" : bf16[4096, 1024]
  %1 = param "up" : bf16[8, 1536, 1024]
  %2 = param "down" : bf16[8, 1024, 768]
  %3, %4, %5 = expert_bank(%0, %1, %2) : bf16[4096, 1024] ; bf16[4096, 1536] ; bf16[4096, 768]
"""
BANK_BACKWARD = """\
  %0 = input "rows" : bf16[4096, 1024]
  %1 = param "up" : bf16[8, 1536, 1024]
  %2 = param "down" : bf16[8, 1024, 768]
  %3 = input "up_out" : bf16[4096, 1536]
  %4 = input "act" : bf16[4096, 768]
  %5, %6, %7 = expert_bank_bwd(%0, %0, %1, %2, %3, %4) : bf16[4096, 1024] ; bf16[8, 1536, 1024] ; bf16[8, 1024, 768]
"""


@pytest.mark.parametrize(("text", "passes"), [(BANK, 1.0), (BANK_BACKWARD, 2.0)])
def test_a_bank_has_the_rows_of_the_graph_once(text: str, passes: float) -> None:
    """Rows in the graph are those of the busiest rank already: no imbalance over them, and no tokens beside them."""
    # Of 4096 rows on 8 experts each gets some; a row too few to fill a tile of 64 is 31.5 on average.
    rows, touched = 4096.0, 8 * (1 - (7 / 8) ** 4096)
    sizes = ExpertSizes(
        number(rows + touched * 31.5), number(rows), number(touched), number(0), number(1024), number(768),
        number(1536), number(2), passes,
    )  # fmt: skip
    c = KERNELS.experts["bf16"]
    in_order = ExpertsConstants(c.overhead_s, c.tensor, c.memory, min(c.row_passes, 1.0), 0.0)
    same(priced(ExpertsModel(), text), experts_times(sizes, BF16_PEAK, CHIP, in_order))


def test_experts_in_one_op_also_pass_over_their_tokens() -> None:
    text = """\
  %0 = input "x" : bf16[2048, 1024]
  %1 = input "ids" : int64[2048, 2]
  %2 = input "w" : bf16[2048, 2]
  %3 = param "up" : bf16[8, 1536, 1024]
  %4 = param "down" : bf16[8, 1024, 768]
  %5, %6, %7, %8, %9 = experts(%0, %1, %2, %3, %4) : bf16[2048, 1024] ; bf16[4096, 1024] ; \
bf16[4096, 1536] ; bf16[4096, 768] ; bf16[4096, 1024]
"""
    touched = 8 * (1 - (7 / 8) ** 4096)
    sizes = ExpertSizes(
        number(4096 + touched * 31.5), number(4096), number(touched), number(2048), number(1024), number(768),
        number(1536), number(2),
    )  # fmt: skip
    same(priced(ExpertsModel(), text), experts_times(sizes, BF16_PEAK, CHIP, KERNELS.experts["bf16"]))


def grouped(rows: float, n: float, k: float) -> KernelTimes:
    touched = 8 * (1 - (7 / 8) ** rows)
    sizes = GroupedSizes(number(rows + touched * 31.5), number(rows), number(touched), number(n), number(k), 2, 2)
    return grouped_times(sizes, BF16_PEAK, CHIP, KERNELS.grouped["bf16"])


def test_a_grouped_product_gives_each_row_the_matrix_of_its_group() -> None:
    text = """\
  %0 = input "rows" : bf16[4096, 1024]
  %1 = param "w" : bf16[8, 1024, 768]
  %2 = grouped_matmul(%0, %1) : bf16[4096, 768]
"""
    same(priced(ExpertsModel(), text), grouped(4096, 768, 1024))


def test_a_grouped_weight_gradient_sums_over_the_rows_and_writes_the_matrices() -> None:
    """[1024, 4096 rows] x [4096 rows, 768] -> 8 matrices: the FLOPs and bytes of the product itself."""
    text = """\
  %0 = input "rows" : bf16[1024, 4096]
  %1 = input "dy" : bf16[4096, 768]
  %2 = grouped_matmul(%0, %1) {weight_grad=true} : bf16[8, 1024, 768]
"""
    found = priced(ExpertsModel(), text)
    same(found, grouped(4096, 768, 1024))
    moved = 2 * (4096 * (1024 + 768) + 8 * 1024 * 768)
    memory_s = moved / (KERNELS.grouped["bf16"].memory * CHIP.hbm_bytes_per_s)
    assert found.terms["memory"].item() == pytest.approx(memory_s, rel=1e-12)


def test_the_optimizer_goes_over_the_elements_of_all_its_weights() -> None:
    """A norm's weight first: 50,331,648 and 4096 elements, of which the first tensor has 4096."""
    text = """\
  %0 = param "norm" : bf16[4096]
  %1 = param "w" : bf16[12288, 4096]
  %2 = input "dn" : fp32[4096]
  %3 = input "dw" : fp32[12288, 4096]
  %4, %5 = optimizer_step(%0, %1, %2, %3) : bf16[4096] ; bf16[12288, 4096]
"""
    numel = 12288.0 * 4096 + 4096
    # Master weight and two moments in fp32 read and written, gradient in fp32 read, weight in bf16 written.
    sizes = RowwiseSizes(number(numel), number(1), number(numel * 30), number(numel * 14), number(numel * 2))
    found = priced(RowwiseModel(), text)
    same(found, rowwise_times(sizes, H100.chip, KERNELS.rowwise["optimizer"]))
    assert found.terms["rows"].item() == 0.0
