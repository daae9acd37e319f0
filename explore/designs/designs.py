"""Chip designs with their silicon, their money and, for a model under a plan, their time: a space as one table.

All that a design is made of follows from its budget: the technology engine turns area, power and edge into compute,
memory and lanes; the same areas, dies and stacks are what the package costs; the same chips, in servers of the same
parts, are what the system costs and what the step runs on. Each is what `slipstick design system` writes, and costs and
takes what `slipstick cost` and `slipstick estimate` say of that file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...backends.machine.package import Package
from ...backends.machine.system import System
from ...backends.technology import columns
from ...backends.technology.design import Budget, Design, design, design_table
from ...backends.technology.packaging import packaged
from ...cost.money import Money, SystemWork, Terms, step_money, system_money
from ...cost.silicon.dies.limits import obstacles
from ...cost.silicon.nre import design_bill
from ...cost.silicon.packages.package import good_yield, package_bill
from ...driver.estimate import MACHINES, machine_tables
from ...ir.errors import UsageError
from ...ir.records import dataclass
from ...ir.sizes.expr import Num
from .machines import machine_of, machine_text, machines_of, package_of
from .reasons import NOT_PACKAGED
from .setting import DesignJob, DesignSetting
from .space import DesignForm, DesignSpace

Array = NDArray[np.float64]
# Columns of designs by name, and what is not in their money.
Columns: TypeAlias = tuple[dict[str, Num], tuple[str, ...]]
# Designs that are costed at a time: their arrays stay in the cache of a core.
_ROWS = 8192
_S_PER_HOUR = 3600.0
# Metrics of a step that are columns of a design; those of money are all.
_METRICS = (
    "step_time_s",
    "tokens_per_s",
    "tokens_per_s_per_gpu",
    "mfu",
    "exposed_comm_s",
    "peak_mem_bytes",
    "ttft_s",
    "tpot_s",
)

# What nobody can say without the carbon of every part.
_OF_MAKING = ("kg_co2e_per_mtok", "tco2e_embodied", "tco2e")


@dataclass(frozen=True, slots=True)
class Designs:
    """The designs of one form: columns by name, a row a design; nan where it cannot be built.

    `reason` says why not: see `explore/designs/reasons.py`; `unpriced` names what money lacks, with what to add.
    """

    form: DesignForm
    columns: Mapping[str, Array]
    reason: Array
    unpriced: tuple[str, ...] = ()

    @property
    def built(self) -> NDArray[np.bool_]:
        """Which of them can be built."""
        return np.asarray(self.reason == 0)


def explore(space: DesignSpace, setting: DesignSetting, job: DesignJob | None = None) -> Iterator[Designs]:
    """Yield the designs of a space, form by form: silicon and money, and time where there is a job.

    UnknownNameError for a node, memory, lane, interface or network that there is not; PlanError for a plan that is not
    legal.
    """
    for form in space.forms():
        yield designs_of(form, space.budget(form), setting, job)


def designs_of(
    form: DesignForm,
    budget: Budget,
    setting: DesignSetting,
    job: DesignJob | None = None,
    machines: dict[DesignForm, System] | None = None,
) -> Designs:
    """Return the designs of a table of budgets of one form, a row each; errors as `explore`.

    `machines` are those that stand around designs of each form, for the next table of it: the first of them is added.
    """
    return _joined(form, list(_parts(form, budget, setting, job, {} if machines is None else machines)))


def design_at(space: DesignSpace, setting: DesignSetting, form: DesignForm, row: int) -> Design:
    """Build one design of a space by itself; UsageError says with numbers why it cannot be built."""
    budget = space.budget(form)
    made = design(columns.row(columns.spread(budget, columns.length_of(budget)), row), setting.technology)
    package_bill(package_of(made, form, setting), setting.prices)
    return made


def system_text_at(space: DesignSpace, setting: DesignSetting, found: Sequence[Designs], at: int) -> str:
    """Return the system of one design as YAML, by its place in all of them, for `cost` and `estimate`."""
    form, row = _place(found, at)
    return machine_text(form, design_at(space, setting, form, row), setting)


def system_at(space: DesignSpace, setting: DesignSetting, found: Sequence[Designs], at: int) -> System:
    """Return the system of one design, by its place in all of them."""
    form, row = _place(found, at)
    return machine_of(form, design_at(space, setting, form, row), setting)


def _place(found: Sequence[Designs], at: int) -> tuple[DesignForm, int]:
    """Return the form of a design, and its row among those of that form."""
    for designs in found:
        if at < len(designs.reason):
            return designs.form, at
        at -= len(designs.reason)
    raise IndexError(f"no design {at} in this space")


def check_some(space: DesignSpace, setting: DesignSetting, found: Sequence[Designs]) -> None:
    """Raise a UsageError where none of the designs can be built, with the numbers of the first."""
    if any(designs.built.any() for designs in found):
        return
    num = sum(len(designs.reason) for designs in found)
    what = "the design cannot be built" if num == 1 else f"none of {num:,} designs can be built; of the first"
    try:
        design_at(space, setting, found[0].form, 0)
    except UsageError as error:
        raise UsageError(f"{what}: {error}") from None


def _parts(
    form: DesignForm, budget: Budget, setting: DesignSetting, job: DesignJob | None, machines: dict[DesignForm, System]
) -> Iterator[Designs]:
    """The designs of a form, some at a time. The machine around them is that of the first that can be built."""
    num, at_once = columns.length_of(budget), _ROWS if job is None else MACHINES
    table = columns.spread(budget, num)
    for start in range(0, num, at_once):
        made = design_table(columns.cut(table, slice(start, start + at_once)), setting.technology)
        reason = _reasons(made, form, setting)
        built = np.flatnonzero(reason == 0)
        if not built.size:
            yield Designs(form, _given(made), reason)
            continue
        kept = columns.cut(made, built)
        if form not in machines:
            machines[form] = machine_of(form, columns.row(kept, 0), setting)
        found, unpriced = _priced(form, kept, machines[form], setting, job)
        wide = {name: _wide(values, built, len(reason)) for name, values in found.items()}
        yield Designs(form, _given(made) | wide, reason, unpriced)


def _joined(form: DesignForm, parts: Sequence[Designs]) -> Designs:
    if len(parts) == 1:
        return parts[0]
    names = dict.fromkeys(name for part in parts for name in part.columns)
    found = {name: np.concatenate([column_of(part, name) for part in parts]) for name in names}
    unpriced = dict.fromkeys(line for part in parts for line in part.unpriced)
    return Designs(form, found, np.concatenate([part.reason for part in parts]), tuple(unpriced))


def column_of(designs: Designs, name: str) -> Array:
    """Return a column; nan all over where none of the designs has it."""
    return designs.columns.get(name, np.full(len(designs.reason), np.nan))


def _reasons(made: Design, form: DesignForm, setting: DesignSetting) -> Array:
    """Why designs cannot be built: for want of room in their budgets, or as packages."""
    reason = np.array(made.fit.reason, dtype=np.float64)
    built = np.flatnonzero(made.fit.holds)
    if built.size:
        package = packaged(columns.cut(made, built), setting.technology, form.joint)
        against = np.broadcast_to(obstacles(package, setting.prices), built.shape)
        reason[built] = np.where(against > 0, against + NOT_PACKAGED, 0.0)
    return reason


def _given(made: Design) -> dict[str, Array]:
    b, rows = made.budget, len(made.fit.reason)
    numbers: dict[str, Num] = {
        "die_mm2": b.die_mm2,
        "silicon_mm2": b.area_mm2,
        "package_w": b.power_w,
        "num_stacks": made.memory.num_stacks * b.num_ranks,
        "d2d_bytes_per_s": b.d2d_bytes_per_s,
    }
    return {name: np.broadcast_to(np.asarray(value, np.float64), rows) for name, value in numbers.items()}


def _wide(values: Num, rows: NDArray[np.intp], num: int) -> Array:
    found = np.full(num, np.nan)
    found[rows] = values
    return found


def _priced(form: DesignForm, made: Design, machine: System, setting: DesignSetting, job: DesignJob | None) -> Columns:
    system = machines_of(machine, made, package_of(made, form, setting), setting.like)
    assert system.package is not None
    num_gpus = setting.num_gpus if job is None else job.plan.num_gpus
    money = system_money(system, num_gpus, Terms(basis=setting.basis))
    assert money.package is not None
    chip = {
        "num_sms": made.compute.num_sms,
        "clock_hz": made.compute.clock_hz,
        "fp16_flop_per_s": made.compute.flop_per_s,
        "l2_bytes": made.cache.num_bytes,
        "hbm_bytes": made.memory.num_bytes,
        "hbm_bytes_per_s": made.memory.bytes_per_s,
        "link_bytes_per_s": made.network.bytes_per_s,
        "d2d_mm2": made.areas.d2d_mm2,
    }
    found: dict[str, Num] = {
        **chip,
        "package_usd": money.package.usd,
        "package_yield": good_yield(system.package, setting.prices),
        **_nre(system.package, setting),
        "usd_per_gpu": money.cost.bill.usd / num_gpus,
        "w_per_gpu": money.cost.power_w / num_gpus,
    }
    found |= {"usd_per_gpu_hour": money.owned.gpu_hour.usd} if job is None else _run(system, money, job)
    # Operations and bytes at their peaks for a dollar: worth more or less than another whatever their number.
    seconds_per_usd = _S_PER_HOUR / found["usd_per_gpu_hour"]
    for_a_dollar = {
        "fp16_flops_per_usd": found["fp16_flop_per_s"] * seconds_per_usd,
        "hbm_bytes_per_usd": found["hbm_bytes_per_s"] * seconds_per_usd,
    }
    return found | for_a_dollar, money.unpriced


def _nre(package: Package, setting: DesignSetting) -> dict[str, Num]:
    """Return the design and masks of a package, paid once, and its share of them; nothing where nobody priced them."""
    try:
        once = design_bill(replace(package, volume=1.0), (), setting.prices.section).usd
    except UsageError:
        return {}
    return {"nre_usd": once} if setting.volume is None else {"nre_usd": once, "package_nre_usd": once / setting.volume}


def _run(system: System, money: Money, job: DesignJob) -> dict[str, Num]:
    """Time of a step and what it costs, some machines at a time."""
    (table,) = machine_tables(job.lowered, system, job.plan, job.convention)
    m = table.metrics
    time_s = m["step_time_s"]
    run_s = None if job.num_steps is None else job.num_steps * time_s
    work = SystemWork(job.lowered.source.workload, time_s, m["tokens_per_s"] * time_s, m["model_flops"], run_s)
    spent = step_money(money, work, table.timing, table.plans)
    times: dict[str, Num] = {name: m[name] for name in _METRICS if name in m}
    worth = {k: v * np.nan if money.made.unknown and k in _OF_MAKING else v for k, v in spent.metrics.items()}
    return times | {"fits": table.fits.astype(np.float64)} | worth
