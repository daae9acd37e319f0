"""What an estimate costs: one line on its screen, records of JSON, and why a figure is what it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ..cost.ownership.tco import pue_of
from ..ir.units import format_si, format_usd
from .bills import bill_record, explain_line
from .metrics import METRICS, format_metric
from .numbers import one

if TYPE_CHECKING:
    from ..cost.money import Money, StepMoney
    from ..driver import Estimate

# The price of a million tokens, by what they are.
_TOKENS = (("usd_per_mtok", "1M tokens"), ("usd_per_mtok_input", "1M in"), ("usd_per_mtok_output", "1M out"))


def metrics_of(found: StepMoney | None) -> dict[str, float]:
    """Return the metrics of money of one plan as plain numbers."""
    return {} if found is None else {name: one(v) for name, v in found.metrics.items()}


def money_lines(answer: Estimate) -> list[str]:
    """Return what a screen says of money: nothing where nothing was priced."""
    if answer.money is None:
        return []
    m, money = metrics_of(answer.money), answer.money.money
    tokens = next(f"{format_usd(m[name])} for {label}" for name, label in _TOKENS if name in m)
    lines = [
        f"cost: {format_usd(m['usd_per_gpu_hour'])}/GPU-hour {terms_text(money)}, {tokens}, "
        f"{format_usd(m['usd_per_step'])} a step; {format_si(m['j_per_token'], 'J')}/token, "
        f"{m['average_power_w'] / answer.plan.num_gpus:,.0f} W/GPU, {m['kg_co2e_per_mtok']:.3g} kgCO2e for 1M tokens"
    ]
    if "usd_run" in m:
        lines.append(
            f"the run: {format_usd(m['usd_run'])}, {format_metric('kwh', m['kwh'])}, {m['tco2e']:,.3g} tCO2e, of which "
            f"{m['tco2e_embodied']:,.3g} t were emitted when its machines were made"
        )
    return lines + [f"not priced: {line}" for line in money.unpriced]


def terms_text(money: Money) -> str:
    """Say how a system is come by."""
    if money.terms.rented:
        return "rented"
    return "owned" if money.terms.basis == "market" else "owned, at the cost of making it"


def money_record(found: StepMoney) -> Mapping[str, object]:
    """Return what an estimate costs, for JSON: terms, what is not priced, energy by part, the bill of a GPU-hour."""
    money = found.money
    return {
        "basis": money.terms.basis,
        "rented": money.terms.rented,
        "prices": money.prices.name,
        "assumptions": assumptions(money),
        "unpriced": list(money.unpriced),
        "energy_j": {k: one(v) for k, v in found.energy.parts_j.items()} | {"building": one(found.energy.building_j)},
        "embodied_kg_co2e": {k: one(v) for k, v in money.made.parts_kg.items()},
        "gpu_hour": bill_record(found.owned.gpu_hour),
    }


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
        "grid": p.carbon.grid,
    }


def explain_money(answer: Estimate, name: str) -> str:
    """Explain a metric of money: value, meaning, the formula with its numbers, and the bill that it goes back to."""
    value = metrics_of(answer.money)[name]
    lines = [f"{name} = {value:.6g} ({format_metric(name, value)})", f"  {METRICS[name].meaning}"]
    return "\n".join([*lines, *(f"  {line}" for line in _formula(answer, name))])


def _formula(answer: Estimate, name: str) -> Iterator[str]:
    found = answer.money
    assert found is not None
    m, money = metrics_of(found), found.money
    step, n = f"{answer.metrics['step_time_s']:.6g} s", answer.plan.num_gpus
    tokens = f"{answer.metrics['tokens_per_s'] * answer.metrics['step_time_s']:,.0f} tokens"
    hour = f"{m['usd_per_gpu_hour']:.6g} USD/GPU-hour"
    formulas = {
        "usd_per_step": f"= {hour} x {n} GPUs x {step} / 3600",
        "tokens_per_usd": f"= {tokens} / {m['usd_per_step']:.6g} USD",
        "average_power_w": f"= joules of a step / {step}",
        "j_per_token": f"= joules of a step / {tokens}",
    } | {price: f"= 1e6 x {m['usd_per_step']:.6g} USD / {tokens}" for price, _ in _TOKENS}
    yield from [formulas[name]] if name in formulas else []
    if name in ("average_power_w", "j_per_token", "j_per_token_facility", "kwh"):
        parts = {**found.energy.parts_j, "building": found.energy.building_j}
        yield "joules: " + ", ".join(f"{k} {format_si(one(v), 'J')}" for k, v in parts.items())
    if name.startswith("usd") and name not in ("usd_capex",):
        yield from explain_line(found.owned.gpu_hour, "accelerator-hour", money.prices.records).splitlines()
    if name == "usd_capex":
        yield from explain_line(money.cost.bill, "system", money.prices.records).splitlines()
    yield from (f"not priced: {line}" for line in money.unpriced)
