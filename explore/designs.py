"""Chip designs with their silicon, their money and, for a model under a plan, their time: a space as one table.

All that a design is made of follows from its budget: the technology engine turns area, power and edge into compute,
memory and lanes; the same areas, dies and stacks are what the package costs; the same chips, in servers of the same
parts, are what the system costs and what the step runs on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..backends.prices.section import Prices
from ..backends.system import System, read_system
from ..backends.system_table import machine_numbers, tabled
from ..backends.technology import columns
from ..backends.technology.chip_file import system_text
from ..backends.technology.data import Technology
from ..backends.technology.design import Design, design_table
from ..backends.technology.fits import Reason
from ..backends.technology.packaging import packaged
from ..cost.bill import Bill
from ..cost.money import Work
from ..cost.ownership.carbon import embodied
from ..cost.ownership.energy import step_energy
from ..cost.ownership.ownership import ownership
from ..cost.ownership.per_token import money_metrics
from ..cost.ownership.system import SystemCost, system_cost
from ..cost.silicon.limits import feasible
from ..cost.silicon.package import good_yield, package_bill
from ..driver import Lowered, evaluate_machines
from ..ir.expr import Num
from ..ir.plan import Plan
from .space import DesignSpace, Form

Array = NDArray[np.float64]
# What cannot be packaged is told apart from what the engine cannot build.
NOT_PACKAGED = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What stands around every design of a space.

    Attributes:
        technology: nodes, units, memories, lanes and interfaces.
        prices: of silicon and of machines.
        num_packages: packages of a node.
        network: between nodes, by name of the catalogue.
        like: system whose servers, racks and switches stand around the chips.
        num_gpus: devices of the system; those of a plan where there is one.
    """

    technology: Technology
    prices: Prices
    num_packages: int = 8
    network: str = "ndr-infiniband"
    like: str = "dgx-h100"
    num_gpus: int = 1024


@dataclass(frozen=True, slots=True)
class Job:
    """A model that was lowered, and the plan under which every design runs it."""

    lowered: Lowered
    plan: Plan


@dataclass(frozen=True, slots=True)
class Designs:
    """The designs of one form: columns by name, a row a design; nan where it cannot be built.

    `reason` says why not: a `Reason` of the technology engine, or NOT_PACKAGED.
    """

    form: Form
    columns: Mapping[str, Array]
    reason: Array

    @property
    def built(self) -> NDArray[np.bool_]:
        """Which of them can be built."""
        return np.asarray(self.reason == 0)


def explore(space: DesignSpace, setting: Setting, job: Job | None = None) -> Iterator[Designs]:
    """Yield the designs of a space, form by form: silicon and money, and time where there is a job.

    UnknownNameError for a node, memory, lane, interface or network that there is not.
    """
    for form in space.forms():
        yield _explored(form, design_table(space.budget(form), setting.technology), setting, job)


def _explored(form: Form, made: Design, setting: Setting, job: Job | None) -> Designs:
    reason = np.array(made.fit.reason, dtype=np.float64)
    given = _given(made)
    built = np.flatnonzero(made.fit.holds)
    if not built.size:
        return Designs(form, given, reason)
    kept = columns.cut(made, built)
    package = packaged(kept, setting.technology, form.joint)
    good = np.broadcast_to(feasible(package, setting.prices), built.shape)
    reason[built[~good]] = NOT_PACKAGED
    built = built[good]
    if not built.size:
        return Designs(form, given, reason)
    found = _priced(form, columns.cut(made, built), setting, job)
    wide = {name: _wide(values, built, len(reason)) for name, values in found.items()}
    return Designs(form, {**given, **wide}, reason)


def _given(made: Design) -> dict[str, Array]:
    b, rows = made.budget, len(made.fit.reason)
    stacks = made.memory.num_stacks * b.num_ranks
    numbers: dict[str, Num] = {
        "die_mm2": b.die_mm2, "num_dies": b.num_dies, "power_w": b.power_w, "num_stacks": stacks,
        "d2d_bytes_per_s": b.d2d_bytes_per_s,
    }  # fmt: skip
    return {name: np.broadcast_to(np.asarray(value, np.float64), rows) for name, value in numbers.items()}


def _wide(values: Num, rows: NDArray[np.intp], num: int) -> Array:
    found = np.full(num, np.nan)
    found[rows] = values
    return found


def _priced(form: Form, made: Design, setting: Setting, job: Job | None) -> dict[str, Num]:
    package = packaged(made, setting.technology, form.joint)
    bill = package_bill(package, setting.prices)
    system = replace(_table(form, made, setting), package=package)
    num_gpus = setting.num_gpus if job is None else job.plan.num_gpus
    cost = system_cost(system, num_gpus, setting.prices, "build", bill)
    found: dict[str, Num] = {
        **_chip(made),
        "package_usd": bill.usd,
        "package_yield": good_yield(package, setting.prices),
        "usd_per_gpu": cost.bill.usd / num_gpus,
        "w_per_gpu": cost.power_w / num_gpus,
    }
    return found | (_owned(cost, setting) if job is None else _run(system, cost, setting, job))


def _owned(cost: SystemCost, setting: Setting) -> dict[str, Num]:
    return {"usd_per_gpu_hour": ownership(cost, setting.prices).gpu_hour.usd}


def _run(system: System, cost: SystemCost, setting: Setting, job: Job) -> dict[str, Num]:
    """Time of a step and what it costs; machines draw what the load of the price book makes of their full power."""
    answer = evaluate_machines(job.lowered, system, job.plan)
    m, prices = answer.metrics, setting.prices
    time_s = m["step_time_s"]
    work = Work(job.lowered.source.workload, time_s, m["tokens_per_s"] * time_s, m["model_flops"])
    money = money_metrics(
        work, ownership(cost, prices), step_energy(cost, system, prices, time_s), embodied(cost, system, prices), prices
    )
    kept = ("step_time_s", "tokens_per_s", "tokens_per_s_per_gpu", "mfu", "peak_mem_bytes", "ttft_s", "tpot_s")
    times: dict[str, Num] = {name: m[name] for name in kept if name in m}
    return times | {"fits": answer.fits.astype(np.float64)} | dict(money)


def _chip(made: Design) -> dict[str, Num]:
    return {
        "num_sms": made.compute.num_sms,
        "clock_hz": made.compute.clock_hz,
        "fp16_flop_per_s": made.compute.flop_per_s,
        "l2_bytes": made.cache.num_bytes,
        "hbm_bytes": made.memory.num_bytes,
        "hbm_bytes_per_s": made.memory.bytes_per_s,
        "link_bytes_per_s": made.network.bytes_per_s,
        "d2d_mm2": made.areas.d2d_mm2,
    }


def _table(form: Form, made: Design, setting: Setting) -> System:
    """The machine of the first design, as its file says it, with the numbers of all of them as columns."""
    first = columns.row(made, 0)
    text = system_text(first, form.node, setting.num_packages, setting.network, setting.technology, form.joint,
                       setting.like)  # fmt: skip
    system = read_system(text, form.node)
    known = machine_numbers(system)
    num = len(made.fit.reason)
    numbers = {k: np.broadcast_to(np.asarray(v), num) for k, v in made.columns().items() if k in known}
    return tabled(system, numbers)


def reason_text(code: float) -> str:
    """Say why a design cannot be built.

    >>> reason_text(NOT_PACKAGED)
    'package'
    """
    return "package" if code == NOT_PACKAGED else Reason(int(code)).name.lower().replace("_", " ")


def package_of_row(found: Designs, setting: Setting, space: DesignSpace, row: int) -> Bill:
    """Return the bill of the package of one design, line by line."""
    made = design_table(space.budget(found.form), setting.technology)
    one = packaged(columns.row(made, row), setting.technology, found.form.joint)
    return package_bill(one, setting.prices)
