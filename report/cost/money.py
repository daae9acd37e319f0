"""What an estimate costs: lines on its screen, and records of JSON."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ...cost.ownership.tco import pue_of
from ...driver.metrics import format_metric
from ...ir.units import format_si, format_usd
from ..numbers import one
from .bills import bill_record

if TYPE_CHECKING:
    from ...cost.money import Money, StepMoney
    from ...driver.estimate import Estimate
    from ...driver.serve.answer import ServeMoney

# The price of a million tokens, by what they are.
PER_MTOK = (("usd_per_mtok", "1M tokens"), ("usd_per_mtok_input", "1M in"), ("usd_per_mtok_output", "1M out"))


def metrics_of(found: StepMoney | None) -> dict[str, float]:
    """Return the metrics of money of one plan as plain numbers."""
    return {} if found is None else {name: one(v) for name, v in found.metrics.items()}


def money_lines(answer: Estimate) -> list[str]:
    """Return what a screen says of money: nothing where nothing was priced."""
    if answer.money is None:
        return []
    m, money = metrics_of(answer.money), answer.money.money
    return [*_step_lines(answer, m, money), *_run_lines(m, money), *notes_of(money)]


def _step_lines(answer: Estimate, m: Mapping[str, float], money: Money) -> Iterator[str]:
    """Energy first: what is owned costs what it does at the power that the step draws."""
    tokens = next(f"{format_usd(m[name])} for {label}" for name, label in PER_MTOK if name in m)
    power = "" if money.terms.rented else " at this power"
    counted = "sample" if "samples_per_s" in answer.metrics else "token"
    tokens = tokens.replace("tokens", f"{counted}s")
    between = " .. ".join(format_si(joules, "J") for joules in joules_of_token(answer, m))
    yield (
        f"energy: {m['average_power_w'] / answer.plan.num_gpus:,.0f} W/GPU, {format_si(m['j_per_token'], 'J')}/"
        f"{counted} ({between}), {format_si(m['j_per_token_facility'], 'J')} including PUE; "
        f"{m['kg_co2e_per_mtok']:.3g} kgCO2e for 1M {counted}s"
    )
    yield (
        f"{cost_text(money)} {format_usd(m['usd_per_gpu_hour'])}/GPU-hour {terms_text(money)}{power}, {tokens}, "
        f"{format_usd(m['usd_per_step'])} a step"
    )


def joules_of_token(answer: Estimate, m: Mapping[str, float]) -> tuple[float, float]:
    """Return between which joules a token lies, as far as the energies of the machine are known."""
    assert answer.money is not None
    from ...cost.ownership.energy import joules_interval

    energy, money = answer.money.energy, answer.money.money
    between, tokens = joules_interval(energy, money.system, money.prices), one(energy.machines_j) / m["j_per_token"]
    return one(between.low_j) / tokens, one(between.high_j) / tokens


def _run_lines(m: Mapping[str, float], money: Money) -> Iterator[str]:
    if "usd_run" in m:
        yield (
            f"the run: {usd_text(money, m['usd_run'])}, {format_metric('kwh', m['kwh'])}, "
            f"{format_metric('tco2e', m['tco2e'])}CO2e, of which {format_metric('tco2e', m['tco2e_embodied'])} were "
            "emitted when its machines were made"
        )


def notes_of(money: Money) -> Iterator[str]:
    """Yield what a reader of the figures must know: what stands idle in them, and what is not in them."""
    bought, in_servers = one(money.cost.gpus_bought), one(money.cost.num_servers) * money.system.node_size
    idle = bought - one(money.cost.num_gpus)
    if idle > 0 and not money.terms.rented:
        whole = "racks" if bought > in_servers else "servers"
        yield f"{idle:,.0f} of {bought:,.0f} GPUs stand idle: {whole} are bought whole"
    yield from reservations(money)


def reservations(money: Money) -> Iterator[str]:
    """Yield what sums leave out, and what of them is of another machine, each with what to set."""
    yield from (f"not priced: {line}" for line in money.unpriced)
    yield from (f"not of this machine: {line}" for line in money.outdated)


def usd_text(money: Money, usd: float) -> str:
    """Write a sum with what it is worth: `$2.5M`, `at least $2.5M`, or `$2.5M*` where it is not of this machine."""
    text = format_usd(usd)
    if money.standing == "not of this machine":
        return f"{text}*"
    return text if money.standing == "firm" else f"at least {text}"


def cost_text(money: Money) -> str:
    """Introduce sums with what they are worth: `cost, at least, without racks:`."""
    return ", ".join(["cost", *_worth(money)]) + ":"


def standing_lines(money: Money) -> Iterator[str]:
    """Yield a line that says what all sums of a page are worth; nothing where they are firm."""
    if money.outdated:
        yield "* no sum is of this machine: what to set as well is said below"
    if money.without:
        yield f"every sum is at least so much, without {', '.join(money.without)}"


def _worth(money: Money) -> Iterator[str]:
    if money.standing != "firm":
        yield money.standing
    if money.without:
        yield f"without {', '.join(money.without)}"


def terms_text(money: Money) -> str:
    """Say whether a system is bought, built or rented, and at prices of which date."""
    if money.terms.rented:
        as_of = money.prices.section.cloud[money.system.chip.name].price.as_of
        return "rented" if as_of is None else f"rented at prices of {as_of}"
    return "owned" if money.terms.basis == "market" else "owned for the cost of making it"


def money_inputs(found: StepMoney | ServeMoney) -> Mapping[str, object]:
    """Return what was asked for of money, for JSON."""
    money = found.money
    return {
        "prices": money.prices.name,
        "basis": money.terms.basis,
        "rented": money.terms.rented,
        "prices_sha256": hashlib.sha256(repr(money.prices.section).encode()).hexdigest(),
    }


def money_record(found: StepMoney | ServeMoney) -> Mapping[str, object]:
    """Return what an estimate costs, for JSON: terms, what is not priced, energy by part, the bill of a GPU-hour.

    That is at the power which the step draws, where `slipstick cost` takes the load of the price book.
    """
    from ...cost.ownership.energy import joules_interval

    money = found.money
    between = joules_interval(found.energy, money.system, money.prices)
    return {
        **money_inputs(found),
        "assumptions": {**assumptions(money), "power": "rented" if money.terms.rented else "of the step"},
        **standing_record(money),
        "energy_j": {k: one(v) for k, v in found.energy.parts_j.items()} | {"building": one(found.energy.building_j)},
        "energy_interval": {
            "low_j": one(between.low_j),
            "high_j": one(between.high_j),
            "factors": {part: {"low": low, "high": high} for part, (low, high) in between.factors.items()},
        },
        "embodied_kg_co2e": {k: one(v) for k, v in money.made.parts_kg.items()},
        "gpu_hour": bill_record(found.owned.gpu_hour),
    }


def standing_record(money: Money) -> Mapping[str, object]:
    """Return what sums are worth, for JSON: their standing, what has no price, what is of another machine."""
    return {"standing": money.standing, "unpriced": list(money.unpriced), "outdated": list(money.outdated)}


def assumptions(money: Money) -> Mapping[str, float | str]:
    """Return what a cost of owning rests on most."""
    p = money.prices.section
    return {
        "method": p.tco.method,
        "server_life_years": money.owned.life_years,
        "hours_a_year": money.owned.hours,
        "interest_rate": p.tco.interest_rate.si,
        "usd_per_kwh": p.energy.electricity.si * 3.6e6,
        "pue": pue_of(money.prices, money.cost.estate.cooling),
        "average_load": p.energy.average_load.si,
        "grid": p.carbon.grid,
    }
