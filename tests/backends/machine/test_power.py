"""Power limits: the clock goes as the third root of the dynamic power, and only matrix kernels feel it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.power import clock_share, powered

CHIP = load_system("dgx-h100").chip


def limited(watts: float) -> float:
    return float(clock_share(replace(CHIP, power_limit_w=watts)))


def test_the_third_root_of_what_is_left() -> None:
    # Of 700 W 210 stand still; 500 W leave 290 of 490.
    assert limited(500.0) == pytest.approx((290 / 490) ** (1 / 3), rel=1e-12)
    assert limited(700.0) == limited(900.0) == 1.0
    assert limited(100.0) == pytest.approx(0.01, rel=1e-9)


@given(st.floats(100.0, 700.0), st.floats(0.0, 200.0))
def test_more_power_is_never_slower(watts: float, more: float) -> None:
    assert limited(watts) <= limited(watts + more) <= 1.0


def test_peaks_and_clock_follow_and_memory_does_not() -> None:
    chip = load_system("dgx-h100", ["chip.power_limit=500 W"]).chip
    slower = powered(chip)
    share = clock_share(chip)
    assert slower.matmul_flop_per_s("bf16") == pytest.approx(989e12 * share, rel=1e-12)
    assert slower.clock_hz == pytest.approx(chip.clock_hz * share, rel=1e-12)
    assert slower.hbm_bytes_per_s == chip.hbm_bytes_per_s
    assert powered(CHIP) is CHIP
