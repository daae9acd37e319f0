"""Why a metric of money, energy or carbon is what it is: its formula with the numbers, and the bills below it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from ...driver.metrics import METRICS, format_metric
from ...ir.records import dataclass
from ..cost.bills import spoken
from ..cost.money import PER_MTOK, metrics_of, reservations
from ..numbers import one, shown_with_source
from .bill_reasons import explain_line, line_reasons
from .energy_reasons import joules_lines, joules_text

if TYPE_CHECKING:
    from ...backends.machine.files.records import NumberRecord
    from ...cost.money import Money, StepMoney
    from ...cost.ownership.ownership import Ownership
    from ...driver.estimate import Estimate
    from ...driver.serve.answer import ServeEstimate, ServeMoney


@dataclass(frozen=True, slots=True)
class _Step:
    """A step, or a request of a server, that was priced.

    Attributes:
        found: what it costs.
        m: its metrics of money by name.
        s: how long it takes; of a server, from one request to the next.
        amount: of what it is counted by.
        counted: `tokens` or `samples`.
        num_gpus: that it runs on.
        flops: of the model in it.
        run_s: of the whole run; 0 where there is none.
        answer: the estimate of a step; None of a server.
        prompt: tokens that a request brings.
        share_there: replicas that are there on average, of all.
    """

    found: StepMoney | ServeMoney
    m: Mapping[str, float]
    s: float
    amount: float
    counted: str
    num_gpus: int
    flops: float
    run_s: float = 0.0
    answer: Estimate | None = None
    prompt: float = 0.0
    share_there: float = 1.0

    @classmethod
    def of(cls, answer: Estimate) -> _Step:
        """Return the step of an estimate."""
        assert answer.money is not None
        m, run = answer.metrics, answer.run
        counted = "samples" if "samples_per_s" in m else "tokens"
        return cls(
            answer.money,
            metrics_of(answer.money),
            m["step_time_s"],
            m["tokens_per_s"] * m["step_time_s"],
            counted,
            answer.plan.num_gpus,
            m["model_flops"],
            run.metrics.get("train_time_s", 0.0) if run is not None else 0.0,
            answer,
        )

    @classmethod
    def of_request(cls, answer: ServeEstimate) -> _Step:
        """Return a request of a server."""
        money, lengths = answer.money, answer.lengths
        assert money is not None
        output, prompt = one(np.asarray(lengths.output)), one(np.asarray(lengths.prompt))
        gpus, flops, seconds = answer.num_gpus, answer.metrics["flops_per_request"], one(money.energy.time_s)
        there = answer.share_there
        return cls(money, money.metrics, seconds, output, "tokens", gpus, flops, prompt=prompt, share_there=there)

    @property
    def tokens(self) -> str:
        return f"{self.amount:,.10g} {self.counted}"

    @property
    def per_step(self) -> str:
        return "usd_per_request" if self.answer is None else "usd_per_step"

    def usd(self, name: str) -> str:
        return f"{self.m[name]:.7g} USD"


def explain_money(answer: Estimate | ServeEstimate, name: str) -> str:
    """Explain a metric of an estimate: value, meaning, formula with its numbers, and the lines that it goes back to."""
    from ...driver.estimate import Estimate

    step = _Step.of(answer) if isinstance(answer, Estimate) else _Step.of_request(answer)
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
    yield f"= 1e6 x {step.usd(step.per_step)} / {step.tokens}"
    yield from _per_step(step, f"{step.per_step} = ")


def _per_mtok_of_both(step: _Step) -> Iterator[str]:
    """Tokens of prompts are paid for as well, in answers of a server."""
    if step.answer is not None:
        yield from _per_mtok(step)
        return
    yield f"= 1e6 x {step.usd(step.per_step)} / ({step.prompt:,.10g} tokens in + {step.tokens} out)"
    yield from _per_step(step, f"{step.per_step} = ")


def _per_step(step: _Step, name: str = "= ") -> Iterator[str]:
    hour = step.usd("usd_per_gpu_hour")
    yield f"{name}{hour} an hour x {step.num_gpus} GPUs x {step.s:.7g} s / 3600"


def _run(name: str, step: _Step) -> Iterator[str]:
    hour, hours = step.usd("usd_per_gpu_hour"), step.m[name] / step.m["usd_per_gpu_hour"]
    if step.answer is None:
        there = "all replicas" if name == "usd_run_fixed" else "replicas that are there"
        yield f"= {hour} an hour x {hours:.7g} h of GPUs of {there}"
    else:
        yield f"= {hour} an hour x {step.num_gpus} GPUs x {step.run_s / 3600:.7g} h, the time to train"


def _tokens_per_usd(step: _Step) -> Iterator[str]:
    yield f"= {step.tokens} / {step.usd(step.per_step)}"
    yield from _per_step(step, f"{step.per_step} = ")


def _tokens_per_capital(step: _Step) -> Iterator[str]:
    yield f"= {step.amount / step.s:.7g} {step.counted} a second / {step.usd('usd_capex')}"
    yield from _owning(step.found.money, step.found.owned, "usd_capex", "usd_capex = ")


def _flops_per_usd(step: _Step) -> Iterator[str]:
    yield f"= {step.flops:.7g} FLOP / {step.usd(step.per_step)}"
    yield from _per_step(step, f"{step.per_step} = ")


def _flops_per_w(step: _Step) -> Iterator[str]:
    yield f"= {step.flops:.7g} FLOP / {joules_text(step.found.energy.machines_j)}"


def _gpu_power(step: _Step) -> Iterator[str]:
    energy = step.found.energy
    rest, doing, gpus, bought = map(one, (energy.rest_j, energy.active_j, energy.num_gpus, energy.num_bought))
    yield f"= ({rest:.7g} J at rest / {bought:.0f} + {doing:.7g} J of work / {gpus:.0f}) / {step.s:.7g} s"


def _power(step: _Step) -> Iterator[str]:
    there = "" if step.share_there == 1.0 else f" x {step.share_there:.7g} of the replicas"
    yield f"= {joules_text(step.found.energy.machines_j)} / {step.s:.7g} s{there}"


def _j_per_token(step: _Step) -> Iterator[str]:
    yield f"= {joules_text(step.found.energy.machines_j)} / {step.tokens}"


def _j_per_token_facility(step: _Step) -> Iterator[str]:
    yield f"= {joules_text(step.found.energy.total_j)}, the building's in it, / {step.tokens}"


def _kwh(step: _Step) -> Iterator[str]:
    total = joules_text(step.found.energy.total_j)
    yield f"= {total} a step, the building's in it, / {step.s:.7g} s x {step.run_s:.7g} s to train / 3.6e6 J"


def _carbon(step: _Step) -> Iterator[str]:
    yield f"= operational {step.m['tco2e_operational']:.7g} t + embodied {step.m['tco2e_embodied']:.7g} t"
    yield from _operational(step, "operational = ")
    yield from _embodied(step, "embodied = ")


def _operational(step: _Step, name: str = "= ") -> Iterator[str]:
    carbon = step.found.money.prices.section.carbon
    yield f"{name}{step.m['kwh']:.7g} kWh x {carbon.grids[carbon.grid].si * 3.6e6:.7g} kg/kWh / 1000"
    yield from _sources(step.found.money, f"prices.carbon.grids.{carbon.grid}")


def _embodied(step: _Step, name: str = "= ") -> Iterator[str]:
    made, owned = step.found.money.made, step.found.owned
    hours = owned.life_years * owned.hours
    yield f"{name}{one(made.total_kg):.7g} kg / 1000 x {step.run_s / 3600:.7g} h / {hours:,.10g} h of their life"
    yield "made: " + ", ".join(f"{part} {one(kg):,.0f} kg" for part, kg in made.parts_kg.items())


def _kg_per_mtok(step: _Step) -> Iterator[str]:
    prices, made, owned = step.found.money.prices, step.found.money.made, step.found.owned
    grid = prices.section.carbon.grids[prices.section.carbon.grid].si
    life_s = owned.life_years * owned.hours * 3600.0
    parts = f"{one(step.found.energy.total_j):.7g} J x {grid * 3.6e6:.7g} kg/kWh / 3.6e6"
    yield f"= 1e6 x ({parts} + {one(made.total_kg):.7g} kg x {step.s:.7g} s / {life_s:.7g} s) / {step.tokens}"
    yield from _sources(step.found.money, f"prices.carbon.grids.{prices.section.carbon.grid}")
    yield "made: " + ", ".join(f"{part} {one(kg):,.0f} kg" for part, kg in made.parts_kg.items())


def _owning(money: Money, owned: Ownership, name: str, called: str = "= ") -> Iterator[str]:
    """The formula of a metric of owning, and the bill that it goes back to."""
    year, life = one(owned.year.usd), owned.life_years
    bill = owned.year
    if name == "usd_capex" and not money.terms.rented:
        bill = money.cost.bill
        yield called + " + ".join(f"{spoken(p.name)} {one(p.usd):.7g} USD" for p in bill.parts if one(p.usd))
    elif name == "usd_capex":
        yield f"{called}0 USD: what is rented is not bought"
    elif name == "usd_tco":
        yield f"= {year:.7g} USD a year x {life:g} years"
    elif name == "usd_opex":
        capital = sum(one(part.usd) for part in owned.year.parts if part.name == "capital")
        yield f"= ({year:.7g} USD a year - {capital:.7g} USD that write capital off) x {life:g} years"
    elif name == "usd_per_gpu_hour":
        yield f"= {year:.7g} USD a year / ({one(owned.num_gpus):,.10g} GPUs x {owned.hours:,.10g} h)"
        bill = owned.gpu_hour
    yield from line_reasons(bill.name, bill, records_of(money))


def _hour(step: _Step) -> Iterator[str]:
    hour, money = step.found.owned.gpu_hour, step.found.money
    yield from line_reasons(hour.name, hour, records_of(money))
    if not money.terms.rented:
        watts = one(step.found.energy.average_w) / step.num_gpus
        yield f"its energy is that of the {watts:,.0f} W/GPU which the {'step' if step.answer else 'server'} draws"


def _sources(money: Money, *paths: str) -> Iterator[str]:
    for record in records_of(money):
        if record.path in paths:
            yield f"{record.path}: {shown_with_source(record)}"


# What a year of owning tells alone; `cost` explains them as well.
OWNING = ("usd_per_gpu_hour", "usd_capex", "usd_opex", "usd_tco")
_OF_HOURS = (
    "usd_per_step",
    "usd_per_request",
    "usd_run",
    "usd_run_fixed",
    "tokens_per_usd",
    "model_flops_per_usd",
    *(name for name, _ in PER_MTOK),
)
_OF_MACHINES = ("average_power_w", "gpu_power_w", "j_per_token", "model_flop_per_s_per_w")
_OF_JOULES = (*_OF_MACHINES, "j_per_token_facility", "kwh", "tco2e", "tco2e_operational", "kg_co2e_per_mtok")
_FORMULAS: Mapping[str, Callable[[_Step], Iterator[str]]] = MappingProxyType(
    {
        **{name: _per_mtok for name, _ in PER_MTOK},
        "usd_per_mtok": _per_mtok_of_both,
        "usd_per_step": _per_step,
        "usd_per_request": _per_step,
        "usd_run_fixed": partial(_run, "usd_run_fixed"),
        "usd_run": partial(_run, "usd_run"),
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
