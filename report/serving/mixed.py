"""Several models on one fleet: of each system the GPUs of every model, in servers that they share, as text and JSON.

Each model has GPUs of its own, for its weights fill them; models share servers, racks and network. What is shared is
bought for all GPUs together, so that GPUs which one model leaves idle in a server are another's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

import numpy as np

from ...cost.money import system_money
from ...cost.ownership.ownership import ownership
from ...ir import __version__
from ...ir.errors import UsageError
from ...ir.records import dataclass
from ...ir.text.json_text import json_text
from ...ir.units import format_si, format_time, format_usd
from ..columns import in_columns
from ..cost.books import order_notes, orders_record
from ..explain.intervals import intervals_record
from ..ranking import CandidateRanking, RankedCandidate, evidence_word, rank
from ..results.documents import DocumentResult
from .fleets import ranked
from .sizing import confirmed_text

if TYPE_CHECKING:
    from .fleets import FleetChoice, FleetComparison

SCHEMA = "slipstick/mixed-fleets/1"
# Dollars an hour are added up over models, and so is power; other aims of a fleet are of one model's tokens.
AIMS: Mapping[str, str] = {"cost": "usd_per_hour", "energy": "power_w"}
_AT_REST = ("idle", "hosts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What models on one system cost where they share servers.

    Attributes:
        num_servers: for all GPUs together.
        saved: servers less than with a set for each model.
        usd_per_hour: of all of it, at the power that is drawn.
        power_w: at the wall, the building included.
    """

    num_servers: int
    saved: int
    usd_per_hour: float
    power_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedFleet:
    """The fleets of all models on one system, in the order of the models; `shared` is None where it has no price."""

    system: str
    fleets: Sequence[FleetChoice]
    shared: Shared | None

    @property
    def num_gpus(self) -> int:
        """GPUs of all models."""
        return sum(one.choice.num_gpus for one in self.fleets)

    @property
    def metrics(self) -> Mapping[str, float]:
        """What such fleets are compared by, so far as it is known."""
        rents = [one.rented_usd_per_hour for one in self.fleets]
        found = {"num_gpus": float(self.num_gpus)}
        found |= {"rented_usd_per_hour": sum(usd for usd in rents if usd is not None)} if None not in rents else {}
        if self.shared is not None:
            found |= {"usd_per_hour": self.shared.usd_per_hour, "power_w": self.shared.power_w}
        return found

    def candidate(self, aim: str) -> RankedCandidate[MixedFleet]:
        """Return the fleet as it is ranked by a metric: with the band of the model that takes most of its GPUs."""
        largest = max(self.fleets, key=lambda fleet: fleet.choice.num_gpus).candidate(aim)
        return RankedCandidate(
            item=self,
            name=self.system,
            value=self.metrics.get(aim, np.inf),
            band=largest.band,
            evidence=largest.evidence,
            num_gpus=self.num_gpus,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMix:
    """Models of one rate each, compared over systems.

    Attributes:
        models: of each model its fleets on all systems.
        ranking: the fleet of each system that serves all models, the best first.
        left_out: systems that do not, each with the first model that it has no fleet for.
        aim: the metric by which they are ordered.
        orders: systems in the order of each book of prices, the best first; nothing where there is one book.
    """

    models: Sequence[FleetComparison]
    ranking: CandidateRanking[MixedFleet]
    left_out: Mapping[str, str]
    aim: str
    orders: Mapping[str, Sequence[str]] = field(default_factory=dict)


def mixed(models: Sequence[FleetComparison], aim: str, by_evidence: bool = True) -> ModelMix:
    """Put the fleets of several models together, system by system."""
    by_system: dict[str, list[FleetChoice]] = {}
    left_out: dict[str, str] = {}
    for found in models:
        for fleet in found.fleets[0]:
            by_system.setdefault(fleet.system, []).append(fleet)
        left_out |= {name: f"{found.model}: {why}" for name, why in found.left_out[0].items() if name not in left_out}
    whole = [
        MixedFleet(system=name, fleets=fleets, shared=shared_by(fleets))
        for name, fleets in by_system.items()
        if len(fleets) == len(models)
    ]
    ranking = rank([one.candidate(aim) for one in whole], by_evidence)
    orders = {models[0].book: [one.name for one in ranking.candidates]} if models[0].others else {}
    for book in models[0].others:
        other = mixed([replace(one, fleets=one.others[book], others={}) for one in models], aim, by_evidence)
        orders[book] = [one.name for one in other.ranking.candidates]
    return ModelMix(models=models, ranking=ranking, left_out=left_out, aim=aim, orders=orders)


def shared_by(fleets: Sequence[FleetChoice]) -> Shared | None:
    """Price all GPUs of some fleets on one system in servers that they share; None where it has no price.

    Power is that of the fleets, less what servers draw at rest that are then not there.
    """
    known = [one.answer.money for one in fleets if one.answer.money is not None]
    if len(known) < len(fleets):
        return None
    first = known[0].money
    try:
        money = system_money(first.system, sum(one.choice.num_gpus for one in fleets), first.terms)
    except UsageError:
        return None
    apart, together = sum(float(one.money.cost.num_servers) for one in known), float(money.cost.num_servers)
    at_rest_j = sum(float(known[0].energy.parts_j.get(part, 0.0)) for part in _AT_REST)
    at_rest_w = at_rest_j / float(known[0].energy.time_s) / float(first.cost.num_servers)
    machines_w = sum(float(one.energy.average_w) for one in known) - (apart - together) * at_rest_w
    owned = money.owned if money.terms.rented else ownership(money.cost, money.prices, machines_w)
    building = float(known[0].energy.total_j) / float(known[0].energy.machines_j)
    return Shared(
        num_servers=round(together),
        saved=round(apart - together),
        usd_per_hour=float(np.ravel(owned.year.usd)[0]) / owned.hours,
        power_w=machines_w * building,
    )


def mixed_result(found: ModelMix) -> DocumentResult:
    """Return models on one fleet as a result."""
    return DocumentResult(
        title=f"fleets for {', '.join(one.model for one in found.models)}",
        document=lambda: mixed_json(found),
        screen=lambda width: mixed_text(found, width),
    )


def mixed_text(found: ModelMix, width: int | None = None) -> str:
    """Return a row for each system with the GPUs of every model, then what each model gets, and other ways to buy."""
    heads = [f"{one.model}: {one.days[0].name}, {one.asked}" for one in found.models]
    plans = (one.model for one in found.models)
    columns = ["", "system", *plans, "GPUs", "servers", "$/hour", "90 %", "rented", "power", "evidence"]
    candidates = found.ranking.candidates
    rows = [_row(found.ranking.mark(k), one) for k, one in enumerate(candidates)]
    lines = [
        *found.ranking.notes(),
        *(line for one in candidates for line in _told(one.item, found)),
        *own_best(found),
        *order_notes(found.orders),
        *(f"{name} is left out: {why}" for name, why in found.left_out.items()),
        "models share servers, racks and network, and no GPU",
    ]
    return "\n".join([*heads, "", in_columns([columns, *rows], width), "", *lines, ""])


def _row(mark: str, candidate: RankedCandidate[MixedFleet]) -> list[str]:
    one = candidate.item
    m, shared = one.metrics, one.shared
    return [
        mark,
        one.system,
        *(f"{fleet.choice.num_gpus:,}: {fleet.choice.name}" for fleet in one.fleets),
        f"{one.num_gpus:,}",
        "-" if shared is None else f"{shared.num_servers:,}",
        format_usd(m["usd_per_hour"]) if "usd_per_hour" in m else "-",
        replace(candidate, value=m.get("usd_per_hour", np.inf)).interval(format_usd),
        format_usd(m["rented_usd_per_hour"]) if "rented_usd_per_hour" in m else "-",
        format_si(m["power_w"], "W") if "power_w" in m else "-",
        evidence_word(candidate.evidence),
    ]


def _told(one: MixedFleet, found: ModelMix) -> Iterator[str]:
    """Yield what sharing saves on a system, then of each model its latencies at the limits and its share."""
    if one.shared is not None and one.shared.saved:
        apart = sum(fleet.metrics.get("usd_per_hour", 0.0) for fleet in one.fleets)
        less = f"{one.shared.saved:,} server{'' if one.shared.saved == 1 else 's'} fewer than a set for each model"
        yield f"{one.system}: {less}, which would cost {format_usd(apart)}/hour"
    for fleet, model in zip(one.fleets, found.models, strict=True):
        ttft_s, tpot_s = fleet.choice.at_limits(fleet.answer, model.target)
        first, gap = model.target.labels
        room = fleet.choice.most_per_s / fleet.answer.metrics["requests_per_s"] - 1.0
        times = f"{first} {format_time(ttft_s)}, {gap} {format_time(tpot_s)}, room {room:.0%}"
        yield f"{one.system}, {model.model}: {times}"
        if fleet.choice.confirmed is not None:
            yield f"{one.system}, {model.model}, {confirmed_text(fleet.choice.confirmed, model.target)}"
        yield from (f"{one.system}, {model.model}: {line}" for line in fleet.answer.warnings)
    yield from dict.fromkeys(ranked(one.fleets, found.aim).money_notes())


def own_best(found: ModelMix) -> Iterator[str]:
    """Yield what it costs to give each model the system that is best for it alone, where these differ."""
    if any(not one.fleets[0] for one in found.models):
        return
    best = [one.fleets[0][0] for one in found.models]
    if len({one.system for one in best}) == 1 or any("usd_per_hour" not in one.metrics for one in best):
        return
    each = ", ".join(
        f"{model.model} on {one.system} ({one.choice.num_gpus:,} GPUs, {format_usd(one.metrics['usd_per_hour'])}/hour)"
        for model, one in zip(found.models, best, strict=True)
    )
    yield f"each model on what is best for it: {each}: {format_usd(sum(b.metrics['usd_per_hour'] for b in best))}/hour"


def mixed_json(found: ModelMix) -> str:
    """Return all fleets with the plan of every model, the best first."""
    document = {
        "schema": SCHEMA,
        "tool_version": __version__,
        "models": [
            {"model": one.model, "rate_per_s": one.days[0].peak_per_s, "asked": one.asked} for one in found.models
        ],
        "objective": found.aim,
        "fleets": [
            {
                "place": k + 1,
                "ties_with_first": k in found.ranking.ties,
                "system": one.system,
                "num_servers": None if one.shared is None else one.shared.num_servers,
                "servers_saved": None if one.shared is None else one.shared.saved,
                "metrics": dict(one.metrics),
                "intervals": intervals_record(
                    one.metrics, dict.fromkeys(("usd_per_hour", "power_w"), candidate.band), candidate.evidence
                ),
                "models": [
                    {
                        "model": model.model,
                        "num_gpus": fleet.choice.num_gpus,
                        "plan": fleet.choice.name,
                        "most_requests_per_s": fleet.choice.most_per_s,
                        "metrics": dict(fleet.metrics),
                        "warnings": list(fleet.answer.warnings),
                    }
                    for fleet, model in zip(one.fleets, found.models, strict=True)
                ],
            }
            for k, candidate in enumerate(found.ranking.candidates)
            for one in [candidate.item]
        ],
        "left_out": [{"system": name, "why": why} for name, why in found.left_out.items()],
        **orders_record(found.orders),
    }
    return json_text(document, indent=1)
