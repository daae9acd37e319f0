"""Pools on machines of two kinds: what both together cost, each at the power that it draws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...cost.money import Money, Terms, system_money
from ...cost.ownership.energy import StepEnergy
from ...cost.ownership.ownership import ownership
from ...ir.units import format_usd
from ..estimate import Estimate
from .answer import ServeEstimate
from .money import AT_REST, phase_money
from .server import Server

# A share of one chip's peak means nothing over chips of two kinds.
_OF_ONE_CHIP = frozenset(("mfu", "mfu_bf16", "hfu"))


def is_mixed(answer: ServeEstimate) -> bool:
    """Whether prompts and answers run on machines of two kinds."""
    pools = answer.pools
    return pools is not None and pools.prefill.system.name != pools.decode.system.name


def worth_mixed(answer: ServeEstimate, terms: Terms | None = None) -> ServeEstimate:
    """Price the requests of pools on two kinds of machines: dollars and joules of both add up.

    A pool draws what its steps draw for the share of the time for which it runs them, and else what rests draw.
    UsageError where either system cannot be priced at all.
    """
    pools, known = answer.pools, answer.metrics
    assert pools is not None
    first = _PoolCost.of(pools.prefill, answer.prefill, known["prefill_busy"], terms)
    then = _PoolCost.of(pools.decode, answer.decode, 1.0, terms)
    usd_per_s, watts = first.usd_per_s + then.usd_per_s, first.watts + then.watts
    rate, output = known["requests_per_s"], float(np.asarray(answer.lengths.output))
    total = known["total_tokens_per_s"] / known["tokens_per_s"] * output
    costs = {
        "usd_per_request": usd_per_s / rate, "usd_per_mtok_output": 1e6 * usd_per_s / rate / output,
        "usd_per_mtok": 1e6 * usd_per_s / rate / total, "average_power_w": watts,
        "j_per_token": watts / rate / output,
    }  # fmt: skip
    lines = " + ".join(f"{part.named} {format_usd(part.usd_per_s * 3600.0)}/h" for part in (first, then))
    note = f"two kinds of machines: {lines}; {format_usd(costs['usd_per_mtok_output'])} for 1M tokens of answers"
    missing = tuple(f"not in the cost: {line}" for part in (first, then) for line in part.money.unpriced)
    kept = {name: value for name, value in known.items() if name not in _OF_ONE_CHIP}
    return replace(
        answer, metrics={**kept, **costs}, warnings=(*answer.warnings, note, *dict.fromkeys(missing))
    )  # fmt: skip


class _PoolCost:
    """What one pool costs and draws."""

    def __init__(self, server: Server, money: Money, watts: float) -> None:
        self.named = f"{server.plan.num_gpus} x {server.system.chip.name}"
        self.money, self.watts = money, watts
        owned = money.owned if money.terms.rented else ownership(money.cost, money.prices, watts)
        self.usd_per_s = float(owned.usd_per_gpu_hour) * server.plan.num_gpus / 3600.0

    @classmethod
    def of(cls, server: Server, phase: Estimate, busy: float, terms: Terms | None) -> _PoolCost:
        """Price the machines of a pool that runs a phase for a share of the time."""
        money = system_money(server.system, server.plan.num_gpus, terms)
        return cls(server, money, _watts(phase_money(phase, money).energy, min(busy, 1.0)))


def _watts(energy: StepEnergy, busy: float) -> float:
    """Watts of machines that run steps for a share of the time."""
    rest = sum(float(np.ravel(j)[0]) for name, j in energy.parts_j.items() if name in AT_REST)
    work = float(np.ravel(energy.machines_j)[0]) - rest
    return (rest + busy * work) / float(np.ravel(energy.time_s)[0])
