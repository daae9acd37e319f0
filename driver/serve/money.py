"""What serving costs: dollars, energy and carbon of a request and of a million tokens, under the system's prices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from ...cost.money import Money, StepMoney, Terms, Work, step_money, system_money
from ...cost.ownership.energy import StepEnergy
from ...cost.ownership.ownership import Ownership, ownership
from ...cost.ownership.per_token import money_metrics
from ...ir.graph import Workload
from ...ir.records import dataclass
from ...ir.sizes.expr import Num
from ..estimate import Estimate
from .answer import ServeEstimate, ServeMoney

# A request takes the place of a step.
_RENAMED = MappingProxyType({"usd_per_step": "usd_per_request"})
# What machines draw whatever they do.
AT_REST = frozenset(("idle", "hosts", "network", "packages"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """What requests have machines do; numbers, or arrays over servers and loads.

    Attributes:
        prefill: energy of a step of prompts on all replicas.
        decode: energy of a decode step at the mean context on all of them.
        prefill_s: time of the former.
        prompts: in it, on all replicas.
        prefill_busy: share of the time for which devices of their own run prompts; None where replicas do both.
        requests_per_s: of all.
        output: tokens of an answer.
        tokens: of prompt and answer, over those of the answer.
        flops: of a request.
    """

    prefill: StepEnergy
    decode: StepEnergy
    prefill_s: Num
    prompts: Num
    prefill_busy: Num | None
    requests_per_s: Num
    output: float
    tokens: Num
    flops: float


def worth_serving(answer: ServeEstimate, terms: Terms | None = None) -> ServeEstimate:
    """Price the requests of an estimate; UsageError where the system cannot be priced at all.

    The machines draw what a prefill draws for the share of the time that prefills take, and else what a decode step
    draws: a server that waits for requests is taken to be as busy as one that decodes.
    """
    money = system_money(answer.server.system, answer.num_gpus, terms)
    first, step = (_one(phase_money(one, money).energy) for one in (answer.prefill, answer.decode))
    known = answer.metrics
    doing = Doing(
        prefill=first, decode=step, prefill_s=answer.prefill.metrics["step_time_s"],
        prompts=answer.prefill.plan.micro_batch * answer.server.num_replicas,
        prefill_busy=None if answer.pools is None else known["prefill_busy"],
        requests_per_s=known["requests_per_s"], output=float(np.asarray(answer.lengths.output)),
        tokens=known["total_tokens_per_s"] / known["tokens_per_s"], flops=known["flops_per_request"],
    )  # fmt: skip
    energy = requests_energy(doing)
    owned = owned_at(money, energy)
    metrics = {name: _number(value) for name, value in requests_money(money, doing, owned, energy).items()}
    return replace(answer, money=ServeMoney(money=money, owned=owned, energy=energy, metrics=metrics))


def owned_at(money: Money, energy: StepEnergy) -> Ownership:
    """Return what owning a system takes at the power that is drawn; what is rented costs the same at any."""
    return money.owned if money.terms.rented else ownership(money.cost, money.prices, energy.average_w)


def requests_money(money: Money, doing: Doing, owned: Ownership, energy: StepEnergy) -> Mapping[str, Num]:
    """Return metrics by name; numbers, or arrays as what is done is. `energy` is that of a request."""
    work = Work(Workload.DECODE, energy.time_s, doing.output, doing.flops)
    found = money_metrics(work, owned, energy, money.made, money.prices)
    metrics = {_RENAMED.get(name, name): value for name, value in found.items()}
    return {**metrics, "usd_per_mtok": metrics["usd_per_mtok_output"] / doing.tokens}


def requests_energy(doing: Doing) -> StepEnergy:
    """Return the joules of the time in which one request is answered."""
    first, step = doing.prefill, doing.decode
    time_s = 1.0 / doing.requests_per_s
    names = dict.fromkeys((*first.parts_j, *step.parts_j))
    parts = {name: time_s * _watts(doing, name, time_s) for name in names}
    building = sum(parts.values()) * (first.building_j / first.machines_j)
    return StepEnergy(parts, building, time_s, step.num_gpus, step.num_bought)


def _watts(doing: Doing, name: str, time_s: Num) -> Num:
    """Watts of a part: prefills for their share of the time, else decode steps; of pools, what both do at once."""
    of_first, of_step = _power(doing.prefill, name), _power(doing.decode, name)
    if doing.prefill_busy is not None and name not in AT_REST:
        return doing.prefill_busy * of_first + of_step
    share = np.minimum(doing.prefill_s / doing.prompts / time_s, 1.0)
    return share * of_first + (1.0 - share) * of_step


def _power(energy: StepEnergy, name: str) -> Num:
    part: Num = energy.parts_j.get(name, 0.0)
    return part / energy.time_s


def _one(energy: StepEnergy) -> StepEnergy:
    """The energy of a table of one step, as numbers."""
    parts = {name: _number(part) for name, part in energy.parts_j.items()}
    return replace(energy, parts_j=parts, building_j=_number(energy.building_j), time_s=_number(energy.time_s))


def _number(value: Num) -> float:
    return float(np.ravel(np.asarray(value))[0])


def phase_money(phase: Estimate, money: Money) -> StepMoney:
    """Price one step of a phase on a system that was priced."""
    table, m = phase.table, phase.metrics
    tokens = m["tokens_per_s"] * m["step_time_s"]
    work = Work(table.lowered.source.workload, m["step_time_s"], tokens, m["model_flops"])
    return step_money(money, work, table.timing, table.plans)
