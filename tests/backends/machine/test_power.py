"""Power and clocks: what a limit leaves, that more is never slower, and what one H100 was measured to do."""

import csv
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.power import clock_share, powered
from slipstick.backends.machine.power_constants import PowerConstants

HOPPER = load_system("dgx-h100")
ANY = PowerConstants(static_w=0.0, static_share=0.3, energy_j_per_flop=0.0, narrow=1.0, rise=1.0)
MEASURED = Path(__file__).parents[2] / "data" / "h100_power.csv"


def on_hopper(watts: float, steady: bool = True) -> float:
    limited = replace(HOPPER.chip, power_limit_w=watts)
    return float(clock_share(limited, HOPPER.kernels.power["chip"], steady))


def test_the_third_root_of_what_is_left_where_nobody_measured_the_energy() -> None:
    # Of 1000 W 300 stand still; 650 W leave half of the rest.
    assert ANY.clock(650.0, 1000.0, 1e15) == pytest.approx(0.5 ** (1 / 3), rel=1e-12)
    assert ANY.clock(1000.0, 1000.0, 1e15) == 1.0
    assert ANY.clock(100.0, 1000.0, 1e15) == pytest.approx(0.01, rel=1e-9)


def test_the_clock_goes_as_the_power_where_the_voltage_stays() -> None:
    flat = PowerConstants(static_w=200.0, static_share=0.0, energy_j_per_flop=1e-12, narrow=1.0, rise=0.0)
    # 1e15 FLOP/s at 1 pJ each draw 1000 W; 700 W leave 500 for them.
    assert flat.clock(700.0, 700.0, 1e15) == pytest.approx(0.5, rel=1e-12)
    assert flat.clock(700.0, 700.0, 1e15, busy=0.5) == 1.0


@given(st.floats(0.0, 1.0), st.floats(0.01, 0.999))
def test_the_clock_draws_what_it_may(rise: float, left: float) -> None:
    c = PowerConstants(0.0, 0.0, 1e-12, 1.0, rise).clock(1000.0 * left, 1000.0, 1e15)
    assert c == 0.01 or 1000.0 * c * (1.0 - rise + rise * c) ** 2 == pytest.approx(1000.0 * left, rel=1e-9)


@given(st.floats(200.0, 700.0), st.floats(0.0, 200.0), st.booleans())
def test_more_power_is_never_slower(watts: float, more: float, steady: bool) -> None:
    assert on_hopper(watts, steady) <= on_hopper(watts + more, steady) <= 1.0


@given(st.floats(1e14, 1e16), st.floats(1.0, 4.0), st.floats(0.0, 1.0))
def test_a_higher_peak_is_never_slower_at_the_same_power(peak: float, more: float, rise: float) -> None:
    constants = PowerConstants(100.0, 0.0, 1e-12, 1.0, rise)
    slower, faster = (constants.clock(700.0, 700.0, p) * p for p in (peak, peak * more))
    assert faster >= slower * (1.0 - 1e-12)


def test_a_machine_of_a_column_is_the_machine_alone() -> None:
    limits = np.array([250.0, 500.0, 700.0])
    column = clock_share(replace(HOPPER.chip, power_limit_w=limits), HOPPER.kernels.power["chip"])
    assert list(np.asarray(column)) == [on_hopper(float(watts)) for watts in limits]


def test_peaks_follow_and_clock_and_memory_do_not() -> None:
    system = load_system("dgx-h100", ["chip.power_limit=500 W"])
    share = on_hopper(500.0)
    slower = powered(system, steady=True)
    assert slower.matmul_flop_per_s("bf16") == pytest.approx(989e12 * share, rel=1e-12)
    assert slower.matmul_flop_per_s("fp8") == pytest.approx(1979e12 * share, rel=1e-3)
    assert slower.clock_hz == system.chip.clock_hz
    assert slower.hbm_bytes_per_s == system.chip.hbm_bytes_per_s
    served = powered(system, steady=False)
    assert share < float(served.matmul_flop_per_s("bf16")) / 989e12 < 1.0
    assert powered(HOPPER, steady=False) is HOPPER.chip


def test_long_products_of_random_numbers_slow_down_as_one_h100_was_measured() -> None:
    """What products take in steady work over what they take in the first tenths of a second, which tables hold."""
    chip = HOPPER.chip
    alone = HOPPER.kernels.power["chip"].clock(chip.power_w, chip.power_w, 989e12)
    with MEASURED.open() as file:
        rows = list(csv.DictReader(file))
    products = [r for r in rows if r["kernel"].startswith("gemm") and r["kernel"].endswith("random")]
    long = [float(r["first_us"]) / float(r["time_us"]) for r in products if float(r["time_us"]) > 300.0]
    assert len(long) > 8
    assert median(long) == pytest.approx(float(alone), rel=0.03)
    # The static part: what the chip draws with its memory busy and nothing to multiply is no less.
    copied = [float(r["power_w"]) for r in rows if r["kernel"].startswith("copy")]
    assert HOPPER.kernels.power["chip"].static_w < min(copied)


def test_blackwell_clocks_higher_in_narrow_types_and_racks_keep_less_for_their_clocks() -> None:
    # 670 of 1000 W for 0.9 of the time at 0.533 pJ x 2250 TFLOP/s, of which narrow types draw 0.795.
    b200, gb200 = (load_system(name) for name in ("dgx-b200", "gb200-nvl72"))
    of = {
        (s.chip.name, d): clock_share(s.chip, s.kernels.power["chip"], dtype=d)
        for s in (b200, gb200)
        for d in ("bf16", "fp8", "fp4")
    }
    assert of["B200-SXM6-180GB", "bf16"] == pytest.approx(670 / (0.9 * 0.533e-12 * 2250e12), rel=1e-9)
    assert of["B200-SXM6-180GB", "fp8"] == of["B200-SXM6-180GB", "fp4"]
    assert of["B200-SXM6-180GB", "bf16"] / of["B200-SXM6-180GB", "fp8"] == pytest.approx(0.795, rel=1e-9)
    assert of["GB200-186GB", "fp8"] == pytest.approx(770 / (0.9 * 0.795 * 0.533e-12 * 2500e12), rel=1e-9)
    assert clock_share(HOPPER.chip, HOPPER.kernels.power["chip"], dtype="fp8") == on_hopper(700.0)
