"""Clusters for a training run: of each system and number of GPUs the best plan, its days, dollars and limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace

import numpy as np

from ..cost.money import Terms
from ..cost.run.training_run import TrainingRun
from ..driver.estimate import Estimate, estimate, train, worth
from ..ir.errors import UsageError
from ..ir.records import dataclass
from .best import Best, Columns
from .block import Found
from .goals import Goal
from .job import Executor, InProcess
from .plans.job import PlanJob, PlanMachine
from .runs.running import run_blocks
from .searching import CandidateTally

_JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What a training run has to keep; None where it may be anything.

    Attributes:
        run: its length, its checkpoints and its failures.
        deadline_s: time to train, checkpoints and failures included.
        budget_usd: cost of the run: of GPU-hours owned or rented, as `terms` say.
        power_w: average power of the facility, cooling and losses included.
        terms: the ownership model that a budget is of.
    """

    run: TrainingRun
    deadline_s: float | None = None
    budget_usd: float | None = None
    power_w: float | None = None
    terms: Terms = field(default_factory=Terms)

    def over(self, metrics: Mapping[str, float]) -> Mapping[str, float]:
        """Return each bound that is broken with how often it would go into what is needed: 1.5 is half as much again.

        A metric that is not known, as the cost of a machine without prices, breaks a bound on it.
        """
        bounds = {"train_time_s": self.deadline_s, "usd_run": self.budget_usd, "facility_power_w": self.power_w}
        shares = {name: metrics.get(name, np.inf) / most for name, most in bounds.items() if most is not None}
        return {name: float(share) for name, share in shares.items() if not share <= 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A number of GPUs of a system under its fastest plan.

    Attributes:
        machine: the system.
        num_gpus: how many of its GPUs.
        answer: the step with its run and, where it can be priced, its money.
        metrics: days, dollars, joules, carbon of the run by the names of `slipstick list metrics`; besides
            `facility_power_w`, and `usd_run_owned` and `usd_run_rented` where there are such prices.
        broken: bounds that it breaks, see `Requirements.over`.
        unpriced: why there are no sums, or what they leave out; empty where they are firm.
        outdated: prices that are of another machine, after numbers of this one were set.
        rent: why there is no rent; empty where there is one.
    """

    machine: PlanMachine
    num_gpus: int
    answer: Estimate
    metrics: Mapping[str, float]
    broken: Mapping[str, float]
    unpriced: str = ""
    outdated: tuple[str, ...] = ()
    rent: str = ""


@dataclass(slots=True)
class BestOfEach:
    """The best row of each system and number of GPUs, kept while blocks come in any order."""

    goal: Goal
    best: dict[tuple[int, int], Best] = field(default_factory=dict)

    def take(self, found: Found) -> None:
        """Take the rows of one more block."""
        if not found.num_rows:
            return
        system, gpus = found.columns["system"], found.columns["gpus"]
        for pair in np.unique(np.stack([system, gpus]), axis=1).T.astype(int).tolist():
            at = (system == pair[0]) & (gpus == pair[1])
            part = replace(found, columns={name: column[at] for name, column in found.columns.items()})
            self.best.setdefault((pair[0], pair[1]), Best((self.goal,), 1)).take(part)

    def rows(self) -> Iterator[tuple[int, int, Columns]]:
        """Yield system, number of GPUs and the best row, in order."""
        for (system, gpus), best in sorted(self.best.items()):
            yield system, gpus, best.top


def best_rows(
    job: PlanJob, executor: Executor | None = None, watch: Callable[[Found], None] | None = None
) -> tuple[list[tuple[int, int, Columns]], CandidateTally]:
    """Search the plans of a job; return system, number of GPUs and best row of each pair, which no price changes."""
    best, tally = BestOfEach(job.goals[0]), CandidateTally()

    def take(found: Found) -> None:
        best.take(found)
        tally.take(found)
        if watch is not None:
            watch(found)

    run_blocks(job, executor or InProcess(), None, take)
    return list(best.rows()), tally


def clusters_in(
    job: PlanJob, wanted: Requirements, rows: Sequence[tuple[int, int, Columns]], prices: str | None = None
) -> list[Cluster]:
    """Answer for the best rows, under other prices than those of the job where some are given."""
    found = []
    for system, gpus, row in rows:
        machine = job.machines[system]
        found.append(_cluster(job, wanted, replace(machine, prices=prices) if prices else machine, gpus, row))
    return found


def best_of(clusters: Sequence[Cluster], aim: str) -> list[Cluster]:
    """Return a cluster of each system, best first: least in the aim of those that keep all bounds, else the nearest.

    Systems that keep all bounds come first; a metric that is not known is worst.
    """

    def worth_of(one: Cluster) -> tuple[float, float, int]:
        return max(one.broken.values(), default=0.0), one.metrics.get(aim, np.inf), one.num_gpus

    by_system: dict[str, Cluster] = {}
    for one in sorted(clusters, key=worth_of):
        by_system.setdefault(str(one.machine), one)
    return list(by_system.values())


def _cluster(job: PlanJob, wanted: Requirements, machine: PlanMachine, num_gpus: int, row: Columns) -> Cluster:
    """Estimate the step of a row, its run and its money."""
    system = machine.load()
    step = estimate(job.graph, system, job.plan_of(row, 0), job.convention)
    whole = train(step, wanted.run)
    assert whole.run is not None  # it was asked for
    metrics, unpriced, outdated = {**step.metrics, **whole.run.metrics}, "", tuple[str, ...]()
    priced = whole
    try:
        priced = whole = worth(whole, wanted.terms)
    except UsageError as error:
        unpriced = str(error)
        if wanted.terms.rented:
            # Power and carbon do not ask who owns the machines.
            with suppress(UsageError):
                priced = worth(whole, Terms())
    if priced.money is not None:
        known = {name: float(np.ravel(value)[0]) for name, value in priced.money.metrics.items()}
        metrics |= {name: value for name, value in known.items() if whole.money is not None or "usd" not in name}
        metrics["facility_power_w"] = metrics["kwh"] * _JOULES_PER_KWH / metrics["train_time_s"]
        metrics |= dict(_both(priced, Terms() if whole.money is None else wanted.terms))
    if whole.money is not None:
        unpriced, outdated = ", ".join(whole.money.money.without), whole.money.money.outdated
    is_rented_out = system.chip.name in system.prices.section.cloud
    return Cluster(
        machine=machine,
        num_gpus=num_gpus,
        answer=whole,
        metrics=metrics,
        broken=wanted.over(metrics),
        unpriced=unpriced,
        outdated=outdated,
        rent="" if is_rented_out else "prices.cloud has no price of its chip",
    )


def _both(answer: Estimate, terms: Terms) -> Iterator[tuple[str, float]]:
    """Yield the cost of the run owned and rented, so far as there are prices."""
    for name, rented in (("usd_run_owned", False), ("usd_run_rented", True)):
        try:
            other = Terms(basis="market" if rented else terms.basis, rented=rented)
            money = (answer if other == terms else worth(answer, other)).money
        except UsageError:
            continue
        assert money is not None  # it was priced
        yield name, float(np.ravel(money.metrics["usd_run"])[0])
