"""`slipstick search`: every legal plan of a model on a machine, or on many, and the best of them."""

from __future__ import annotations

import gc
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ..ir.errors import InfeasibleError, UsageError
from .options import Request
from .output import columns, write_text
from .search_axes import Asked
from .search_file import space_yaml
from .search_flags import SearchCommand, Wanted
from .search_job import job_of
from .search_progress import progress

if TYPE_CHECKING:
    from ..explore.search.best import Best
    from ..explore.search.job import Executor
    from ..explore.search.plan_job import PlanJob
    from ..report.search import SearchAnswer

# What a candidate takes while its block is worked on, measured on families of dense and MoE models; the rest of a
# process (Python, the traced graph, what is lowered) comes before it.
_BYTES_A_CANDIDATE = 40_000
_BYTES_OF_A_PROCESS = 500 * 2**20
_LEAST_ROWS, _MOST_ROWS = 256, 16384


@click.command("search", cls=SearchCommand)
def search_command(request: Request, asked: Asked, wanted: Wanted) -> int:
    """Price every legal plan of MODEL on so many GPUs, and show the best.

    A flag of a plan that is typed is what every plan has (--tp 8); what is not typed is free: degrees, micro-batch,
    interleaving, schedule, ZeRO stage, sequence parallelism, method of context parallelism, recomputation, how experts
    are dealt out. Types, kernels, offload and the like are as `slipstick estimate` has them, unless --vary names them.

    \b
    slipstick search llama-3.1-8b --system dgx-h100 --gpus 64 --seq 8192 --gbs 256
    slipstick search llama-3.1-405b --system dgx-h100 --gpus 16384 --seq 8192 --gbs 2048 --objective step_time_s,mem
    slipstick search deepseek-v3 --system dgx-h800 --gpus 2048 --seq 4096 --gbs 15360 --vary precision=none,fp8
    """  # noqa: D301
    # A search is long: what it leaves behind must go.
    gc.enable()
    if not asked.model:
        raise UsageError("a search needs MODEL: a name of `slipstick list models`, a config.json, an ONNX file, ...")
    job = job_of(asked, replace(request, model=asked.model), space_yaml(asked), rows_at_once(wanted.max_memory))
    answer = _run(job, asked, wanted, request.quiet)
    _write(answer, wanted)
    return 0


def rows_at_once(max_memory: str) -> int:
    """Return how many candidates a block may have, so that a process stays within its memory.

    UsageError for less than a process takes by itself.

    >>> rows_at_once("2GiB"), rows_at_once("600MiB")
    (16384, 2621)
    """
    from ..ir.units import format_bytes, parse_quantity

    given = parse_quantity(max_memory, "B").value_si
    rows = int((given - _BYTES_OF_A_PROCESS) // _BYTES_A_CANDIDATE)
    if rows < _LEAST_ROWS:
        least = _BYTES_OF_A_PROCESS + _LEAST_ROWS * _BYTES_A_CANDIDATE
        raise UsageError(f"--max-memory {max_memory}: a process takes {format_bytes(least)} at least")
    return min(rows, _MOST_ROWS)


def _run(job: PlanJob, asked: Asked, wanted: Wanted, quiet: bool) -> SearchAnswer:
    """Work on all blocks, and gather the answer while they come."""
    from ..explore.search.best import Best
    from ..report.search import SearchAnswer, Tally

    best, tally = Best(job.goals, wanted.top), Tally()
    started = time.perf_counter()
    with progress(sum(map(len, job.blocks())), quiet) as bar:
        for found in _executor(wanted).run(job, job.blocks()):
            best.take(found)
            tally.take(found)
            bar.advance(found.num_candidates, _told(best))
    if not quiet:
        took = time.perf_counter() - started
        rate = f"{tally.num_candidates / max(took, 1e-9):,.0f}"
        click.echo(f"{tally.num_candidates:,} candidates in {took:.1f} s ({rate}/s)", err=True)
    return SearchAnswer(job, asked.model, best, tally)


def _executor(wanted: Wanted) -> Executor:
    from ..explore.search.job import InProcess

    return InProcess()


def _told(best: Best) -> str:
    """The best so far, in a word."""
    from ..report.metrics import METRICS, format_metric

    if not best.top:
        return "nothing fits yet"
    first = best.goals[0].name
    return f"best {METRICS[first].label} {format_metric(first, float(best.top[first][0]))}"


def _write(answer: SearchAnswer, wanted: Wanted) -> None:
    from .. import __version__
    from ..report.search import search_json
    from ..report.search_table import search_text

    if not answer.tally.num_kept:
        reasons = "; ".join(f"{num:,} {reason}" for reason, num in answer.tally.pruned.most_common())
        raise InfeasibleError(f"none of {answer.tally.num_candidates:,} candidates is left: {reasons}")
    text = search_json(answer, __version__) if wanted.form == "json" else search_text(answer, columns())
    write_text(text, wanted.output)
