"""Row-wise kernels: what binds them, by hand, and what must always hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.kernels.rowwise import RowwiseConstants, RowwiseSizes, rowwise_times
from slipstick.backends.machine.chip import Chip
from slipstick.backends.machine.load import load_system
from slipstick.backends.pricing.models.rowwise_kinds import kind_of_op, specials_per_element
from slipstick.ir.ops import OPS, OpClass

H100 = load_system("dgx-h100").chip
ONE = RowwiseConstants(overhead_s=2e-6, memory=0.9, issue=20.0, column=0.5, pace=1.0, arithmetic=0.5)
SIZE = st.floats(1.0, 1e6)


def sizes(rows: float, cols: float, each: float = 6.0, flops: float = 0.0, specials: float = 0.0) -> RowwiseSizes:
    n = rows * cols
    return RowwiseSizes(*(np.array([x]) for x in (rows, cols, each * n, flops * n, specials * n)))


def seconds(call: RowwiseSizes, chip: Chip = H100, constants: RowwiseConstants = ONE) -> float:
    return float(rowwise_times(call, chip, constants).time_s[0])


def test_many_bytes_take_the_bandwidth() -> None:
    # 6 B x 2^24 elements at 0.9 x 3350 GB/s, and 2 us.
    assert seconds(sizes(4096, 4096)) == pytest.approx(6 * 2**24 / (0.9 * 3.35e12) + 2e-6)


def test_slow_instructions_bind_before_the_memory() -> None:
    # Vector peak 67 TFLOP/s / 256 FLOP / 1.83 GHz = 143 SMs' worth of issue, 4 B a clock each.
    rate = 4.0 * 67e12 / (256 * 1.83e9) * 1.83e9
    times = rowwise_times(sizes(4096, 4096), H100, replace(ONE, issue=4.0))
    assert float(times.time_s[0]) == pytest.approx(6 * 2**24 / rate + 2e-6)
    assert times.bound(0) == "issue"


def test_one_long_row_waits_for_its_block() -> None:
    # 28672 columns at half a clock of 1.83 GHz.
    times = rowwise_times(sizes(1, 28672), H100, ONE)
    assert float(times.time_s[0]) == pytest.approx(28672 * 0.5 / 1.83e9 + 2e-6)
    assert times.bound(0) == "rows"


def test_each_term_by_hand() -> None:
    # 4096 x 512 elements of 6 bytes, 3 FLOPs and 2 functions. 143 cores: more than the SMs that the chip has.
    found = rowwise_times(sizes(4096, 512, 6.0, 3.0, 2.0), H100, replace(ONE, pace=0.5))
    elements, cores, clock = 4096 * 512, 67e12 / (256 * 1.83e9), 1.83e9
    wanted = {
        "overhead": 2e-6, "memory": 6 * elements / (0.9 * 3.35e12), "issue": 6 * elements / (20 * cores * clock * 0.5),
        # Eight rounds of 4 x 143 blocks; a row of 512 columns each.
        "rows": 8 * 512 * 0.5 / clock, "vector": 3 * elements / (0.5 * 67e12),
        "special": 2 * elements / (0.5 * 16 * 132 * clock),
    }  # fmt: skip
    assert {name: float(term.item()) for name, term in found.terms.items()} == pytest.approx(wanted)


def test_a_call_far_smaller_than_the_cache_finds_its_operands_there() -> None:
    # Half of the last cache: none of 0.1 of that from memory, (0.65 - 0.3) / 0.7 of 0.65 of it, and all from 1 on.
    held = 0.5 * float(H100.l2_bytes)
    for part, cold in ((0.1, 0.0), (0.65, 0.5), (1.0, 1.0), (3.0, 1.0)):
        found = rowwise_times(sizes(1, part * held, 1.0), H100, replace(ONE, warm=0.5))
        assert float(found.terms["memory"].item()) == pytest.approx(cold * part * held / (0.9 * 3.35e12))


def test_functions_bind_where_each_element_has_many() -> None:
    # 40 functions an element, half of 16 a clock and SM.
    assert rowwise_times(sizes(4096, 4096, specials=40.0), H100, ONE).bound(0) == "special"
    assert rowwise_times(sizes(4096, 4096, flops=400.0), H100, ONE).bound(0) == "vector"


@given(SIZE, SIZE, st.floats(1.0, 8.0), st.floats(0.0, 100.0))
def test_time_has_its_lower_bounds(rows: float, cols: float, each: float, flops: float) -> None:
    n = rows * cols
    call = sizes(rows, cols, each, flops)
    assert seconds(call) >= max(each * n / H100.hbm_bytes_per_s, flops * n / H100.vector_flop_per_s)


@given(SIZE, SIZE, st.floats(1.0, 4.0))
def test_time_never_rises_with_the_machine_or_with_less_to_do(rows: float, cols: float, factor: float) -> None:
    here = seconds(sizes(rows, cols, specials=2.0))
    faster = replace(H100, hbm_bytes_per_s=H100.hbm_bytes_per_s * factor, vector_flop_per_s=67e12 * factor)
    assert seconds(sizes(rows, cols, specials=2.0), faster) <= here
    assert seconds(sizes(rows, cols * factor, specials=2.0)) >= here
    assert seconds(sizes(rows * factor, cols, specials=2.0)) >= here


def test_one_call_is_priced_as_among_many() -> None:
    rows, cols = np.array([1.0, 77.0, 4096.0]), np.array([100.0, 8192.0, 4096.0])
    many = RowwiseSizes(rows, cols, 4 * rows * cols, 10 * rows * cols, 2 * rows * cols)
    alone = [seconds(sizes(r, c, 4.0, 10.0, 2.0)) for r, c in zip(rows, cols, strict=True)]
    assert rowwise_times(many, H100, ONE).time_s.tolist() == alone


def test_the_kind_of_every_op_that_passes_over_rows_has_constants() -> None:
    passes = {OpClass.NORM, OpClass.ELEMENTWISE, OpClass.REDUCTION, OpClass.LOSS, OpClass.MEMORY, OpClass.OPTIMIZER}
    known = load_system("dgx-h100").kernels.rowwise
    assert {kind_of_op(name) for name, op in OPS.items() if op.kind in passes} <= set(known)


@pytest.mark.parametrize(
    ("op", "fns", "kind"),
    [
        ("elementwise", ("add",), "add"),
        ("elementwise", ("mul", "mul"), "mul"),
        ("elementwise", ("add", "mul"), "default"),
        ("elementwise", ("mul", "silu", "add"), "silu_mul"),
        ("elementwise", ("silu_bwd",), "silu_bwd"),
        ("elementwise", ("dropout", "add"), "dropout"),
        ("norm", ("layer",), "layernorm"),
        ("norm_bwd", ("rms",), "rmsnorm_bwd"),
        ("cross_entropy_bwd", (), "loss_bwd"),
        ("something_new", (), "default"),
    ],
)
def test_kinds(op: str, fns: tuple[str, ...], kind: str) -> None:
    assert kind_of_op(op, fns) == kind
    assert kind in load_system("dgx-h100").kernels.rowwise


def test_functions_of_a_chain_add_up() -> None:
    assert specials_per_element("elementwise", ("exp", "div", "add")) == 2
    assert specials_per_element("copy") == 0
