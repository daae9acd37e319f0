"""Machines that an optimiser chooses, one batch after the other, each with all plans on it searched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path

from ...ir.errors import InternalError, SlipstickError, UsageError
from ...ir.records import dataclass
from ..best import Best
from ..block import Block, Found
from ..job import Executor, Job
from ..plans.job import UNEVEN, PlanJob, PlanMachine, PlanWorker
from ..plans.lowerings import Lowerings
from ..runs.ledger import Ledger
from ..runs.running import Ran, telling
from ..searching import CandidateTally, Searched
from .optimizer import Trial, TrialOptimizer, Values, run_trials
from .trial_job import TrialJob

Watch = Callable[[Found, Best], None]


@dataclass(frozen=True, slots=True)
class TrialResults:
    """What trials found.

    Attributes:
        searched: the best rows, where all candidates of all trials went, and how many trials were done before.
        trials: all of them, in order.
        infeasible: trials where no plan was left, by the reason.
    """

    searched: Searched
    trials: tuple[Trial, ...]
    infeasible: Counter[str]


def try_machines(
    job: TrialJob,
    optimizer: TrialOptimizer,
    executor: Executor,
    ledger: Ledger | None = None,
    top: int = 20,
    watch: Watch | None = None,
) -> TrialResults:
    """Have an optimiser choose machines, and search all plans on each.

    Args:
        job: what is searched.
        optimizer: chooses; it is told the goals of the best plan of each machine.
        executor: works on blocks of plans.
        ledger: keeps the best plan of each trial as it is done, and gives those that it holds; None for none.
        top: best trials that are kept, besides the Pareto front of all.
        watch: is shown each trial, and the best so far.

    Raises:
        KeyboardInterrupt: somebody stopped it; the message says how to go on.
        UsageError: the optimiser was told of other worth before.
    """
    trying = _Trying(job, executor, ledger, Best(job.goals, top), watch)
    with telling(ledger, job.num_trials, trying.trials):
        if ledger is not None:
            trying.before = {found.number: found for found in ledger.sound()}
        num_before = len(trying.before)
        num_damaged = 0 if ledger is None else ledger.num_done() - num_before
        run_trials(optimizer, job.num_trials, job.at_once, trying.price)
    ran = Ran(num_before, num_damaged, job.num_trials - num_before)
    return TrialResults(Searched(trying.best, trying.tally, ran), tuple(trying.trials), trying.infeasible)


def resumed(path: Path, job: TrialJob, version: str) -> Ledger:
    """Open the ledger of a study to resume it; more trials than it was made for make it longer.

    UsageError as `Ledger.resume`, and for fewer trials than it was made for.
    """
    with Ledger.open(path) as found:
        num_trials = found.run.num_blocks
    ledger = Ledger.resume(path, replace(job, num_trials=num_trials), version)
    if job.num_trials < num_trials:
        ledger.close()
        raise UsageError(
            f"run '{path.stem}' has {num_trials:,} trials: resume with as many or more, not {job.num_trials}"
        )
    return ledger.longer(job) if job.num_trials > num_trials else ledger


@dataclass(frozen=True, slots=True)
class Resident:
    """Works on blocks of plans here, and keeps what is lowered for the next search of the same model."""

    lowerings: Lowerings

    def run(self, job: Job, blocks: Iterable[Block]) -> Iterator[Found]:
        """Yield what is found in each block, in order."""
        if not isinstance(job, PlanJob):
            raise InternalError("only searches of plans lower anything that could be kept")
        yield from PlanWorker(job, self.lowerings).work_through(blocks)


@dataclass(slots=True)
class _Trying:
    """What is known while trials go on."""

    job: TrialJob
    executor: Executor
    ledger: Ledger | None
    best: Best
    watch: Watch | None
    tally: CandidateTally = field(default_factory=CandidateTally)
    trials: list[Trial] = field(default_factory=list)
    infeasible: Counter[str] = field(default_factory=Counter)
    before: dict[int, Found] = field(default_factory=dict)
    known: dict[PlanMachine, Found] = field(default_factory=dict)
    ranked: set[PlanMachine] = field(default_factory=set)

    def price(self, asked: Sequence[Trial], num: int) -> list[Values]:
        """Search the machines of the first trials, each once, and return what they are worth."""
        asked = asked[:num]
        machines = {trial.number: self.job.machine(trial) for trial in asked}
        kept = [trial for trial in asked if trial.number in self.before]
        self.known |= {machines[trial.number]: self.before[trial.number] for trial in kept}
        new = {machines[trial.number]: trial for trial in reversed(asked) if machines[trial.number] not in self.known}
        searched = _searched(self.job, sorted(new.values(), key=lambda trial: trial.number), self.executor)
        self.known |= {machines[found.number]: found for found in searched}
        return [self._take(trial, machines[trial.number]) for trial in asked]

    def _take(self, trial: Trial, machine: PlanMachine) -> Values:
        found = self.job.again(self.known[machine], trial)
        if trial.number not in self.before and self.ledger is not None:
            self.ledger.write(found)
        self.trials.append(trial)
        self.tally.take(found)
        # A machine that is chosen again stands in the answer as it was first.
        if machine not in self.ranked:
            self.ranked.add(machine)
            self.best.take(found)
        if not found.num_rows:
            # Why nothing is feasible: the most frequent reason; that plans do not divide, only where there is
            # no other.
            told = Counter({why: num for why, num in found.pruned.items() if why != UNEVEN}) or Counter(found.pruned)
            self.infeasible[(told.most_common(1)[0][0] if told else "every plan failed")] += 1
        if self.watch is not None:
            self.watch(found, self.best)
        return self.job.values(found)


def _searched(job: TrialJob, trials: Sequence[Trial], executor: Executor) -> Iterator[Found]:
    """The block of each of these trials; a machine that cannot be is a trial where nothing is feasible."""
    good: list[Trial] = []
    for trial in trials:
        try:
            job.machine(trial).load()
        except SlipstickError as error:
            why = " ".join(str(error).split())
            yield Found(trial.number, {f"no such machine: {why}": 1}, 0, job.no_rows())
        else:
            good.append(trial)
    if not good:
        return
    plans = job.on(good)
    best, tally = [Best(job.goals, 1) for _ in good], [CandidateTally() for _ in good]
    blocks = plans.blocks()
    part_of = {block.number: block.part for block in blocks}
    for found in executor.run(plans, blocks):
        machine = plans.parts[part_of[found.number]].machine
        best[machine].take(found)
        tally[machine].take(found)
    for k, trial in enumerate(good):
        yield job.found(trial, plans, best[k], tally[k])
