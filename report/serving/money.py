"""What serving costs: lines on its screen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...ir.units import format_si, format_usd
from ..cost.money import cost_text, notes_of, terms_text

if TYPE_CHECKING:
    from ...driver.serve.answer import ServeEstimate


def serving_money_lines(answer: ServeEstimate) -> Iterator[str]:
    """Yield what a screen says of money: nothing where nothing was priced."""
    if answer.money is None:
        return
    m, money = answer.money.metrics, answer.money.money
    gpus = answer.num_gpus * answer.share_there
    yield (
        f"energy: {m['average_power_w'] / gpus:,.0f} W/GPU, {format_si(m['j_per_token'], 'J')}/token out, "
        f"{format_si(m['j_per_token_facility'], 'J')} including PUE; "
        f"{m['kg_co2e_per_mtok']:.3g} kgCO2e for 1M tokens out"
    )
    power = "" if money.terms.rented else " at this power"
    yield (
        f"{cost_text(money)} {format_usd(m['usd_per_gpu_hour'])}/GPU-hour {terms_text(money)}{power}, "
        f"{format_usd(m['usd_per_mtok_output'])} for 1M tokens out with their prompts, "
        f"{format_usd(m['usd_per_mtok'])} for 1M in and out, {format_usd(m['usd_per_request'])} a request"
    )
    if "usd_run_fixed" in m:
        yield (
            f"the run: {format_usd(m['usd_run'])} for the replicas that are there, "
            f"{format_usd(m['usd_run_fixed'])} for all of them all the time"
        )
    yield from notes_of(money)
