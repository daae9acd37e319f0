"""Fleets of several systems compared for a rate of requests, as a table and as JSON: order and break-evens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from ...driver.metrics import format_metric
from ...driver.uncertainty.answers import band_of_fleet, evidence_of_server
from ...ir import __version__
from ...ir.records import dataclass
from ...ir.text.json_text import json_text
from ...ir.units import format_si, format_time, format_usd
from ..columns import in_columns
from ..cost.books import order_notes, orders_record
from ..explain.intervals import intervals_record
from ..json_report import assumed_record
from ..labels import stack_label
from ..pictures.picture import Bar, Bars
from ..ranking import CandidateRanking, RankedCandidate, evidence_word, rank
from ..results.documents import DocumentResult
from .sizing import confirmed_record, confirmed_text

if TYPE_CHECKING:
    from ...cost.serving.slo import SLO
    from ...cost.serving.traffic.day import Day
    from ...driver.serve.answer import ServeEstimate
    from ...driver.serve.sizes.sizing import SizedPlan

SCHEMA = "slipstick/fleets/1"
# What fleets are ordered by, under the name of the flag's value.
AIMS: Mapping[str, str] = {
    "cost": "usd_per_hour",
    "gpus": "num_gpus",
    "energy": "power_w",
    "carbon": "kg_co2e_per_mtok",
}
_HEADING = (
    "",
    "system",
    "GPUs",
    "plan",
    "{ttft}",
    "{tpot}",
    "room",
    "$/hour",
    "90 %",
    "rented",
    "1M tokens out",
    "power",
    "CO2e/1M",
    "evidence",
)
_S_PER_HOUR = 3600.0
# What follows from the number of GPUs, whose band these have.
_OF_FLEETS = ("num_gpus", "usd_per_hour", "usd_per_mtok_output", "power_w", "kg_co2e_per_mtok")
# Bars that a picture has room for.
_MOST_BARS = 12
# GPUs that stand idle over those that work, from which on it is said.
_MANY_IDLE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class OverDay:
    """A fleet over a day, all of it running.

    Attributes:
        usd_per_mtok_output: dollars of a day over the million tokens that it writes.
        busy: tokens of the day over those at its peak.
    """

    usd_per_mtok_output: float
    busy: float


def over_day(day: Day, at: Callable[[float], ServeEstimate]) -> OverDay | None:
    """Add up what a fleet costs hour by hour at the power of each load; None where it has no price."""
    usd = mtok = 0.0
    for rate, share in day.parts():
        answer = at(rate)
        if "usd_per_request" not in known_of(answer):
            return None
        usd += share * usd_per_hour(answer)
        mtok += share * answer.metrics["tokens_per_s"] * _S_PER_HOUR / 1e6
    return OverDay(usd_per_mtok_output=usd / mtok, busy=day.mean_per_s / day.peak_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetChoice:
    """The best plan of a system for a rate of requests.

    Attributes:
        system: its name.
        choice: the plan, and how much it could answer.
        answer: its latencies at the rate, with its money where the system can be priced.
        rented_usd_per_hour: what it costs rented; None where nobody rents it out.
        over_day: dollars and joules of the tokens of a day whose peak the fleet is made for; None for one rate.
    """

    system: str
    choice: SizedPlan
    answer: ServeEstimate
    rented_usd_per_hour: float | None = None
    over_day: OverDay | None = None

    @property
    def metrics(self) -> Mapping[str, float]:
        """What fleets are compared by, so far as it is known: dollars an hour are those of the terms asked for."""
        m, found = known_of(self.answer), {"num_gpus": float(self.choice.num_gpus)}
        if "usd_per_request" in m:
            found["usd_per_hour"] = usd_per_hour(self.answer)
        if "average_power_w" in m:
            found["power_w"] = m["average_power_w"] * m["j_per_token_facility"] / m["j_per_token"]
        if self.over_day is not None:
            found |= {"usd_per_mtok_output_day": self.over_day.usd_per_mtok_output, "busy_day": self.over_day.busy}
        names = ("ttft_s", "tpot_s", "usd_per_mtok_output", "usd_per_gpu_hour", "kg_co2e_per_mtok", "usd_capex")
        return found | {name: m[name] for name in names if name in m}

    def candidate(self, aim: str) -> RankedCandidate[FleetChoice]:
        """Return the fleet as it is ranked by a metric: with the band of throughput, from which GPUs follow."""
        m = self.metrics
        money = None if self.answer.money is None else self.answer.money.money
        return RankedCandidate(
            item=self,
            name=self.system,
            value=m.get(aim, inf),
            band=band_of_fleet(self.answer),
            evidence=evidence_of_server(self.answer),
            num_gpus=self.choice.num_gpus,
            usd=m.get("usd_per_hour"),
            gpu_hours=float(self.choice.num_gpus),
            usd_per_gpu_hour=m.get("usd_per_gpu_hour"),
            unpriced="" if money is None else ", ".join(money.without),
            outdated=() if money is None else money.outdated,
            is_rented_out=self.rented_usd_per_hour is not None,
        )


def known_of(answer: ServeEstimate) -> Mapping[str, float]:
    """Return all metrics of a server, those of its money with them where it was priced."""
    return {**answer.metrics, **({} if answer.money is None else answer.money.metrics)}


def usd_per_hour(answer: ServeEstimate) -> float:
    """Return what all requests of an hour cost; the server was priced."""
    metrics = known_of(answer)
    return metrics["usd_per_request"] * metrics["requests_per_s"] * _S_PER_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetComparison:
    """Fleets of several systems for each of some rates.

    Attributes:
        model: as people name it.
        days: requests per second, in the order asked; where a rate is not always the same the fleet is for its peak.
        asked: lengths and latencies, as people read them.
        target: the latencies.
        fleets: for each rate the best of each system, in the order of `ranked`.
        left_out: for each rate the systems without a fleet, each with why.
        aim: the metric by which they are ordered.
        by_evidence: whether systems whose chip nobody measured stand behind the others.
        book: the prices that are asked for.
        others: `fleets` under other books of prices, by name.
    """

    model: str
    days: Sequence[Day]
    asked: str
    target: SLO
    fleets: Sequence[Sequence[FleetChoice]]
    left_out: Sequence[Mapping[str, str]]
    aim: str
    by_evidence: bool = True
    book: str = ""
    others: Mapping[str, Sequence[Sequence[FleetChoice]]] = field(default_factory=dict)

    def orders(self, place: int) -> dict[str, list[str]]:
        """Return the systems of a rate in the order of each book of prices; nothing where there is one book."""
        books = {self.book: self.fleets, **self.others} if self.others else {}
        rankings = {book: ranked(fleets[place], self.aim, self.by_evidence) for book, fleets in books.items()}
        return {book: [one.name for one in ranking.candidates] for book, ranking in rankings.items()}

    def ranking(self, place: int) -> CandidateRanking[FleetChoice]:
        """Return the fleets of a rate, the best first."""
        return ranked(self.fleets[place], self.aim, self.by_evidence)


def ranked(fleets: Sequence[FleetChoice], aim: str, by_evidence: bool = True) -> CandidateRanking[FleetChoice]:
    """Return fleets by a metric: GPUs and what follows from them have the bands of throughput."""
    return rank([one.candidate(aim) for one in fleets], by_evidence)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class FleetResult(DocumentResult):
    """What `slipstick size` answers for several systems: a row for the fleet of each system and rate."""

    found: FleetComparison


def fleet_result(found: FleetComparison) -> FleetResult:
    """Return a comparison as a result."""
    return FleetResult(
        title=f"fleets for {found.model}",
        document=lambda: fleets_json(found),
        screen=lambda width: fleets_text(found, width),
        seen=lambda: [*fleets_pictures(found)],
        found=found,
    )


def fleets_pictures(found: FleetComparison) -> Iterator[Bars]:
    """Yield for each rate what a fleet of each system costs an hour, or how many GPUs it has where one has no price."""
    for day, every in zip(found.days, found.fleets, strict=True):
        fleets = every[:_MOST_BARS]
        if len(fleets) < 2:
            continue
        priced = all("usd_per_hour" in one.metrics for one in fleets)
        values = [one.metrics["usd_per_hour" if priced else "num_gpus"] for one in fleets]
        told = [format_usd(value) if priced else f"{value:,.0f}" for value in values]
        bars = [Bar(one.system, value, text) for one, value, text in zip(fleets, values, told, strict=True)]
        of = f", the first {len(fleets)} of {len(every)}" if len(fleets) < len(every) else ""
        yield Bars(f"{'$ an hour' if priced else 'GPUs'}, {day.name}{of}", bars)


def fleets_text(found: FleetComparison, width: int | None = None) -> str:
    """Return a table for each rate, what would change the order, and where another system wins."""
    blocks = [_of_rate(found, place, width) for place in range(len(found.days))]
    return "\n".join([*blocks, *_winners(found)])


def _of_rate(found: FleetComparison, place: int, width: int | None) -> str:
    fleets, ranking = found.fleets[place], found.ranking(place)
    head = f"{found.model}: {found.days[place].name}, {found.asked}, {engines_of(fleets)}"
    ttft, tpot = found.target.labels
    heading = [word.format(ttft=ttft, tpot=tpot) for word in _HEADING]
    rows = (_row(ranking.mark(k), one, found.target) for k, one in enumerate(ranking.candidates))
    table = in_columns([heading, *rows], width)
    simulated = [
        f"{one.system}, {confirmed_text(one.choice.confirmed, found.target)}"
        for one in fleets
        if one.choice.confirmed is not None
    ]
    more = [
        *_over_day(fleets),
        *ranking.notes(),
        *simulated,
        *idle_notes(fleets),
        *ranking.money_notes(),
        *order_notes(found.orders(place)),
        *(f"{one.system}: {line}" for one in fleets for line in one.answer.warnings),
    ]
    more += [f"{name} is left out: {why}" for name, why in found.left_out[place].items()]
    return "\n".join([head, "", table, *([""] if more else []), *more, ""])


def engines_of(fleets: Sequence[FleetChoice]) -> str:
    """Name the engines that serve, each once."""
    servers = (one.answer.server for one in fleets)
    return " or ".join(dict.fromkeys(stack_label(one.engine.name, one.system.assumed) for one in servers))


def _row(mark: str, candidate: RankedCandidate[FleetChoice], target: SLO) -> list[str]:
    one, m = candidate.item, candidate.item.metrics
    ttft_s, tpot_s = one.choice.at_limits(one.answer, target)
    room = one.choice.most_per_s / one.answer.metrics["requests_per_s"] - 1.0
    return [
        mark,
        one.system,
        f"{one.choice.num_gpus:,}",
        one.choice.name,
        format_time(ttft_s),
        "-" if np.isnan(tpot_s) else format_time(tpot_s),
        f"{room:.0%}",
        format_usd(m["usd_per_hour"]) if "usd_per_hour" in m else "-",
        candidate.interval(format_usd) if "usd_per_hour" in m else "-",
        "-" if one.rented_usd_per_hour is None else format_usd(one.rented_usd_per_hour),
        format_metric("usd_per_mtok_output", m["usd_per_mtok_output"]) if "usd_per_mtok_output" in m else "-",
        format_si(m["power_w"], "W") if "power_w" in m else "-",
        format_metric("kg_co2e_per_mtok", m["kg_co2e_per_mtok"]) if "kg_co2e_per_mtok" in m else "-",
        evidence_word(candidate.evidence),
    ]


def idle_notes(fleets: Sequence[FleetChoice]) -> Iterator[str]:
    """Yield GPUs that are paid for and stand idle."""
    for one in fleets:
        if one.answer.money is None:
            continue
        money = one.answer.money.money
        idle = round(float(money.cost.gpus_bought)) - one.choice.num_gpus
        if not money.terms.rented and idle >= _MANY_IDLE * one.choice.num_gpus:
            yield f"{one.system}: {idle:,} GPUs more are paid for and stand idle: servers, or racks, are bought whole"


def _winners(found: FleetComparison) -> Iterator[str]:
    """Yield which system is first at which rates, where several were asked for: neighbours with one winner together."""
    pairs = sorted(zip((day.peak_per_s for day in found.days), found.fleets, strict=True), key=lambda pair: pair[0])
    won = [(rate, fleets[0]) for rate, fleets in pairs if fleets] if len(pairs) > 1 else []
    for system, group in groupby(won, key=lambda pair: pair[1].system):
        region = list(group)
        rates = " to ".join(dict.fromkeys(f"{rate:g}" for rate, _ in (region[0], region[-1])))
        fleets = [one for _, one in (region[0], region[-1])]
        gpus = " to ".join(dict.fromkeys(f"{one.choice.num_gpus:,}" for one in fleets))
        usd = [format_usd(one.metrics["usd_per_hour"]) for one in fleets if "usd_per_hour" in one.metrics]
        cost = f", {' to '.join(dict.fromkeys(usd))}/hour" if usd else ""
        yield f"{rates} requests/s: {system}, {gpus} GPUs{cost}"


def _over_day(fleets: Sequence[FleetChoice]) -> Iterator[str]:
    """Yield what tokens cost over a day, and how much of the fleet its load takes on average."""
    for one in fleets:
        if one.over_day is not None:
            usd = format_metric("usd_per_mtok_output", one.over_day.usd_per_mtok_output)
            yield f"{one.system}: {usd} for 1M tokens out over the day, on average {one.over_day.busy:.0%} of its peak"


def fleets_json(found: FleetComparison) -> str:
    """Return all fleets with their metrics, the best of each rate first."""
    document: dict[str, object] = {
        "schema": SCHEMA,
        "tool_version": __version__,
        "model": found.model,
        "objective": found.aim,
        "fleets": [
            {
                "rate_per_s": day.peak_per_s,
                "mean_rate_per_s": day.mean_per_s,
                "place": place + 1,
                "ties_with_first": place in ranking.ties,
                "system": one.system,
                "engine": one.answer.server.engine.name,
                **assumed_record(one.answer.server.system),
                "num_gpus": one.choice.num_gpus,
                "plan": one.choice.name,
                "most_requests_per_s": one.choice.most_per_s,
                "rented_usd_per_hour": one.rented_usd_per_hour,
                "simulated": confirmed_record(one.choice.confirmed),
                "break_even_usd_per_gpu_hour": ranking.break_even(place),
                "metrics": dict(one.metrics),
                "intervals": intervals_record(
                    one.metrics, dict.fromkeys(_OF_FLEETS, candidate.band), candidate.evidence
                ),
                "standing": None if one.answer.money is None else one.answer.money.money.standing,
                "told": [*idle_notes([one]), *CandidateRanking([candidate], frozenset()).money_notes()],
                "warnings": list(one.answer.warnings),
            }
            for at, day in enumerate(found.days)
            for ranking in [found.ranking(at)]
            for place, candidate in enumerate(ranking.candidates)
            for one in [candidate.item]
        ],
        "left_out": [
            {"rate_per_s": day.peak_per_s, "system": name, "why": why}
            for day, missing in zip(found.days, found.left_out, strict=True)
            for name, why in missing.items()
        ],
    }
    if found.others:
        document["orders"] = [
            {"rate_per_s": day.peak_per_s, **orders_record(found.orders(at))} for at, day in enumerate(found.days)
        ]
    return json_text(document, indent=1)
