"""How far a search is, on stderr: a bar with rate, time left and the best so far; nothing where nobody looks."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ...explore.best import Best


class Progress(Protocol):
    """What is told while a search runs."""

    def advance(self, num_candidates: int, best: str) -> None:
        """Say that so many more candidates are done, and what is the best so far."""
        ...


class _Silent:
    def advance(self, num_candidates: int, best: str) -> None:
        """Say nothing."""


@contextmanager
def progress(num_candidates: int, quiet: bool) -> Iterator[Progress]:
    """Show a bar while a search runs, where stderr is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield _Silent()
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    from ..output.watching import hide_stage

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


def best_so_far(best: Best) -> str:
    """Return the best so far, in a word."""
    from ...driver.metrics import METRICS, format_metric

    if not best.top:
        return "nothing fits yet"
    first = best.goals[0].name
    return f"best {METRICS[first].label} {format_metric(first, float(best.top[first][0]))}"


def counted(reasons: Counter[str]) -> str:
    """Return reasons with how often each holds, the most frequent first.

    >>> counted(Counter({"does not fit": 2, "odd": 1000}))
    '1,000 odd; 2 does not fit'
    """
    return "; ".join(f"{num:,} {reason}" for reason, num in reasons.most_common())
