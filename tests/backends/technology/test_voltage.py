"""Voltage and frequency from power: vectors by hand, and the laws."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.technology.voltage import VoltageLaw, operate, solve_voltage

# DeepFlow's core: V0 0.8, Vt 0.2, Vm 0.35. V0 (V0 - Vt)^2 = 0.8 x 0.36 = 0.288.
LAW = VoltageLaw(nominal_v=0.8, threshold_v=0.2, margin_v=0.35, maximum_v=1.1)
RATIOS = st.floats(1e-6, 1e6)


@pytest.mark.parametrize(
    ("power", "voltage", "speed"),
    [
        (1.0, 0.8, 1.0),
        # V = 1.0: 1 x 0.64 / 0.288; (0.64 / 1) / (0.36 / 0.8).
        (0.64 / 0.288, 1.0, 0.64 / 0.45),
        # V = 0.6: 0.6 x 0.16 / 0.288; (0.16 / 0.6) / 0.45.
        (0.096 / 0.288, 0.6, 0.16 / 0.6 / 0.45),
    ],
)
def test_between_least_and_greatest_voltage(power: float, voltage: float, speed: float) -> None:
    at = operate(LAW, power)
    assert (at.voltage_v, at.speed, at.power) == pytest.approx((voltage, speed, power), rel=1e-12)


def test_above_the_greatest_voltage_power_is_left_over() -> None:
    # V = 1.1: 1.1 x 0.81 / 0.288 = 3.09375 times the power, (0.81 / 1.1) / 0.45 times the clock.
    at = operate(LAW, 10.0)
    assert (at.voltage_v, at.speed, at.power) == pytest.approx((1.1, 0.81 / 1.1 / 0.45, 3.09375), rel=1e-12)


def test_below_the_least_voltage_the_clock_keeps_to_the_power() -> None:
    # V = 0.5 takes 0.5 x 0.09 / 0.288 = 0.15625 of the power. At 0.55 V, V'^2 f' / (V0^2 f0) must be that:
    # f' = 0.15625 x 0.64 / 0.3025 of f0.
    at = operate(LAW, 0.15625)
    assert (at.voltage_v, at.speed, at.power) == pytest.approx((0.55, 0.1 / 0.3025, 0.15625), rel=1e-12)


def test_below_the_least_voltage_the_paper_goes_over_the_power() -> None:
    # f' = (0.5 / 0.55)^2 x (0.1225 / 0.55) / 0.45 of f0, and so 0.3025 / 0.64 of that of the power.
    speed = (0.5 / 0.55) ** 2 * 0.1225 / 0.55 / 0.45
    at = operate(LAW, 0.15625, "paper")
    assert (at.speed, at.power) == pytest.approx((speed, speed * 0.3025 / 0.64), rel=1e-12)
    assert at.power > 0.15625


@given(RATIOS)
def test_the_root_solves_the_cubic(power: float) -> None:
    voltage = solve_voltage(LAW, power)
    assert voltage > LAW.threshold_v
    assert LAW.power(voltage) == pytest.approx(power, rel=1e-9)


@given(RATIOS, st.floats(1.0, 100.0))
def test_more_power_is_never_slower_and_never_more_than_given(power: float, factor: float) -> None:
    before, after = operate(LAW, power), operate(LAW, power * factor)
    assert before.speed <= after.speed * (1 + 1e-12)
    assert before.power <= power * (1 + 1e-12)
    assert LAW.threshold_v + LAW.margin_v <= before.voltage_v <= LAW.maximum_v


@given(RATIOS, st.floats(1.0, 100.0))
def test_power_spread_over_more_circuits_does_more(power: float, factor: float) -> None:
    assert operate(LAW, power).speed <= factor * operate(LAW, power / factor).speed * (1 + 1e-12)
