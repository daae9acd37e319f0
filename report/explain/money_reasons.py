"""Why a metric of money, energy or carbon is what it is: its formula with the numbers, and the bills below it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from ...driver.metrics import METRICS, format_metric
from ...ir.records import dataclass
from ..cost.money import PER_MTOK, metrics_of, reservations
from ..numbers import one, shown_with_source
from .bill_reasons import explain_line, line_reasons
from .energy_reasons import joules_lines, joules_text

if TYPE_CHECKING:
    from ...backends.machine.files.records import NumberRecord
    from ...cost.money import Money, StepMoney
    from ...cost.ownership.ownership import Ownership
    from ...driver.estimate import Estimate


@dataclass(frozen=True, slots=True)
class _Step:
    """An estimate that was priced, with its metrics by name."""

    answer: Estimate
    found: StepMoney
    m: Mapping[str, float]

    @property
    def tokens(self) -> str:
        counted = "samples" if "samples_per_s" in self.answer.metrics else "tokens"
        return f"{self.answer.metrics['tokens_per_s'] * self.m_s:,.0f} {counted}"

    @property
    def m_s(self) -> float:
        return self.answer.metrics["step_time_s"]

    @property
    def run_s(self) -> float:
        return 0.0 if self.answer.run is None else self.answer.run.metrics["train_time_s"]

    def usd(self, name: str) -> str:
        return f"{self.m[name]:.6g} USD"


def explain_money(answer: Estimate, name: str) -> str:
    """Explain a metric of an estimate: value, meaning, formula with its numbers, and the lines that it goes back to."""
    assert answer.money is not None
    step = _Step(answer, answer.money, metrics_of(answer.money))
    return "\n".join([*_heading(name, step.m[name]), *(f"  {line}" for line in _lines(step, name))])


def explain_cost(money: Money, wanted: str) -> str:
    """Explain a line of the bills of a system, or a metric of owning it, `usd_tco`."""
    records = records_of(money)
    if wanted not in OWNING:
        return explain_line(money.bills, wanted, records)
    owned = money.owned
    value = {
        "usd_capex": owned.capex_usd,
        "usd_opex": owned.opex_usd,
        "usd_tco": owned.tco_usd,
        "usd_per_gpu_hour": owned.usd_per_gpu_hour,
    }[wanted]
    lines = (f"  {line}" for line in _owning(money, owned, wanted))
    return "\n".join([*_heading(wanted, one(value)), *lines])


def records_of(money: Money) -> tuple[NumberRecord, ...]:
    """Return every number that a bill may be made of: those of the system, and those of its prices."""
    return (*money.system.sources, *money.prices.records)


def _heading(name: str, value: float) -> Iterator[str]:
    yield f"{name} = {value:.6g} ({format_metric(name, value)})"
    yield f"  {METRICS[name].meaning}"


def _lines(step: _Step, name: str) -> Iterator[str]:
    yield from _FORMULAS[name](step) if name in _FORMULAS else ()
    if name in OWNING:
        yield from _owning(step.found.money, step.found.owned, name)
    elif name in _OF_HOURS:
        yield from _hour(step)
    elif name in _OF_JOULES:
        yield from joules_lines(step.answer, step.found, name not in _OF_MACHINES)
    yield from reservations(step.found.money)


def _per_mtok(step: _Step) -> Iterator[str]:
    yield f"= 1e6 x {step.usd('usd_per_step')} / {step.tokens}"
    yield from _per_step(step, "usd_per_step = ")


def _per_step(step: _Step, name: str = "= ") -> Iterator[str]:
    n = step.answer.plan.num_gpus
    yield f"{name}{step.usd('usd_per_gpu_hour')} an hour x {n} GPUs x {step.m_s:.6g} s / 3600"


def _run(step: _Step) -> Iterator[str]:
    n = step.answer.plan.num_gpus
    yield f"= {step.usd('usd_per_gpu_hour')} an hour x {n} GPUs x {step.run_s / 3600:.6g} h, the time to train"


def _tokens_per_usd(step: _Step) -> Iterator[str]:
    yield f"= {step.tokens} / {step.usd('usd_per_step')}"
    yield from _per_step(step, "usd_per_step = ")


def _tokens_per_capital(step: _Step) -> Iterator[str]:
    yield f"= {step.answer.metrics['tokens_per_s']:.6g} tokens/s / {step.usd('usd_capex')}"
    yield from _owning(step.found.money, step.found.owned, "usd_capex")


def _flops_per_usd(step: _Step) -> Iterator[str]:
    yield f"= {step.answer.metrics['model_flops']:.6g} FLOP / {step.usd('usd_per_step')}"
    yield from _per_step(step, "usd_per_step = ")


def _flops_per_w(step: _Step) -> Iterator[str]:
    yield f"= {step.answer.metrics['model_flops']:.6g} FLOP / {joules_text(step.found.energy.machines_j)}"


def _gpu_power(step: _Step) -> Iterator[str]:
    energy = step.found.energy
    rest, doing, gpus, bought = map(one, (energy.rest_j, energy.active_j, energy.num_gpus, energy.num_bought))
    yield f"= ({rest:.6g} J at rest / {bought:.0f} + {doing:.6g} J of work / {gpus:.0f}) / {step.m_s:.6g} s"


def _power(step: _Step) -> Iterator[str]:
    yield f"= {joules_text(step.found.energy.machines_j)} / {step.m_s:.6g} s"


def _j_per_token(step: _Step) -> Iterator[str]:
    yield f"= {joules_text(step.found.energy.machines_j)} / {step.tokens}"


def _j_per_token_facility(step: _Step) -> Iterator[str]:
    yield f"= {joules_text(step.found.energy.total_j)}, the building's in it, / {step.tokens}"


def _kwh(step: _Step) -> Iterator[str]:
    total = joules_text(step.found.energy.total_j)
    yield f"= {total} a step, the building's in it, / {step.m_s:.6g} s x {step.run_s:.6g} s to train / 3.6e6 J"


def _carbon(step: _Step) -> Iterator[str]:
    yield f"= operational {step.m['tco2e_operational']:.6g} t + embodied {step.m['tco2e_embodied']:.6g} t"
    yield from _operational(step, "operational = ")
    yield from _embodied(step, "embodied = ")


def _operational(step: _Step, name: str = "= ") -> Iterator[str]:
    carbon = step.found.money.prices.section.carbon
    yield f"{name}{step.m['kwh']:.6g} kWh x {carbon.grids[carbon.grid].si * 3.6e6:.6g} kg/kWh / 1000"
    yield from _sources(step.found.money, f"prices.carbon.grids.{carbon.grid}")


def _embodied(step: _Step, name: str = "= ") -> Iterator[str]:
    made, owned = step.found.money.made, step.found.owned
    hours = owned.life_years * owned.hours
    yield f"{name}{one(made.total_kg):.6g} kg / 1000 x {step.run_s / 3600:.6g} h / {hours:,.0f} h of their life"
    yield "made: " + ", ".join(f"{part} {one(kg):,.0f} kg" for part, kg in made.parts_kg.items())


def _kg_per_mtok(step: _Step) -> Iterator[str]:
    prices, made, owned = step.found.money.prices, step.found.money.made, step.found.owned
    grid = prices.section.carbon.grids[prices.section.carbon.grid].si
    life_s = owned.life_years * owned.hours * 3600.0
    parts = f"{one(step.found.energy.total_j):.6g} J x {grid * 3.6e6:.6g} kg/kWh / 3.6e6"
    yield f"= 1e6 x ({parts} + {one(made.total_kg):.6g} kg x {step.m_s:.6g} s / {life_s:.6g} s) / {step.tokens}"
    yield from _sources(step.found.money, f"prices.carbon.grids.{prices.section.carbon.grid}")
    yield "made: " + ", ".join(f"{part} {one(kg):,.0f} kg" for part, kg in made.parts_kg.items())


def _owning(money: Money, owned: Ownership, name: str) -> Iterator[str]:
    """The formula of a metric of owning, and the bill that it goes back to."""
    year, life = one(owned.year.usd), owned.life_years
    bill = owned.year
    if name == "usd_capex" and not money.terms.rented:
        bill = money.cost.bill
    elif name == "usd_tco":
        yield f"= {year:.6g} USD a year x {life:g} years"
    elif name == "usd_opex":
        yield f"= {year:.6g} USD a year x {life:g} years, less what of that writes capital off"
    elif name == "usd_per_gpu_hour":
        yield f"= {year:.6g} USD a year / ({one(owned.num_gpus):,.0f} GPUs x {owned.hours:,.0f} h)"
        bill = owned.gpu_hour
    yield from line_reasons(bill.name, bill, records_of(money))


def _hour(step: _Step) -> Iterator[str]:
    hour, money = step.found.owned.gpu_hour, step.found.money
    yield from line_reasons(hour.name, hour, records_of(money))
    if not money.terms.rented:
        watts = step.m["average_power_w"] / step.answer.plan.num_gpus
        yield f"its energy is that of the {watts:,.0f} W/GPU which the step draws"


def _sources(money: Money, *paths: str) -> Iterator[str]:
    for record in records_of(money):
        if record.path in paths:
            yield f"{record.path}: {shown_with_source(record)}"


# What a year of owning tells alone; `cost` explains them as well.
OWNING = ("usd_per_gpu_hour", "usd_capex", "usd_opex", "usd_tco")
_OF_HOURS = ("usd_per_step", "usd_run", "tokens_per_usd", "model_flops_per_usd", *(name for name, _ in PER_MTOK))
_OF_MACHINES = ("average_power_w", "gpu_power_w", "j_per_token", "model_flop_per_s_per_w")
_OF_JOULES = (*_OF_MACHINES, "j_per_token_facility", "kwh", "tco2e", "tco2e_operational", "kg_co2e_per_mtok")
_FORMULAS: Mapping[str, Callable[[_Step], Iterator[str]]] = MappingProxyType(
    {
        **{name: _per_mtok for name, _ in PER_MTOK},
        "usd_per_step": _per_step,
        "usd_run": _run,
        "tokens_per_usd": _tokens_per_usd,
        "tokens_per_s_per_usd_capex": _tokens_per_capital,
        "model_flops_per_usd": _flops_per_usd,
        "model_flop_per_s_per_w": _flops_per_w,
        "average_power_w": _power,
        "gpu_power_w": _gpu_power,
        "j_per_token": _j_per_token,
        "j_per_token_facility": _j_per_token_facility,
        "kwh": _kwh,
        "tco2e": _carbon,
        "tco2e_operational": _operational,
        "tco2e_embodied": _embodied,
        "kg_co2e_per_mtok": _kg_per_mtok,
    }
)
