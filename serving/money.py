"""What serving costs: dollars, energy and carbon of a request and of a million tokens, under the system's prices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from ..cost.money import Money, StepMoney, Terms, Work, step_money, system_money
from ..cost.ownership.energy import StepEnergy
from ..cost.ownership.ownership import Ownership, ownership
from ..cost.ownership.per_token import money_metrics
from ..driver import Estimate
from ..ir.expr import Num
from ..ir.graph import Workload
from .answer import ServeEstimate

# A request takes the place of a step.
_RENAMED = MappingProxyType({"usd_per_step": "usd_per_request"})
# What machines draw whatever they do.
_AT_REST = frozenset(("idle", "hosts", "network", "packages"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeMoney:
    """What requests cost on a system.

    Attributes:
        money: of the system, whatever it does.
        owned: the same at the power that serving draws.
        energy: of a request, by what takes it.
        metrics: by name; tokens are those that are written, prompts are in their price.
    """

    money: Money
    owned: Ownership
    energy: StepEnergy
    metrics: Mapping[str, float]


def worth_serving(answer: ServeEstimate, terms: Terms | None = None) -> ServeEstimate:
    """Price the requests of an estimate; UsageError where the system cannot be priced at all.

    The machines draw what a prefill draws for the share of the time that prefills take, and else what a decode step
    draws: a server that waits for requests is taken to be as busy as one that decodes.
    """
    server = answer.server
    money = system_money(server.system, answer.num_gpus, terms)
    energy = _energy(answer, money)
    owned = money.owned if money.terms.rented else ownership(money.cost, money.prices, energy.average_w)
    output = float(np.asarray(answer.lengths.output))
    work = Work(Workload.DECODE, energy.time_s, output, answer.metrics["flops_per_request"])
    found = money_metrics(work, owned, energy, money.made, money.prices)
    metrics = {_RENAMED.get(name, name): float(np.ravel(value)[0]) for name, value in found.items()}
    total = answer.metrics["total_tokens_per_s"] / answer.metrics["tokens_per_s"]
    metrics["usd_per_mtok"] = metrics["usd_per_mtok_output"] / total
    return replace(answer, money=ServeMoney(money=money, owned=owned, energy=energy, metrics=metrics))


def _energy(answer: ServeEstimate, money: Money) -> StepEnergy:
    """Joules of the time in which one request is answered."""
    first, step = (_step_money(one, money).energy for one in (answer.prefill, answer.decode))
    time_s = 1.0 / answer.metrics["requests_per_s"]
    names = dict.fromkeys((*first.parts_j, *step.parts_j))
    parts = {name: time_s * _watts(answer, first, step, name, time_s) for name in names}
    building = sum(parts.values()) * float(np.ravel(np.asarray(first.building_j / first.machines_j))[0])
    return StepEnergy(parts, building, time_s)


def _watts(answer: ServeEstimate, first: StepEnergy, step: StepEnergy, name: str, time_s: float) -> float:
    """Watts of a part: prefills for their share of the time, else decode steps; of pools, what both do at once."""
    of_first, of_step = _power(first, name), _power(step, name)
    if answer.pools is not None and name not in _AT_REST:
        return answer.metrics["prefill_busy"] * of_first + of_step
    rows = answer.prefill.plan.micro_batch * answer.server.num_replicas
    share = min(answer.prefill.metrics["step_time_s"] / rows / time_s, 1.0)
    return share * of_first + (1.0 - share) * of_step


def _power(energy: StepEnergy, name: str) -> float:
    part: Num = energy.parts_j.get(name, 0.0)
    return float(np.ravel(np.asarray(part / energy.time_s))[0])


def _step_money(phase: Estimate, money: Money) -> StepMoney:
    table, m = phase.table, phase.metrics
    tokens = m["tokens_per_s"] * m["step_time_s"]
    work = Work(table.lowered.source.workload, m["step_time_s"], tokens, m["model_flops"])
    return step_money(money, work, table.timing, table.plans)
