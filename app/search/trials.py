"""A search whose machines an optimiser chooses: which axes it has, and the answer."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from ...ir.errors import InfeasibleError, UsageError
from ..request import Request
from ..talk import best_so_far, count_reasons
from .axes import Asked
from .job import checked_systems, full_paths, job_of, plain_of
from .memory import BYTES_OF_A_PROCESS
from .sampling import AT_ONCE, is_sampled

if TYPE_CHECKING:
    from ...explore.best import Best
    from ...explore.block import Found
    from ...explore.job import Executor
    from ...explore.runs.ledger import Ledger
    from ...explore.trials.optimizer import Axis
    from ...explore.trials.optuna_study import OptunaStudy
    from ...explore.trials.trial_job import TrialJob
    from ...explore.trials.trying import TrialResults
    from ...ir.plan.files import Words
    from ...report.search.answer import SearchAnswer
    from .asked import SearchRequest, SearchSettings

# What a lowered family takes; half of what a process may take beside itself is for those that are kept.
_BYTES_A_FAMILY = 2**20


def has_trials(asked: Asked) -> bool:
    """Whether an optimiser chooses machines; UsageError where ranges, trials and how they are chosen do not agree."""
    from ...explore.ranges import is_range

    ranges = [f"--vary {path}={values[0]}" for path, values in asked.paths.items() if is_range(values[0])]
    return is_sampled(asked.sampling, ranges, "2TB/s:10TB/s:9")


def trial_job_of(asked: Asked, request: Request, text: str) -> TrialJob:
    """Return the job of trials; UsageError where nothing differs between machines."""
    from ...explore.ranges import is_range, range_of
    from ...explore.trials.optimizer import CategoricalParameter
    from ...explore.trials.trial_job import SYSTEM, TrialJob

    if asked.one("phase", "train") == "serve":
        raise UsageError("--trials is of training and of single steps; of servers all are tried: write lists")
    plain, ends = plain_of(asked, request), {path: _ends(path, values) for path, values in asked.paths.items()}
    # Words that do not go together on one machine, as a topology and what only another has, are trials without a plan.
    full = full_paths(ends, plain, checked_systems(asked, plain), 1) if ends else {}
    paths = dict(zip(full, asked.paths.values(), strict=True))
    fixed = {path: values for path, values in paths.items() if len(full[path]) == 1}
    plans = job_of(replace(asked, paths=fixed), request, text)
    axes: list[Axis] = [
        range_of(path, values[0]) if is_range(values[0]) else CategoricalParameter(name=path, values=values)
        for path, values in paths.items()
        if path not in fixed
    ]
    if len(plans.machines) > 1:
        axes.insert(0, CategoricalParameter(name=SYSTEM, values=tuple(machine.name for machine in plans.machines)))
    if not axes:
        raise UsageError(
            "--trials says how many machines are tried, and there is one: vary numbers of it, as in "
            "--vary system.hbm.bandwidth=2TB/s..10TB/s, or leave --trials out: every plan is tried"
        )
    how = asked.sampling
    return TrialJob(
        plans=plans,
        axes=tuple(axes),
        num_trials=how.trials or 1,
        sampler=how.sampler or "tpe",
        seed=how.seed or 0,
        at_once=how.trials_at_once or AT_ONCE,
    )


def _ends(path: str, values: tuple[str, ...]) -> tuple[str, ...]:
    """Both ends of a range as values; a list as it is."""
    from ...explore.ranges import is_range, range_of

    if not is_range(values[0]):
        return values
    found = range_of(path, values[0])
    return found.text(found.first), found.text(found.last)


def study_of(job: TrialJob, ledger: Ledger | None, is_new: bool) -> OptunaStudy:
    """Begin the study of a run beside its ledger, or resume it; in memory where there is no ledger."""
    from ...explore.runs import runs
    from ...explore.trials.optuna_study import OptunaStudy

    path = None if ledger is None else runs.study_of(ledger.path)
    if is_new and path is not None:
        path.unlink(missing_ok=True)
    signs = [goal.sign for goal in job.goals]
    return OptunaStudy.open(job.axes, signs, job.sampler, job.seed, path, job.digest)


def try_all(request: SearchRequest, job: TrialJob, said: Words, ledger: Ledger | None) -> SearchAnswer:
    """Try all machines, and gather the answer while they come; InfeasibleError where none of them takes any plan."""
    from ...explore.trials.trying import try_machines

    wanted = request.wanted
    study = study_of(job, ledger, wanted.resume is None)
    started = time.perf_counter()
    with request.progress(job.num_trials) as bar:

        def watch(found: Found, best: Best) -> None:
            bar.advance(1, best_so_far(best))

        tried = try_machines(job, study, _executor(job, wanted), ledger, wanted.top, watch)
    request.report(_summary(tried, time.perf_counter() - started))
    if not tried.searched.tally.num_kept:
        raise InfeasibleError(
            f"no plan is left on any of {job.num_trials:,} machines: {count_reasons(tried.infeasible)}"
        )
    return _answer(job, said, tried)


def _executor(job: TrialJob, wanted: SearchSettings) -> Executor:
    """Where plans are searched; here, what is lowered stays for the next machines, within the memory."""
    from ...explore.executors.executors import executor_of
    from ...explore.plans.lowerings import FAMILIES, Lowerings
    from ...explore.trials.trying import Resident
    from ...ir.units import parse_quantity

    executor = executor_of(wanted.executor, wanted.jobs, wanted.address)
    if wanted.executor != "local":
        return executor
    room = parse_quantity(wanted.max_memory, "B").value_si - BYTES_OF_A_PROCESS
    return Resident(Lowerings(job.plans.graph, max(FAMILIES, int(room / 2 // _BYTES_A_FAMILY))))


def _answer(job: TrialJob, said: Words, tried: TrialResults) -> SearchAnswer:
    """The best trials as rows of plans, each on its machine."""
    from ...explore.best import Best
    from ...explore.trials.trial_job import TRIAL
    from ...report.search.answer import SearchAnswer
    from ...report.search.trials import TrialRows, Trials

    best = tried.searched.best
    numbers = sorted({int(number) for rows in (best.top, best.front) for number in rows[TRIAL]})
    shown = [tried.trials[number] for number in numbers]
    plans, top = job.answered(best.top, shown)
    front = job.answered(best.front, shown)[1]
    kept = Best(job.goals, best.most, top, front, best.cloud)
    how = (job.digest, job.axes, job.sampler, job.seed)
    told = Trials.of(*how, tried.trials, tried.infeasible)
    return SearchAnswer(str(said["model"]), TrialRows(plans, said, told), kept, tried.searched.tally, told)


def _summary(tried: TrialResults, took_s: float) -> str:
    ran, num = tried.searched.ran, len(tried.trials)
    before = f"; {ran.num_kept:,} of {num:,} were kept before" if ran.num_kept else ""
    infeasible = sum(tried.infeasible.values())
    none = f", {infeasible:,} of them without a plan" if infeasible else ""
    return f"{num:,} trials{none}, {tried.searched.tally.num_candidates:,} candidates in {took_s:.1f} s{before}"
