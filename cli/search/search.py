"""`slipstick search`: every legal plan of a model on a machine, or on many, and the best of them."""

from __future__ import annotations

import gc
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ...ir.errors import UsageError
from ..flags.request import Request
from .answer import check_front, write_answer
from .axes import Asked
from .file import space_yaml
from .flags import SearchCommand, Wanted
from .job import job_of
from .kept import Kept, kept
from .memory import rows_at_once
from .progress import best_so_far, progress
from .trials import has_trials, trial_job_of, try_all

if TYPE_CHECKING:
    from ...explore.best import Best
    from ...explore.block import Found
    from ...explore.runs.running import Ran
    from ...report.search.answer import SearchAnswer
    from ...report.search.plans import PlanRows
    from ...report.search.servers import ServerRows


@click.command("search", cls=SearchCommand)
def search_command(request: Request, asked: Asked, wanted: Wanted) -> int:
    """Price every legal plan of MODEL on so many GPUs, and show the best.

    A flag of a plan that is typed is what every plan has (--tp 8); what is not typed is free: degrees, micro-batch,
    interleaving, schedule, ZeRO stage, sequence parallelism, method of context parallelism, recomputation, how experts
    are dealt out. Types, kernels, offload and the like are as `slipstick estimate` has them, unless --vary names them.

    \b
    slipstick search llama-3.1-8b --system dgx-h100 --gpus 64 --seq 8192 --gbs 256
    slipstick search llama-3.1-405b --system dgx-h100 --gpus 16384 --seq 8192 --gbs 2048 --objective step_time_s,mem
    slipstick search llama-3.1-70b --phase serve --system dgx-h100 --gpus 16 --isl 2000 --osl 500 --ttft 1s --tpot 30ms
    slipstick search deepseek-v3 --system hgx-h800 --gpus 2048 --seq 4096 --gbs 15360 --vary precision=none,fp8
    """  # noqa: D301
    check_front(wanted.front)
    # A search is long: what it leaves behind must go.
    gc.enable()
    with kept(asked, wanted) as run:
        whole = run.asked
        if not whole.model:
            raise UsageError("a search needs MODEL: a name of `slipstick list models`, a config.json, an ONNX file")
        whole = replace(whole, rows_at_once=whole.rows_at_once or rows_at_once(wanted.max_memory))
        answer = _answer(whole, request.said({"model": whole.model}), wanted, run)
    write_answer(answer, wanted)
    return 0


def _answer(asked: Asked, request: Request, wanted: Wanted, run: Kept) -> SearchAnswer:
    """Search: all there is, or machines that an optimiser chooses."""
    if has_trials(asked):
        job = trial_job_of(asked, request, space_yaml(asked))
        return try_all(job, asked.model, wanted, run.ledger(job), request.quiet)
    return _run(_rows(asked, request), asked.model, wanted, run, request.quiet)


def _rows(asked: Asked, request: Request) -> PlanRows | ServerRows:
    """What is searched: plans of steps, or servers."""
    text = space_yaml(asked)
    if asked.one("phase", "train") == "serve":
        from ...report.search.servers import ServerRows
        from .servers import server_search_of

        return ServerRows(server_search_of(asked, request, text))
    from ...report.search.plans import PlanRows

    return PlanRows(job_of(asked, request, text), asked.model)


def _run(rows: PlanRows | ServerRows, model: str, wanted: Wanted, run: Kept, quiet: bool) -> SearchAnswer:
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

        done = search(rows.search, executor, ledger, wanted.top, watch)
    if not quiet:
        click.echo(_summary(done.ran, done.tally.num_candidates, time.perf_counter() - started), err=True)
    return SearchAnswer(model, rows, done.best, done.tally)


def _summary(ran: Ran, num: int, took_s: float) -> str:
    before = f"; {ran.num_kept:,} of {ran.num_kept + ran.num_new:,} blocks were kept before" if ran.num_kept else ""
    return f"{num:,} candidates in {took_s:.1f} s ({num / max(took_s, 1e-9):,.0f}/s){before}"
