"""How fast a circuit runs on the power that it is given: voltage and frequency.

Dynamic power goes with V^2 f, and the frequency of a gate with (V - Vt)^2 / V, so power goes with V (V - Vt)^2. Solving
that cubic for the voltage gives the frequency (DeepFlow, Ardalani et al. 2022, as published in its source).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from ...ir.records import dataclass
from ...ir.sizes.expr import Num

# What a circuit does that would need less than its least voltage. `budget` slows the clock until the power is met.
# `paper` slows it by (V / V')^2 alone, as DeepFlow does: power then stays above the budget.
Clamp: TypeAlias = Literal["budget", "paper"]


@dataclass(frozen=True, slots=True)
class VoltageLaw:
    """Voltages of a circuit.

    Attributes:
        nominal_v: V0, at which its nominal power and frequency hold.
        threshold_v: Vt, below which nothing switches.
        margin_v: Vm, by how much the voltage stays above the threshold.
        maximum_v: above which it is not driven, however much power there is.
    """

    nominal_v: float
    threshold_v: float
    margin_v: float
    maximum_v: float

    def power(self, voltage_v: Num) -> Num:
        """Dynamic power over the nominal, at the frequency that a voltage allows: V (V - Vt)^2 / (V0 (V0 - Vt)^2)."""
        over, nominal = voltage_v - self.threshold_v, self.nominal_v - self.threshold_v
        return voltage_v * over**2 / (self.nominal_v * nominal**2)

    def speed(self, voltage_v: Num) -> Num:
        """Frequency over the nominal that a voltage allows: ((V - Vt)^2 / V) / ((V0 - Vt)^2 / V0)."""
        over, nominal = voltage_v - self.threshold_v, self.nominal_v - self.threshold_v
        return (over**2 / voltage_v) / (nominal**2 / self.nominal_v)


@dataclass(frozen=True, slots=True)
class Operation:
    """Where a circuit runs: its voltage, and its frequency and dynamic power over the nominal ones."""

    voltage_v: Num
    speed: Num
    power: Num


def operate(law: VoltageLaw, power: Num, clamp: Clamp = "budget") -> Operation:
    """Return where a circuit runs on so much power over its nominal power.

    The voltage stays between the threshold with its margin and the maximum.

    >>> law = VoltageLaw(nominal_v=0.8, threshold_v=0.2, margin_v=0.35, maximum_v=1.1)
    >>> at = operate(law, 1.0)
    >>> round(at.voltage_v, 6), round(at.speed, 6), round(at.power, 6)
    (0.8, 1.0, 1.0)
    """
    solved_v = solve_voltage(law, power)
    least_v = law.threshold_v + law.margin_v
    voltage_v = np.clip(solved_v, least_v, law.maximum_v)
    slower = power / law.power(least_v) if clamp == "budget" else (solved_v / least_v) ** 2
    is_slow, is_fast = np.less(solved_v, least_v), np.greater(solved_v, law.maximum_v)
    factor = np.where(is_slow, slower, 1.0)
    used = np.where(is_slow, slower * law.power(least_v), np.where(is_fast, law.power(law.maximum_v), power))
    return Operation(_plain(voltage_v), _plain(factor * law.speed(voltage_v)), _plain(used))


def solve_voltage(law: VoltageLaw, power: Num) -> Num:
    """Solve V (V - Vt)^2 = p V0 (V0 - Vt)^2 for its one root above the threshold.

    >>> law = VoltageLaw(nominal_v=0.8, threshold_v=0.2, margin_v=0.35, maximum_v=1.1)
    >>> round(solve_voltage(law, 0.64 / 0.288), 9)  # 1 x 0.8^2 over 0.8 x 0.6^2
    1.0
    """
    target = np.asarray(power) * law.nominal_v * (law.nominal_v - law.threshold_v) ** 2
    # At the cube root above the threshold the left side is too large; from there Newton falls to the root.
    voltage_v = law.threshold_v + np.cbrt(target)
    with np.errstate(divide="ignore", invalid="ignore"):
        while True:
            over = voltage_v - law.threshold_v
            square = over * over
            step = (voltage_v * square - target) / (square + 2 * voltage_v * over)
            lower = np.fmin(voltage_v - step, voltage_v)
            if not (lower < voltage_v).any():
                return _plain(voltage_v)
            voltage_v = lower


def _plain(number: Num) -> Num:
    return number if isinstance(number, np.ndarray) and number.ndim else float(number)
