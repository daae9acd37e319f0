"""Designs that an optimiser chooses from a space, some at a time: each batch is priced as a table for each form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...backends.machine.system import System
from ...backends.technology.design import Budget, Design
from ...ir.errors import UnknownNameError
from ...ir.records import dataclass
from ...ir.units import parse_quantity
from ..goals import Goal
from ..trials.optimizer import Axis, Range, Trial, TrialOptimizer, Values, run_trials
from .designs import Designs, design_at, designs_of
from .machines import machine_of, machine_text
from .reasons import reason_text
from .setting import DesignJob, DesignSetting
from .space import DesignForm, DesignSpace

# Flags of a space of designs, and what the space calls them.
FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "node": "nodes",
        "die-area": "die_mm2",
        "power": "power_w",
        "power-density": "power_w",
        "chiplets": "num_dies",
        "d2d": "d2d",
        "d2d-bandwidth": "d2d_bytes_per_s",
        "join": "joins",
        "unit": "units",
        "memory": "memories",
        "stacks": "num_stacks",
        "link": "links",
        "joint": "joints",
        "cooling": "coolings",
    }
)
TRIAL = "trial"
# A design: its form and the numbers of its budget.
Point: TypeAlias = tuple[DesignForm | float, ...]
TOO_SMALL = "too little memory for the plan"
_NO_NUMBER = "no number for a goal"


@dataclass(frozen=True, slots=True)
class Sampled:
    """A space of designs to choose from.

    Attributes:
        space: its lists, and the first number of each range.
        axes: what is chosen, by flag; the values of a choice stand in the order of the space.
    """

    space: DesignSpace
    axes: tuple[Axis, ...]

    def point(self, trial: Trial) -> DesignSpace:
        """Return the space of one design that a trial is."""
        chosen = {FIELDS[axis.name]: (self._value(axis, trial),) for axis in self.axes}
        return replace(self.space, **chosen)  # type: ignore[arg-type]

    def _value(self, axis: Axis, trial: Trial) -> object:
        value, name = trial.values[axis.name], FIELDS[axis.name]
        if not isinstance(axis, Range):
            return getattr(self.space, name)[axis.values.index(str(value))]
        return value if axis.is_whole else parse_quantity(axis.text(value)).value_si


@dataclass(slots=True)
class SampledDesigns:
    """Designs that were tried.

    Attributes:
        found: them, with the number of the trial as a column, form by form of each batch.
        trials: in order.
        infeasible: trials that can run nothing, by the reason.
        seen: every design once; one that is chosen again is in `found` as it was first.
    """

    found: list[Designs] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    infeasible: Counter[str] = field(default_factory=Counter)
    seen: set[Point] = field(default_factory=set)

    def new(self, points: Sequence[Point], counted: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which of the designs that count were not there before, and remember them."""
        new = np.zeros(len(points), dtype=bool)
        for at in np.flatnonzero(counted).tolist():
            new[at] = points[at] not in self.seen
            self.seen.add(points[at])
        return new


def sample(
    sampled: Sampled,
    setting: DesignSetting,
    job: DesignJob | None,
    goals: Sequence[Goal],
    optimizer: TrialOptimizer,
    num_trials: int,
    at_once: int = 32,
    watch: Callable[[int], None] = lambda num: None,
) -> SampledDesigns:
    """Have an optimiser choose designs: a batch is asked for, priced as tables, and told in its order.

    Args:
        sampled: what may be chosen.
        setting: what stands around each design.
        job: what each runs; None to leave time out.
        goals: columns that should be good.
        optimizer: chooses; a design that cannot be built, or not hold the plan, is told as nothing feasible.
        num_trials: designs.
        at_once: designs of a batch.
        watch: is told how many more are done.

    Raises:
        UnknownNameError: a goal that is no column of designs.
        UsageError: the optimiser was told of other worth before.
    """
    made = SampledDesigns()
    machines: dict[DesignForm, System] = {}

    def price(asked: Sequence[Trial], num: int) -> list[Values]:
        # All of a batch, so that its tables are the same whether the study goes on later or not.
        worth: dict[int, Values] = {}
        for designs, points in _tables(sampled, asked, setting, job, machines):
            _check_goals(designs, goals)
            numbers = designs.columns[TRIAL].astype(int)
            why = _reasons(designs, goals)
            worth |= {k: _worth(designs, goals, at) if not why[at] else None for at, k in enumerate(numbers.tolist())}
            counted = numbers < asked[0].number + num
            made.infeasible.update(word for word, counts in zip(why, counted, strict=True) if word and counts)
            made.found.append(_cut(designs, made.new(points, counted)))
        made.trials += asked[:num]
        watch(num)
        return [worth[trial.number] for trial in asked[:num]]

    run_trials(optimizer, num_trials, at_once, price)
    return made


def system_text(sampled: Sampled, trial: Trial, setting: DesignSetting) -> str:
    """Return the system of a trial's design as YAML, for `cost` and `estimate`."""
    return machine_text(*_design(sampled, trial, setting), setting)


def system_of(sampled: Sampled, trial: Trial, setting: DesignSetting) -> System:
    """Return the system of a trial's design."""
    return machine_of(*_design(sampled, trial, setting), setting)


def _design(sampled: Sampled, trial: Trial, setting: DesignSetting) -> tuple[DesignForm, Design]:
    space = sampled.point(trial)
    (form,) = space.forms()
    return form, design_at(space, setting, form, 0)


def _tables(
    sampled: Sampled,
    trials: Sequence[Trial],
    setting: DesignSetting,
    job: DesignJob | None,
    machines: dict[DesignForm, System],
) -> Iterator[tuple[Designs, list[Point]]]:
    """The designs of a batch, those of one form as a table, and what tells each from others."""
    groups: dict[DesignForm, list[tuple[Trial, Budget]]] = {}
    for trial in trials:
        space = sampled.point(trial)
        (form,) = space.forms()
        groups.setdefault(form, []).append((trial, space.budget(form)))
    for form, members in groups.items():
        budgets = [budget for _, budget in members]
        # Budgets of one form as a table.
        stacks = [one.num_stacks for one in budgets]
        stacked = replace(
            budgets[0],
            area_mm2=np.concatenate([np.ravel(one.area_mm2) for one in budgets]),
            power_w=np.concatenate([np.ravel(one.power_w) for one in budgets]),
            d2d_bytes_per_s=np.concatenate([np.ravel(one.d2d_bytes_per_s) for one in budgets]),
            num_stacks=None
            if stacks[0] is None
            else np.concatenate([np.ravel(one) for one in stacks if one is not None]),
        )
        designs = designs_of(form, stacked, setting, job, machines)
        numbers = np.array([trial.number for trial, _ in members], dtype=np.float64)
        yield replace(designs, columns={TRIAL: numbers, **designs.columns}), [_point(form, one) for one in budgets]


def _point(form: DesignForm, budget: Budget) -> Point:
    numbers = (budget.area_mm2, budget.power_w, budget.d2d_bytes_per_s, budget.num_stacks)
    return (form, *(float(np.ravel(number)[0]) for number in numbers if number is not None))


def _cut(designs: Designs, rows: NDArray[np.bool_]) -> Designs:
    columns = {name: column[rows] for name, column in designs.columns.items()}
    return replace(designs, columns=columns, reason=designs.reason[rows])


def _check_goals(designs: Designs, goals: Sequence[Goal]) -> None:
    """Refuse a goal that is no column, as soon as a design has all of them."""
    if not designs.built.any():
        return
    for goal in goals:
        if goal.name not in designs.columns:
            raise UnknownNameError.of("objective", goal.name, designs.columns)


def _reasons(designs: Designs, goals: Sequence[Goal]) -> list[str]:
    """Why each of them can run nothing; empty where it can."""
    fits = designs.columns.get("fits", np.ones(len(designs.reason)))
    none = np.full(len(designs.reason), np.nan)
    values = np.stack([designs.columns.get(goal.name, none) for goal in goals])
    known = np.asarray(np.isfinite(values).all(axis=0))
    return [
        reason_text(reason) if reason else TOO_SMALL if not fit else "" if number else _NO_NUMBER
        for reason, fit, number in zip(designs.reason.tolist(), fits.tolist(), known.tolist(), strict=True)
    ]


def _worth(designs: Designs, goals: Sequence[Goal], at: int) -> Values:
    return tuple(float(designs.columns[goal.name][at]) for goal in goals)
