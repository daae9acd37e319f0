"""Designs that are best within their budgets: a pattern search over shares, jointly with the search of plans.

A point has six coordinates from 0 to 1: area and power of the package, from a part of the budget to all of it;
stacks of memory and the part of their rated speed; lanes; and the part of the silicon left over that units take. Caches
keep the share of their unit, since no kernel is priced by their size. What no other part takes of the power is that of
the units, and decides their voltage and clock. Of the points around the best so far, all are priced as one table; where
none is better, the step is halved. Nothing is drawn by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import combinations, product
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...backends.machine.system import System
from ...backends.technology import columns
from ...backends.technology.design import Budget, Design, design
from ...backends.technology.shares import Knobs, most_lanes, most_stacks, shared_out
from ...ir.errors import InfeasibleError, SlipstickError, UnknownNameError, UsageError
from ...ir.records import dataclass
from ..goals import Goal
from ..pareto import pareto
from .designs import Designs, designs_of
from .machines import machine_text
from .setting import DesignJob, DesignSetting
from .space import DesignForm

Array = NDArray[np.float64]
# Finds the best plan on a machine, whose file it is given; InfeasibleError where none fits.
FindPlan: TypeAlias = Callable[[str], DesignJob]
AXES = ("area_mm2", "power_w", "num_stacks", "memory_speed", "num_lanes", "core_share")
# Columns of the front: time, power, area and money of a design.
FRONT = ("step_time_s", "package_w", "silicon_mm2", "usd_per_step")
_FIRST_STEP, _FEWER_BELOW, _LAST_STEP = 1 / 8, 1 / 32, 1 / 256
# The least power, area, speed of memory and part of the silicon left over, over the most.
_LEAST_POWER, _LEAST = 1 / 16, 1 / 4
_MOST_PLANS, _MOST_STARTS = 4, 4
# A new round of steps that gains less is the last.
_LEAST_GAIN = 1e-4
# Designs of the front take no longer than so many times the fastest of a node.
_SLOWEST = 3.0
_STARTS = (
    (1.0, 1.0, 1.0, 1.0, 0.5, 1.0),
    (1.0, 1.0, 0.5, 1.0, 0.75, 1.0),
    (0.5, 0.75, 0.5, 1.0, 0.5, 1.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """The best design of a node within its budgets.

    Attributes:
        form: its words.
        design: its chip; `design.budget` has its shares.
        job: what it runs, under its best plan.
        columns: its numbers, as of a sweep.
        usual: those of the shares of the unit under the best plan for these; empty where these have no room.
        usual_design: its chip.
        usual_job: what it runs.
        front: designs of the node that no other beats in time, power, area and money, the fastest first.
        num_designs: that were priced.
    """

    form: DesignForm
    design: Design
    job: DesignJob
    columns: Mapping[str, float]
    usual: Mapping[str, float]
    usual_design: Design | None
    usual_job: DesignJob | None
    front: Sequence[Mapping[str, float | str]]
    num_designs: int


@dataclass(slots=True)
class _Priced:
    """Designs that were priced, by form and plan."""

    form: DesignForm
    job: DesignJob
    points: Array
    budget: Budget
    found: Designs
    worth: Array

    def is_point(self, row: int) -> bool:
        """Whether a row is a point of the space, and not the shares of a unit."""
        return bool(np.isfinite(self.points[row]).all())

    def best(self) -> int:
        """Return the row that is worth most: of equals, the one of less power, then of less area."""
        ties = (self.found.columns["silicon_mm2"], self.found.columns["package_w"], self.worth)
        return int(np.lexsort(ties)[0])


@dataclass(slots=True)
class _NodeSearch:
    """The search on one node, with all that it has priced."""

    limits: Mapping[DesignForm, Budget]
    setting: DesignSetting
    goal: Goal
    machines: dict[DesignForm, System] = field(default_factory=dict)
    priced: list[_Priced] = field(default_factory=list)

    def price(self, form: DesignForm, job: DesignJob, points: Array, budget: Budget | None = None) -> _Priced:
        """Price points of a form under a plan as one table, or one budget as it is."""
        rows = self.rows(form, points) if budget is None else columns.spread(budget, len(points))
        found = designs_of(form, rows, self.setting, job, self.machines)
        legal = (found.reason == 0) & np.greater(found.columns.get("fits", np.zeros(len(points))), 0)
        if legal.any() and self.goal.name not in found.columns:
            raise UnknownNameError.of("objective", self.goal.name, found.columns)
        column = found.columns.get(self.goal.name, np.full(len(points), np.nan))
        worth = np.where(legal, self.goal.aim(column), np.inf)
        self.priced.append(_Priced(form, job, points, rows, found, worth))
        return self.priced[-1]

    def rows(self, form: DesignForm, points: Array) -> Budget:
        """Return the budgets that points of a form are."""
        technology, limit = self.setting.technology, self.limits[form]
        area, power, stacks, speed, lanes, cores = points.T
        most = most_stacks(limit, technology)
        return shared_out(
            limit,
            Knobs(
                area_mm2=limit.area_mm2 * _LEAST ** (1 - area),
                power_w=limit.power_w * _LEAST_POWER ** (1 - power),
                num_stacks=np.round(1 + stacks * (most - 1)),
                memory_speed=_LEAST ** (1 - speed),
                num_lanes=np.round(most_lanes(limit, technology) ** lanes),
                core_share=_LEAST ** (1 - cores),
            ),
            technology,
        )

    def climb(self, form: DesignForm, job: DesignJob, starts: Array) -> None:
        """Follow the best of starts and a coarse grid, then the best of these anew until that finds nothing better."""
        coarse = self.price(form, job, np.concatenate([starts, _COARSE]))
        order = np.argsort(coarse.worth, kind="stable")
        # The best of each number of stacks, which no small step leaves, and the best of all.
        stacks = np.unique(coarse.points[order, 2], return_index=True)[1]
        first = order[np.unique(np.concatenate([stacks, np.arange(_MOST_STARTS)]))]
        here, worth, before = coarse.points[first], coarse.worth[first], np.inf
        while worth.min() < before * (1 - _LEAST_GAIN):
            before = worth.min()
            here, worth = self._descend(form, job, here, worth)

    def _descend(self, form: DesignForm, job: DesignJob, here: Array, worth: Array) -> tuple[Array, Array]:
        """Move each point to the best around it, in ever smaller steps and of ever fewer points; return the last."""
        step = _FIRST_STEP
        while step >= _LAST_STEP:
            around = np.clip(here[:, None, :] + step * _MOVES[None], 0.0, 1.0)
            each = self.price(form, job, around.reshape(-1, len(AXES))).worth.reshape(len(here), -1)
            rows, least = np.arange(len(here)), each.argmin(axis=1)
            better = each[rows, least] < worth
            if better.any():
                here = np.where(better[:, None], around[rows, least], here)
                worth = np.where(better, each[rows, least], worth)
            else:
                step /= 2
                num = len(here) if step >= _FEWER_BELOW else -(-len(here) // 2)
                kept = np.argsort(worth, kind="stable")[:num]
                here, worth = here[kept], worth[kept]
        return here, worth

    def best(self) -> tuple[_Priced, int]:
        """Return the best of all that was priced."""
        first = min(self.priced, key=lambda one: (one.worth.min(), one.found.columns["package_w"][one.best()]))
        return first, first.best()

    def text(self, form: DesignForm, budget: Budget) -> str:
        """Return the machine of one budget as YAML; UsageError where it has no room for a part."""
        return machine_text(form, design(budget, self.setting.technology), self.setting)

    def widen(self, best: _Priced, row: int) -> None:
        """Price a design at other areas and powers, for the front."""
        point = best.points[row] if best.is_point(row) else np.array(_STARTS[0])
        grid = np.array(list(product(np.linspace(0, 1, 9), np.linspace(0.4, 1, 9))))
        self.price(best.form, best.job, np.concatenate([grid, np.tile(point[2:], (len(grid), 1))], axis=1))

    def _fitting(self) -> list[_Priced]:
        return [one for one in self.priced if np.isfinite(one.worth).any()]

    def front(self) -> list[Mapping[str, float | str]]:
        """Return the designs that no other beats in time, power, area and money, but for the slowest."""
        least_s = min(np.nanmin(one.found.columns[FRONT[0]][np.isfinite(one.worth)]) for one in self._fitting())
        parts = [
            (one, np.flatnonzero(np.isfinite(one.worth) & (one.found.columns[FRONT[0]] <= _SLOWEST * least_s)))
            for one in self._fitting()
        ]
        parts = [(one, rows) for one, rows in parts if rows.size]
        aims = [np.concatenate([one.found.columns[name][rows] for one, rows in parts]) for name in FRONT]
        whole = [(one, int(row)) for one, rows in parts for row in rows]
        distinct = np.unique(np.stack(aims, axis=1), axis=0, return_index=True)[1]
        kept = distinct[pareto([aim[distinct] for aim in aims])]
        return [_record(whole[k][0], whole[k][1], self.goal) for k in sorted(kept.tolist(), key=lambda k: aims[0][k])]


def optimise(
    limits: Mapping[DesignForm, Budget],
    setting: DesignSetting,
    find_plan: FindPlan,
    goal: Goal,
    watch: Callable[[Optimum], None] = lambda found: None,
) -> list[Optimum]:
    """Optimise the designs of each node within their budgets, the nodes in the order of their forms.

    A node starts from the shares of its unit, from points of its own and from what was best on the node before.

    Args:
        limits: budgets of each form that may be chosen.
        setting: what stands around each design.
        find_plan: searches the plans on a machine.
        goal: a column of designs.
        watch: is shown each answer.

    Raises:
        InfeasibleError: no plan fits any design of a node.
        UsageError: budgets without room for a chip, with the numbers.
        UnknownNameError: a goal that is no column of designs.
    """
    answers: list[Optimum] = []
    before: Array = np.empty((0, len(AXES)))
    jobs: list[DesignJob] = []
    for node in dict.fromkeys(form.node for form in limits):
        mine = {form: limit for form, limit in limits.items() if form.node == node}
        search = _NodeSearch(mine, setting, goal)
        answers.append(_optimised(search, find_plan, before, jobs))
        watch(answers[-1])
        best, row = search.best()
        before = best.points[[row]] if best.is_point(row) else before
    return answers


def _optimised(search: _NodeSearch, find_plan: FindPlan, before: Array, jobs: list[DesignJob]) -> Optimum:
    usual, usual_design, usual_job = _usual(search, find_plan, jobs)
    starts = np.concatenate([np.array(_STARTS), before])
    for form in search.limits:
        job = min(jobs, key=lambda one: search.price(form, one, starts).worth.min())
        search.climb(form, job, starts)
    for _ in range(_MOST_PLANS):
        best, row = search.best()
        if not np.isfinite(best.worth[row]):
            raise InfeasibleError(f"no design within the budgets of {best.form.node} holds a plan of the model")
        job = find_plan(search.text(best.form, columns.row(best.budget, row)))
        if any(job.plan == one.plan for one in jobs):
            break
        jobs.append(job)
        search.climb(best.form, job, best.points[[row]] if best.is_point(row) else starts)
    best, row = search.best()
    search.widen(best, row)
    return Optimum(
        form=best.form,
        design=design(columns.row(best.budget, row), search.setting.technology),
        job=best.job,
        columns={name: float(values[row]) for name, values in best.found.columns.items()},
        usual=usual,
        usual_design=usual_design,
        usual_job=usual_job,
        front=search.front(),
        num_designs=sum(len(one.worth) for one in search.priced),
    )


def _usual(
    search: _NodeSearch, find_plan: FindPlan, jobs: list[DesignJob]
) -> tuple[Mapping[str, float], Design | None, DesignJob | None]:
    """Price the unit's own shares of the first form that has a plan, under the best; nothing where none has.

    The plan is among `jobs` then, or that of a point of its own; raises why where no design has a plan at all.
    """
    why = list[SlipstickError]()
    for form, budget in _beginnings(search):
        try:
            job = find_plan(search.text(form, budget))
        except (InfeasibleError, UsageError) as error:
            why.append(error)
            continue
        if all(job.plan != one.plan for one in jobs):
            jobs.append(job)
        if budget is not search.limits[form]:
            return {}, None, None
        priced = search.price(form, job, np.full((1, len(AXES)), np.nan), budget)
        numbers = {name: float(values[0]) for name, values in priced.found.columns.items()}
        return numbers, design(budget, search.setting.technology), job
    raise why[0]


def first_machine(limits: Mapping[DesignForm, Budget], setting: DesignSetting) -> str:
    """Return the machine of the first design that can be built, as YAML; UsageError with the numbers of the first."""
    search, why = _NodeSearch(limits, setting, Goal(FRONT[0])), list[UsageError]()
    for form, budget in _beginnings(search):
        try:
            return search.text(form, budget)
        except UsageError as error:
            why.append(error)
    raise why[0]


def _beginnings(search: _NodeSearch) -> Iterator[tuple[DesignForm, Budget]]:
    """Yield the shares of the unit of each form, then points of its own."""
    for form, limit in search.limits.items():
        yield form, limit
        yield from ((form, columns.row(search.rows(form, np.array([point])), 0)) for point in _STARTS)


def _record(one: _Priced, row: int, goal: Goal) -> Mapping[str, float | str]:
    numbers = dict.fromkeys((goal.name, *FRONT, "num_stacks", "num_sms", "clock_hz", "hbm_bytes_per_s"))
    words: dict[str, float | str] = {"node": one.form.node, "memory": one.form.memory, "link": one.form.link}
    return words | {"plan": one.job.plan.degrees} | {name: float(one.found.columns[name][row]) for name in numbers}


def _moves() -> Iterator[tuple[float, ...]]:
    """Yield a step along each axis, and along each two at once."""
    num = len(AXES)
    for axes in (*combinations(range(num), 1), *combinations(range(num), 2)):
        for signs in product((1.0, -1.0), repeat=len(axes)):
            move = [0.0] * num
            for axis, sign in zip(axes, signs, strict=True):
                move[axis] = sign
            yield tuple(move)


_MOVES = np.array(list(_moves()))
# Levels of each axis at first, all with all.
_LEVELS = (
    (1.0, 0.65),
    (1.0, 0.85, 0.65, 0.4),
    (1.0, 0.75, 0.5, 0.25, 0.0),
    (1.0, 0.7, 0.4),
    (0.3, 0.5, 0.65, 0.8),
    (1.0, 0.7),
)
_COARSE = np.array(list(product(*_LEVELS)))
