"""Clusters compared for a training run, as a table and as JSON: the best of each system, ties, break-evens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import ceil, inf, isfinite, nan
from string import ascii_letters

from ..driver.metrics import format_metric
from ..driver.uncertainty.answers import band_of_step, evidence_of_step, step_bands
from ..driver.uncertainty.evidence import SoftwareEvidence
from ..explore.clusters import Cluster, Requirements, best_of
from ..explore.searching import CandidateTally
from ..ir import __version__
from ..ir.records import dataclass
from ..ir.text.json_text import json_text
from ..ir.units import format_si, format_time, format_usd
from .columns import in_columns
from .cost.books import order_notes, orders_record
from .explain.intervals import intervals_record
from .pictures.picture import Axis, Scatter, Series
from .ranking import CandidateRanking, RankedCandidate, evidence_word, rank
from .results.documents import DocumentResult
from .search.plans import plan_label, software_of_machines

SCHEMA = "slipstick/choose/1"
_S_PER_HOUR = 3600.0
# What a bound is on, and how its metric is written.
_BOUNDS = (
    ("train_time_s", "deadline_s", "deadline", format_time),
    ("usd_run", "budget_usd", "budget", format_usd),
    ("facility_power_w", "power_w", "power", lambda value: format_si(value, "W")),
)
_SHOWN = (
    "step_time_s",
    "mfu",
    "train_time_s",
    "train_goodput",
    "gpu_hours",
    "usd_per_gpu_hour",
    "usd_run",
    "usd_run_owned",
    "usd_run_rented",
    "usd_capex",
    "facility_power_w",
    "kwh",
    "tco2e",
    "peak_mem_bytes",
)
_HEADING = ("", "system", "GPUs", "plan", "step", "MFU", "time", "90 %", "cost", "rented", "power", "CO2e", "evidence")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterComparison:
    """What `slipstick choose` found.

    Attributes:
        model: as people name it.
        wanted: what the run has to keep.
        aim: the metric by which clusters that keep it are ordered.
        clusters: of each system and number of GPUs the best plan.
        tally: where all plans went.
        left_out: systems without a cluster, each with why.
        by_evidence: whether systems whose chip nobody measured stand behind the others.
        others: the same clusters under other books of prices, by name.
    """

    model: str
    wanted: Requirements
    aim: str
    clusters: Sequence[Cluster]
    tally: CandidateTally
    left_out: Mapping[str, str]
    by_evidence: bool = True
    others: Mapping[str, Sequence[Cluster]] = field(default_factory=dict)

    @property
    def orders(self) -> dict[str, list[str]]:
        """Systems in the order of each book of prices, the best first; nothing where there is one book."""
        if not self.others:
            return {}
        books = {str(self.clusters[0].machine.prices): self.clusters, **self.others}
        rankings = {book: replace(self, clusters=clusters).ranking for book, clusters in books.items()}
        return {book: [one.name for one in ranking.candidates] for book, ranking in rankings.items()}

    @property
    def ranking(self) -> CandidateRanking[Cluster]:
        """The best cluster of each system, the best first."""
        return rank([_candidate(one, self.aim) for one in best_of(self.clusters, self.aim)], self.by_evidence)


def _candidate(one: Cluster, aim: str) -> RankedCandidate[Cluster]:
    """Return a cluster as it is ranked: dollars, joules and carbon follow the time of a step, whose band is theirs."""
    m = one.metrics
    return RankedCandidate(
        item=one,
        name=str(one.machine),
        value=m.get(aim, inf),
        band=band_of_step(one.answer.table),
        evidence=evidence_of_step(one.answer.table),
        num_gpus=one.num_gpus,
        broken=max(one.broken.values(), default=0.0),
        usd=m.get("usd_run"),
        gpu_hours=m["gpu_hours"],
        usd_per_gpu_hour=m.get("usd_per_gpu_hour"),
        unpriced=one.unpriced,
        outdated=one.outdated,
        is_rented_out=not one.rent,
    )


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ClusterResult(DocumentResult):
    """What `slipstick choose` answers: a row for the best cluster of each system."""

    found: ClusterComparison


def cluster_result(found: ClusterComparison, every: bool) -> ClusterResult:
    """Return a comparison as a result; `every` shows all numbers of GPUs."""
    return ClusterResult(
        title=f"clusters for {found.model}",
        document=lambda: comparison_json(found, __version__),
        screen=lambda width: comparison_text(found, every, width),
        seen=lambda: [clusters_picture(found)],
        found=found,
    )


def comparison_text(found: ClusterComparison, every: bool = False, width: int | None = None) -> str:
    """Return the best cluster of each system as a table, with what would change their order.

    Args:
        found: what was compared.
        every: whether all numbers of GPUs are shown, not only the best of each system.
        width: columns of the screen; None for no limit.
    """
    ranking = found.ranking
    marks = {id(one.item): ranking.mark(place) for place, one in enumerate(ranking.candidates)}
    rows = [one.item for one in ranking.candidates]
    if every:
        order = {one.name: place for place, one in enumerate(ranking.candidates)}
        rows = sorted(found.clusters, key=lambda one: (order[str(one.machine)], one.num_gpus))
    table = in_columns([_HEADING, *(_row(_candidate(one, found.aim), marks.get(id(one), "")) for one in rows)], width)
    more = [
        *_broken(rows, found.wanted),
        *ranking.notes(),
        *_near_deadline(found, ranking),
        *ranking.money_notes(),
        *order_notes(found.orders),
        *(f"{name} is left out: {why}" for name, why in found.left_out.items()),
    ]
    return "\n".join([*_asked(found), "", table, *([""] if more else []), *more])


def clusters_picture(found: ClusterComparison) -> Scatter:
    """Return what the run costs over how long it takes, a letter for each system, a point for each number of GPUs."""
    systems = list(dict.fromkeys(str(one.machine) for one in found.clusters))
    name = "usd_run" if any("usd_run" in one.metrics for one in found.clusters) else "gpu_hours"
    series = list[Series]()
    for system, mark in zip(systems, ascii_letters, strict=False):
        own = sorted((one for one in found.clusters if str(one.machine) == system), key=lambda one: one.num_gpus)
        points = [(one.metrics["train_time_s"], one.metrics.get(name, nan)) for one in own]
        counts = f"{own[0].num_gpus:,}" if len(own) == 1 else f"{own[0].num_gpus:,} to {own[-1].num_gpus:,}"
        series.append(Series(f"{system}, {counts} GPUs", points, mark))
    return Scatter("What it costs by how long it takes", Axis.of("train_time_s"), Axis.of(name), series)


def comparison_json(found: ClusterComparison, tool_version: str) -> str:
    """Return all clusters with their plans and metrics, best systems first, and the break-evens."""
    ranking = found.ranking
    wanted = found.wanted
    document = {
        "schema": SCHEMA,
        "tool_version": tool_version,
        "model": found.model,
        "objective": found.aim,
        "asked": {
            "amount": wanted.run.amount,
            "unit": wanted.run.unit,
            "deadline_s": wanted.deadline_s,
            "budget_usd": wanted.budget_usd,
            "power_w": wanted.power_w,
            "rented": wanted.terms.rented,
            "basis": wanted.terms.basis,
        },
        "num_candidates": found.tally.num_candidates,
        "num_kept": found.tally.num_kept,
        "best": [
            {
                **_record(one.item),
                "break_even_usd_per_gpu_hour": ranking.break_even(place),
                "ties_with_first": place in ranking.ties,
            }
            for place, one in enumerate(ranking.candidates)
        ],
        "clusters": [_record(one) for one in found.clusters],
        "left_out": dict(found.left_out),
        **orders_record(found.orders),
    }
    return json_text(document, indent=1)


def _record(one: Cluster) -> dict[str, object]:
    return {
        "system": str(one.machine),
        "stack": one.machine.stack,
        "assumed": list(one.machine.assumed),
        "num_gpus": one.num_gpus,
        "plan": plan_label(one.answer.plan),
        "keeps_all": not one.broken,
        # What is not known breaks a bound by no number.
        "broken": {name: share if isfinite(share) else None for name, share in one.broken.items()},
        "metrics": {name: one.metrics[name] for name in _SHOWN if name in one.metrics},
        "intervals": intervals_record(one.metrics, step_bands(one.answer), evidence_of_step(one.answer.table)),
        "unpriced": one.unpriced or None,
        "outdated": list(one.outdated),
    }


def _asked(found: ClusterComparison) -> Iterator[str]:
    """Yield what was asked, and how much was searched."""
    wanted, systems = found.wanted, {str(one.machine) for one in found.clusters}
    amount = wanted.run.amount or 0.0
    length = f"{format_si(amount, '').replace(' ', '') if amount >= 1e6 else f'{amount:,.0f}'} {wanted.run.unit}"
    bounds = [f"{word} {form(most)}" for _, name, word, form in _BOUNDS if (most := getattr(wanted, name)) is not None]
    terms = "rented" if wanted.terms.rented else f"owned at {wanted.terms.basis} prices"
    software = software_of_machines([one.machine for one in found.clusters])
    yield f"{found.model}: {length}, {', '.join([*bounds, terms])}, {software}"
    counts = sorted({one.num_gpus for one in found.clusters})
    numbers, tally = ", ".join(f"{n:,}" for n in counts), found.tally
    of = "1 system" if len(systems) == 1 else f"{len(systems)} systems"
    yield f"{of} of {numbers} GPUs; {tally.num_kept:,} plans that fit, of {tally.num_candidates:,}"


def _row(one: RankedCandidate[Cluster], mark: str) -> list[str]:
    cluster, m = one.item, one.item.metrics

    def shown(name: str) -> str:
        return format_metric(name, m[name]) if name in m else "-"

    return [
        mark,
        one.name,
        f"{one.num_gpus:,}",
        plan_label(cluster.answer.plan),
        shown("step_time_s"),
        shown("mfu"),
        format_time(m["train_time_s"]),
        replace(one, value=m["train_time_s"]).interval(format_time),
        _dollars(m, "usd_run_owned"),
        _dollars(m, "usd_run_rented"),
        format_si(m["facility_power_w"], "W") if "facility_power_w" in m else "-",
        shown("tco2e"),
        evidence_word(one.evidence),
    ]


def _dollars(metrics: Mapping[str, float], name: str) -> str:
    return format_usd(metrics[name]) if name in metrics else "-"


def _broken(rows: Sequence[Cluster], wanted: Requirements) -> Iterator[str]:
    """Yield what each cluster breaks, and by how much; of a deadline, how many GPUs would keep it at this rate."""
    for one in rows:
        for name, _, word, form in _BOUNDS:
            if name in one.broken:
                told = (
                    f"{form(one.metrics[name])}, {one.broken[name]:.2f} times what is asked"
                    if name in one.metrics
                    else "not known"
                )
                if name == "train_time_s":
                    needed = one.metrics["gpu_hours"] * _S_PER_HOUR / (wanted.deadline_s or 1.0)
                    told += f"; {ceil(needed):,} GPUs would keep it if each were as fast"
                yield f"{one.machine} with {one.num_gpus:,} GPUs breaks its {word}: {told}"


def _near_deadline(found: ClusterComparison, ranking: CandidateRanking[Cluster]) -> Iterator[str]:
    """Yield whether the band of a run holds its deadline, and what would make bands narrower."""
    deadline_s = found.wanted.deadline_s
    for one in ranking.candidates:
        time = one.band.around(one.item.metrics["train_time_s"])
        if deadline_s is not None and time.least <= deadline_s < time.most:
            yield f"{one.name} may {'keep' if 'train_time_s' in one.item.broken else 'miss'} the deadline"
    if any(one.evidence.software is SoftwareEvidence.IDEAL for one in ranking.candidates):
        yield "no software is named, which makes bands wide: add --stack, see slipstick list stacks"
