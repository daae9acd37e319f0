"""What serving costs: dollars, energy and carbon of a request and of a million tokens, under the system's prices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from ...cost.money import Money, StepMoney, SystemWork, Terms, step_money, system_money
from ...cost.ownership.energy import StepEnergy
from ...cost.ownership.ownership import Ownership, ownership
from ...cost.ownership.per_token import money_metrics
from ...ir.graph import Workload
from ...ir.records import dataclass
from ...ir.sizes.expr import Num
from ...ir.units import format_usd
from ..estimate import Estimate
from .answer import ServeEstimate, ServeMoney
from .server import Server

# A request takes the place of a step.
_RENAMED = MappingProxyType({"usd_per_step": "usd_per_request"})
# What machines draw whatever they do.
_AT_REST = frozenset(("idle", "hosts", "network", "packages"))
# A share of one chip's peak means nothing over chips of two kinds.
_OF_ONE_CHIP = frozenset(("mfu", "mfu_bf16", "hfu"))


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
    flops: Num


def worth_serving(answer: ServeEstimate, terms: Terms | None = None) -> ServeEstimate:
    """Price the requests of an estimate; UsageError where the system cannot be priced at all.

    The machines draw what a prefill draws for the share of the time that prefills take, and else what a decode step
    draws: a server that waits for requests is taken to be as busy as one that decodes.
    """
    money = system_money(answer.server.system, answer.num_gpus, terms)
    first, step = (_one(_step_money(one, money).energy) for one in (answer.prefill, answer.decode))
    known = answer.metrics
    doing = Doing(
        prefill=first,
        decode=step,
        prefill_s=answer.prefill.metrics["step_time_s"],
        prompts=answer.prefill.plan.micro_batch * answer.server.num_replicas,
        prefill_busy=None if answer.pools is None else known["prefill_busy"],
        # Of all replicas, as if each did what those do that are there.
        requests_per_s=known["requests_per_s"] / answer.share_there,
        output=float(np.asarray(answer.lengths.output)),
        tokens=known["total_tokens_per_s"] / known["tokens_per_s"],
        flops=known["flops_per_request"],
    )
    energy = requests_energy(doing)
    owned = owned_at(money, energy)
    metrics = {name: _number(value) for name, value in requests_money(money, doing, owned, energy).items()}
    if answer.server.autoscaling is not None:
        # Hours in which a replica is not there cost nothing: they are rented, or others use them.
        metrics["average_power_w"] *= answer.share_there
        for name in ("", "_fixed"):
            metrics[f"usd_run{name}"] = metrics["usd_per_gpu_hour"] * known[f"gpu_hours{name}"]
    return replace(answer, money=ServeMoney(money=money, owned=owned, energy=energy, metrics=metrics))


def owned_at(money: Money, energy: StepEnergy) -> Ownership:
    """Return what owning a system takes at the power that is drawn; what is rented costs the same at any."""
    return money.owned if money.terms.rented else ownership(money.cost, money.prices, energy.average_w)


def requests_money(money: Money, doing: Doing, owned: Ownership, energy: StepEnergy) -> Mapping[str, Num]:
    """Return metrics by name; numbers, or arrays as what is done is. `energy` is that of a request."""
    work = SystemWork(Workload.DECODE, energy.time_s, doing.output, doing.flops)
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
    if doing.prefill_busy is not None and name not in _AT_REST:
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


def _step_money(phase: Estimate, money: Money) -> StepMoney:
    table, m = phase.table, phase.metrics
    tokens = m["tokens_per_s"] * m["step_time_s"]
    work = SystemWork(table.lowered.source.workload, m["step_time_s"], tokens, m["model_flops"])
    return step_money(money, work, table.timing, table.plans)


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
        "usd_per_request": usd_per_s / rate,
        "usd_per_mtok_output": 1e6 * usd_per_s / rate / output,
        "usd_per_mtok": 1e6 * usd_per_s / rate / total,
        "average_power_w": watts,
        "j_per_token": watts / rate / output,
    }
    lines = " + ".join(f"{part.named} {format_usd(part.usd_per_s * 3600.0)}/h" for part in (first, then))
    note = f"two kinds of machines: {lines}; {format_usd(costs['usd_per_mtok_output'])} for 1M tokens of answers"
    missing = tuple(f"not in the cost: {line}" for part in (first, then) for line in part.money.unpriced)
    kept = {name: value for name, value in known.items() if name not in _OF_ONE_CHIP}
    return replace(answer, metrics={**kept, **costs}, warnings=(*answer.warnings, note, *dict.fromkeys(missing)))


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
        energy = _one(_step_money(phase, money).energy)
        rest = sum(float(j) for name, j in energy.parts_j.items() if name in _AT_REST)
        watts = (rest + min(busy, 1.0) * (float(energy.machines_j) - rest)) / float(energy.time_s)
        return cls(server, money, watts)
