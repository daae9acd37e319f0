"""What a search is for: metrics that should be small or large, and limits that a plan must keep."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..driver.metrics import METRICS
from ..ir.errors import UnknownNameError, UsageError
from ..ir.records import dataclass
from ..ir.units import parse_quantity, parse_typed

Array = NDArray[np.float64]
# Short words that people use for a metric.
ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "step_time": "step_time_s",
        "ttft": "ttft_s",
        "tpot": "tpot_s",
        "mem": "peak_mem_bytes",
        "memory": "peak_mem_bytes",
    }
)
# The memory of a device may be given as a share of what it has.
MEMORY = "peak_mem_bytes"
_LIMIT = re.compile(r"\s*([a-z_0-9]+)\s*(<=|>=|<|>)\s*(.+?)\s*")
_ENDINGS = {
    "s": "s",
    "bytes": "B",
    "usd": "USD",
    "w": "W",
    "j": "J",
    "flop": "FLOP",
    "flops": "FLOP",
    "fraction": "1",
    "share": "1",
}
_UNITS = (("_bytes", "B"), ("_s", "s"), ("_w", "W"), ("_usd", "USD"))


@dataclass(frozen=True, slots=True)
class Goal:
    """A number that should be small; where the sign is -1, one that should be large.

    >>> Goal("mfu", -1.0).label, Goal("mfu", -1.0).better, Goal("best_case_s").unit
    ('MFU', 'more', 's')
    >>> Goal("hbm_bytes_per_usd").unit, Goal("usd_per_gpu").unit
    ('B/USD', 'USD')
    """

    name: str
    sign: float = 1.0

    @classmethod
    def of(cls, text: str, known: Sequence[str]) -> Goal:
        """Read `step_time_s`, or `+mfu`: a sign says whether more (+) or less (-) is better, else the metric does.

        UnknownNameError for a metric that a search does not know.

        >>> Goal.of("mfu", ["mfu"]), Goal.of("-mfu", ["mfu"])
        (Goal(name='mfu', sign=-1.0), Goal(name='mfu', sign=1.0))
        """
        name = metric_of(text.strip().lstrip("+-").strip(), known, "objective")
        given = {"+": -1.0, "-": 1.0}.get(text.strip()[:1])
        return cls(name, _own_sign(name) if given is None else given)

    @property
    def label(self) -> str:
        """What people call it."""
        return METRICS[self.name].label if self.name in METRICS else self.name.replace("_", " ")

    @property
    def unit(self) -> str:
        """Its unit: of a number that is no metric, as its name ends."""
        if self.name in METRICS:
            return METRICS[self.name].unit
        amount, _, divisor = self.name.partition("_per_")
        unit, per = (_ENDINGS.get(name.rpartition("_")[2], "") for name in (amount, divisor))
        return f"{unit}/{per}" if unit and per else unit

    @property
    def better(self) -> Literal["less", "more"]:
        """Which way is better."""
        return "more" if self.sign < 0 else "less"

    def aim(self, column: Array) -> Array:
        """Return a column so that less is better; what is no number is worst."""
        return np.where(np.isnan(column), np.inf, column * self.sign)

    def __str__(self) -> str:
        """Print as typed, with a sign where it is not the metric's own."""
        return self.name if self.sign == _own_sign(self.name) else f"{'+' if self.sign < 0 else '-'}{self.name}"


@dataclass(frozen=True, slots=True)
class MetricLimit:
    """A bound on a metric.

    Attributes:
        name: the metric.
        relation: `<=`, `>=`, `<` or `>`.
        value: the bound, in SI units.
        is_share: whether it is a share of a device's memory.
    """

    name: str
    relation: str
    value: float
    is_share: bool = False

    @classmethod
    def of(cls, text: str, known: Sequence[str]) -> MetricLimit:
        """Read `mfu>=0.4`, `step_time_s<=20s`, `peak_mem_bytes<=0.95` (a share of the device) or `<=70GiB`.

        Raises:
            UnknownNameError: a metric that a search does not know.
            UsageError: no relation, or a number or a unit that is none.

        >>> MetricLimit.of("step_time<=1min", ["step_time_s"])
        MetricLimit(name='step_time_s', relation='<=', value=60.0, is_share=False)
        """
        match = _LIMIT.fullmatch(text)
        if match is None:
            raise UsageError(f"--constraint '{text}': a metric, one of <= >= < >, and a number, as in 'mfu>=0.4'")
        name = metric_of(match[1], known, "constraint")
        bare = re.fullmatch(r"[0-9.eE+-]+|[0-9.]+\s*%", match[3]) is not None
        share = name == MEMORY and bare and parse_quantity(match[3], "1").value_si <= 1.0
        return cls(name, match[2], parse_typed(match[3], "1" if share else _unit(name), f"--constraint {text}"), share)

    def __str__(self) -> str:
        """Print as typed, in SI units."""
        return f"{self.name}{self.relation}{self.value:g}{' of the device' if self.is_share else ''}"

    def holds(self, values: Array, device_bytes: float) -> NDArray[np.bool_]:
        """Return which values keep it."""
        bound = self.value * device_bytes if self.is_share else self.value
        compare = {"<=": np.less_equal, ">=": np.greater_equal, "<": np.less, ">": np.greater}
        return np.asarray(compare[self.relation](values, bound))


def goals_of(texts: Sequence[str], known: Sequence[str]) -> tuple[Goal, ...]:
    """Read objectives, each once; several may stand in one text with commas between them.

    >>> [str(goal) for goal in goals_of(["mfu,step_time_s"], ["mfu", "step_time_s"])]
    ['mfu', 'step_time_s']
    """
    words = [word.strip() for text in texts for word in text.split(",") if word.strip()]
    goals = tuple(Goal.of(word, known) for word in words)
    twice = {goal.name for goal in goals if sum(other.name == goal.name for other in goals) > 1}
    if twice:
        raise UsageError(f"--objective names {', '.join(sorted(twice))} twice")
    if not goals:
        raise UsageError("--objective needs a metric, as in step_time_s,usd_per_mtok")
    return goals


def metric_of(word: str, known: Sequence[str], what: str) -> str:
    """Return the metric that a word stands for; UnknownNameError with the nearest for one that there is not."""
    name = ALIASES.get(word, word)
    if name not in known:
        raise UnknownNameError.of(f"metric of {'an' if what[0] in 'aeiou' else 'a'} {what}", word, known)
    return name


def _own_sign(name: str) -> float:
    return -1.0 if name in METRICS and METRICS[name].better == "more" else 1.0


def _unit(name: str) -> str:
    if "_per_" in name:
        return "1"
    return next((unit for ending, unit in _UNITS if name.endswith(ending)), "1")
