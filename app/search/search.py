"""Every legal plan of a model on a machine, or on many, and the best of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...ir.errors import InfeasibleError, SlipstickError, UsageError
from ...ir.records import dataclass
from ..plans.text import words_around
from ..talk import best_so_far, count_reasons
from .answer import front_of
from .asked import SearchRequest, SearchSettings
from .axes import Asked
from .job import job_of, plain_of
from .memory import collect_seldom, rows_at_once
from .space_file import space_of, space_yaml
from .trials import has_trials, trial_job_of, try_all

if TYPE_CHECKING:
    from ...explore.best import Best
    from ...explore.block import Found
    from ...explore.plans.job import PlanJob
    from ...explore.runs.ledger import Ledger
    from ...explore.runs.running import Ran
    from ...explore.runs.runs import LedgerFolder
    from ...explore.servers.job import ServingJob
    from ...explore.trials.trial_job import TrialJob
    from ...report.results.tables import SearchResult
    from ...report.search.answer import SearchAnswer
    from ...report.search.plans import PlanRows
    from ...report.search.servers import ServerRows


def search_plans(request: SearchRequest) -> SearchResult:
    """Search the plans of a model, or its servers; InfeasibleError where none is left."""
    collect_seldom()
    from ...report.results.tables import SearchResult

    with kept(request) as run:
        whole, wanted = run.asked, request.wanted
        if not whole.model:
            raise UsageError("a search needs MODEL: a name of `slipstick list models`, a config.json, an ONNX file")
        whole = replace(whole, rows_at_once=whole.rows_at_once or rows_at_once(wanted.max_memory))
        answer = _answer(whole, request.said({"model": whole.model}), run)
    if not answer.tally.num_kept:
        reasons = count_reasons(answer.tally.pruned)
        raise InfeasibleError(f"none of {answer.tally.num_candidates:,} candidates is left: {reasons}")
    return SearchResult(answer=answer, front=lambda: front_of(answer), why=wanted.why)


@dataclass(slots=True)
class SearchLedger:
    """What a search asks for with what its run says, and the ledger once there is a job: none where none is kept."""

    request: SearchRequest
    asked: Asked
    opened: list[Ledger] = field(default_factory=list)

    def close(self) -> None:
        """Close what is open."""
        while self.opened:
            self.opened.pop().close()

    def forget(self) -> None:
        """Remove a run that was begun in vain: nothing is in it."""
        begun = [
            ledger.path.stem for ledger in self.opened if self.request.wanted.resume is None and not ledger.num_done()
        ]
        self.close()
        for name in begun:
            _runs(self.request.wanted).remove(name)

    def ledger(self, job: PlanJob | ServingJob | TrialJob) -> Ledger | None:
        """Begin the ledger, or resume it; UsageError where it is of another search or version."""
        from ...explore.runs.run import SearchRun
        from ...explore.runs.tool import tool_version

        if self.request.wanted.resume is not None:
            path = _runs(self.request.wanted).path(self.request.wanted.resume)
            found = _resumed(path, job, tool_version())
        elif self.request.wanted.ledger:
            run = SearchRun.of(
                job,
                tool_version(),
                self.asked.model,
                self.request.arguments.command,
                [str(goal) for goal in job.goals],
                job.words,
            )
            found = _runs(self.request.wanted).create(run)
            self.request.arguments.talk.say(f"run {found.path.stem}")
        else:
            return None
        self.opened.append(found)
        return found


@contextmanager
def kept(request: SearchRequest) -> Iterator[SearchLedger]:
    """Yield what a search asks for, over what its run does where one is gone on with; close its ledger in the end."""
    asked, wanted = request.asked, request.wanted
    if wanted.resume is not None and not wanted.ledger:
        raise UsageError("--resume goes on with a ledger: leave --no-ledger out")
    run = SearchLedger(request, asked if wanted.resume is None else asked.over(_stored(wanted, wanted.resume)))
    try:
        yield run
    except SlipstickError:
        run.forget()
        raise
    finally:
        run.close()


def _resumed(path: Path, job: PlanJob | ServingJob | TrialJob, version: str) -> Ledger:
    from ...explore.runs.ledger import Ledger
    from ...explore.trials.trial_job import TrialJob
    from ...explore.trials.trying import resumed

    return resumed(path, job, version) if isinstance(job, TrialJob) else Ledger.resume(path, job, version)


def _stored(wanted: SearchSettings, name: str) -> Asked:
    from ...explore.runs.ledger import Ledger

    path = _runs(wanted).path(name)
    with Ledger.open(path) as ledger:
        return space_of(ledger.run.text, f"run {name}")


def _runs(wanted: SearchSettings) -> LedgerFolder:
    from ...explore.runs.runs import LedgerFolder

    return LedgerFolder.at(wanted.runs)


def _answer(asked: Asked, request: SearchRequest, run: SearchLedger) -> SearchAnswer:
    """Search: all there is, or machines that an optimiser chooses."""
    if has_trials(asked):
        job = trial_job_of(asked, request, space_yaml(asked))
        return try_all(request, job, words_around(plain_of(asked, request)), run.ledger(job))
    return _search(_rows(asked, request), request, run)


def _rows(asked: Asked, request: SearchRequest) -> PlanRows | ServerRows:
    """What is searched: plans of steps, or servers."""
    text = space_yaml(asked)
    if asked.one("phase", "train") == "serve":
        from ...report.search.servers import ServerRows
        from .servers import server_search_of

        return ServerRows(server_search_of(asked, request, text))
    from ...report.search.plans import PlanRows

    return PlanRows(job_of(asked, request, text), words_around(plain_of(asked, request)))


def _search(rows: PlanRows | ServerRows, request: SearchRequest, run: SearchLedger) -> SearchAnswer:
    """Work on all blocks, and gather the answer while they come."""
    from ...explore.executors.executors import executor_of
    from ...explore.searching import search
    from ...report.search.answer import SearchAnswer

    wanted = request.wanted
    executor = executor_of(wanted.executor, wanted.jobs, wanted.address)
    ledger = run.ledger(rows.search)
    started = time.perf_counter()
    with request.progress(sum(map(len, rows.search.blocks()))) as bar:

        def watch(found: Found, best: Best) -> None:
            bar.advance(found.num_candidates, best_so_far(best))

        done = search(rows.search, executor, ledger, wanted.top, watch, reduced=True)
    request.report(_summary(done.ran, done.tally.num_candidates, time.perf_counter() - started))
    return SearchAnswer(request.source.model, rows, done.best, done.tally, kinds=done.kinds)


def _summary(ran: Ran, num: int, took_s: float) -> str:
    before = f"; {ran.num_kept:,} of {ran.num_kept + ran.num_new:,} blocks were kept before" if ran.num_kept else ""
    return f"{num:,} candidates in {took_s:.1f} s ({num / max(took_s, 1e-9):,.0f}/s){before}"
