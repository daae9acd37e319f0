"""`--emit trace`: the timeline of a step to a file or to stdout, with progress for people."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .output import writing

if TYPE_CHECKING:
    from ..driver import Estimate


def emit_trace(answer: Estimate, output: str, detail: str, every_stage: bool, quiet: bool) -> None:
    """Write the trace of an estimate; on stderr say what was left out."""
    from ..report.trace.emit import trace_of
    from ..report.trace.writer import print_trace, write_trace

    trace = trace_of(answer, detail, every_stage)
    progress = None if quiet else _progress
    if output == "-":
        num = print_trace(trace, sys.stdout, progress)
    else:
        with writing(output):
            num = write_trace(trace, Path(output), progress)
    if not quiet:
        click.echo(f"{num:,} events", err=True)
        for words in trace.levels.left_out:
            click.echo(f"  {words}", err=True)


def _progress(done: int, whole: int, num_events: int) -> None:
    """One line that is written over: only people at a terminal want it."""
    if sys.stderr.isatty():
        click.echo(f"\r{done} of {whole} processes, {num_events:,} events", err=True, nl=done == whole)
