"""`--emit trace`: the timeline of a step to a file or to stdout, with progress for people."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .files import writing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...driver.estimate import Estimate
    from ...driver.serve.answer import ServeEstimate
    from ...measured.match.match import Matched
    from ...report.trace.chrome.writer import Traced


def emit_trace(answer: Estimate, output: str, detail: str, every_stage: bool, quiet: bool) -> None:
    """Write the trace of an estimate; on stderr say what was left out."""
    from ...report.trace.chrome.emit import trace_of

    trace = trace_of(answer, detail, every_stage)
    _write(trace, output, quiet, trace.levels.left_out)


def emit_serving_trace(answer: ServeEstimate, output: str, quiet: bool) -> None:
    """Write the trace of a server: the life of a request, or simulated steps."""
    from ...report.trace.chrome.serving import ServingTrace

    trace = ServingTrace(answer)
    _write(trace, output, quiet, trace.left_out)


def emit_beside(matched: Matched, output: str) -> None:
    """Write a measured step beside its prediction."""
    from ...report.trace.chrome.beside import BesideTrace

    _write(BesideTrace(matched), output, False, ())


def _write(trace: Traced, output: str, quiet: bool, left_out: Sequence[str]) -> None:
    from ...report.trace.chrome.writer import print_trace, write_trace

    progress = None if quiet else _progress
    if output == "-":
        num = print_trace(trace, sys.stdout, progress)
    else:
        with writing(output):
            num = write_trace(trace, Path(output), progress)
    if not quiet:
        click.echo(f"{num:,} events", err=True)
        for words in left_out:
            click.echo(f"  {words}", err=True)


def _progress(done: int, whole: int, num_events: int) -> None:
    """One line that is written over: only people at a terminal want it."""
    if sys.stderr.isatty():
        click.echo(f"\r{done} of {whole} processes, {num_events:,} events", err=True, nl=done == whole)
