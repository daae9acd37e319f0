"""`slipstick search`: every legal plan of a model on a machine, or on many, and the best of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...ir.errors import InfeasibleError, SlipstickError, UsageError
from ...ir.records import dataclass
from ..flags.request import Request
from ..output.answers import typed
from ..plans.text import words_around
from .answer import front_of
from .axes import Asked
from .file import space_of, space_yaml
from .flags import SearchCommand, SearchFlags
from .job import job_of, plain_of
from .memory import collect_seldom, rows_at_once
from .progress import best_so_far, counted, progress
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

# The ledger of a search: begun under the next free name, or gone on with; none where nothing is to be kept.


@dataclass(slots=True)
class SearchRequest:
    """What a search asks for with what its run says, and the ledger once there is a job."""

    asked: Asked
    wanted: SearchFlags
    opened: list[Ledger] = field(default_factory=list)

    def close(self) -> None:
        """Close what is open."""
        while self.opened:
            self.opened.pop().close()

    def forget(self) -> None:
        """Remove a run that was begun in vain: nothing is in it."""
        begun = [ledger.path.stem for ledger in self.opened if self.wanted.resume is None and not ledger.num_done()]
        self.close()
        for name in begun:
            _runs(self.wanted).remove(name)

    def ledger(self, job: PlanJob | ServingJob | TrialJob) -> Ledger | None:
        """Begin the ledger, or resume it; UsageError where it is of another search or version."""
        from ...explore.runs.run import SearchRun
        from ...explore.runs.tool import tool_version

        if self.wanted.resume is not None:
            path = _runs(self.wanted).path(self.wanted.resume)
            found = _resumed(path, job, tool_version())
        elif self.wanted.ledger:
            run = SearchRun.of(
                job, tool_version(), self.asked.model, typed(), [str(goal) for goal in job.goals], job.words
            )
            found = _runs(self.wanted).create(run)
            click.echo(f"run {found.path.stem}", err=True)
        else:
            return None
        self.opened.append(found)
        return found


@contextmanager
def kept(asked: Asked, wanted: SearchFlags) -> Iterator[SearchRequest]:
    """Yield what a search asks for, over what its run does where one is gone on with; close its ledger in the end."""
    if wanted.resume is not None and not wanted.ledger:
        raise UsageError("--resume goes on with a ledger: leave --no-ledger out")
    run = SearchRequest(asked if wanted.resume is None else asked.over(_stored(wanted, wanted.resume)), wanted)
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


def _stored(wanted: SearchFlags, name: str) -> Asked:
    from ...explore.runs.ledger import Ledger

    path = _runs(wanted).path(name)
    with Ledger.open(path) as ledger:
        return space_of(ledger.run.text, f"run {name}")


def _runs(wanted: SearchFlags) -> LedgerFolder:
    from ...explore.runs.runs import LedgerFolder

    return LedgerFolder.at(wanted.runs)


@click.command("search", cls=SearchCommand)
def search_command(request: Request, asked: Asked, wanted: SearchFlags) -> SearchResult:
    """Search the parallel plans of MODEL on a number of GPUs, and show the best.

    A plan flag fixes its value (--tp 8); all others are free: degrees, micro-batch, interleaving, schedule, ZeRO
    stage, sequence parallelism, method of context parallelism, recomputation, expert sharding. Data types, kernels,
    offload and the like keep the defaults of `slipstick estimate`, unless --vary names them.

    \b
    slipstick search llama-3.1-8b --system dgx-h100 --gpus 64 --seq 8192 --gbs 256
    slipstick search llama-3.1-405b --system dgx-h100 --gpus 16384 --seq 8192 --gbs 2048 --objective step_time_s,mem
    slipstick search llama-3.1-70b --phase serve --system dgx-h100 --gpus 16 --isl 2000 --osl 500 --ttft 1s --tpot 30ms
    slipstick search deepseek-v3 --system hgx-h800 --gpus 2048 --seq 4096 --gbs 15360 --vary precision=none,fp8
    """  # noqa: D301
    collect_seldom()
    from ...report.results.tables import SearchResult

    with kept(asked, wanted) as run:
        whole = run.asked
        if not whole.model:
            raise UsageError("a search needs MODEL: a name of `slipstick list models`, a config.json, an ONNX file")
        whole = replace(whole, rows_at_once=whole.rows_at_once or rows_at_once(wanted.max_memory))
        answer = _answer(whole, request.said({"model": whole.model}), wanted, run)
    if not answer.tally.num_kept:
        reasons = counted(answer.tally.pruned)
        raise InfeasibleError(f"none of {answer.tally.num_candidates:,} candidates is left: {reasons}")
    return SearchResult(answer=answer, front=lambda: front_of(answer), why=wanted.why)


def _answer(asked: Asked, request: Request, wanted: SearchFlags, run: SearchRequest) -> SearchAnswer:
    """Search: all there is, or machines that an optimiser chooses."""
    if has_trials(asked):
        job = trial_job_of(asked, request, space_yaml(asked))
        return try_all(job, words_around(plain_of(asked, request)), wanted, run.ledger(job), request.quiet)
    return _run(_rows(asked, request), asked.model, wanted, run, request.quiet)


def _rows(asked: Asked, request: Request) -> PlanRows | ServerRows:
    """What is searched: plans of steps, or servers."""
    text = space_yaml(asked)
    if asked.one("phase", "train") == "serve":
        from ...report.search.servers import ServerRows
        from .servers import server_search_of

        return ServerRows(server_search_of(asked, request, text))
    from ...report.search.plans import PlanRows

    return PlanRows(job_of(asked, request, text), words_around(plain_of(asked, request)))


def _run(rows: PlanRows | ServerRows, model: str, wanted: SearchFlags, run: SearchRequest, quiet: bool) -> SearchAnswer:
    """Work on all blocks, and gather the answer while they come."""
    from ...explore.executors.executors import executor_of
    from ...explore.searching import search
    from ...report.search.answer import SearchAnswer

    executor = executor_of(wanted.executor, wanted.jobs, wanted.address)
    ledger = run.ledger(rows.search)
    started = time.perf_counter()
    with progress(sum(map(len, rows.search.blocks())), quiet) as bar:

        def watch(found: Found, best: Best) -> None:
            bar.advance(found.num_candidates, best_so_far(best))

        done = search(rows.search, executor, ledger, wanted.top, watch, reduced=True)
    if not quiet:
        click.echo(_summary(done.ran, done.tally.num_candidates, time.perf_counter() - started), err=True)
    return SearchAnswer(model, rows, done.best, done.tally, kinds=done.kinds)


def _summary(ran: Ran, num: int, took_s: float) -> str:
    before = f"; {ran.num_kept:,} of {ran.num_kept + ran.num_new:,} blocks were kept before" if ran.num_kept else ""
    return f"{num:,} candidates in {took_s:.1f} s ({num / max(took_s, 1e-9):,.0f}/s){before}"
