"""What verbs say on stderr while they work: lines, and a bar with rate, time left and the best so far."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from ...app.talk import Progress, Talk, silent_progress


@contextmanager
def progress(num_candidates: int) -> Iterator[Progress]:
    """Show a bar while a search runs, where stderr is a terminal."""
    if not sys.stderr.isatty():
        with silent_progress(num_candidates) as silent:
            yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    from .watching import hide_stage

    hide_stage()
    columns = (
        TextColumn("{task.percentage:>3.0f}%"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[best]}"),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=num_candidates, rate="", best="")

        class Shown:
            def advance(self, num_candidates: int, best: str) -> None:
                bar.update(task, advance=num_candidates, best=best)
                speed = bar.tasks[0].finished_speed or bar.tasks[0].speed
                bar.update(task, rate=f"{speed:,.0f}/s" if speed else "")

        yield Shown()


TALK = Talk(lambda line: click.echo(line, err=True), progress)
