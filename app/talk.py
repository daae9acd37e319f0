"""Output during a computation: lines, progress and written files."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..ir.errors import SlipstickError, UsageError
from ..ir.records import dataclass

if TYPE_CHECKING:
    from ..explore.best import Best


class Progress(Protocol):
    """What is told while a search runs."""

    def advance(self, num_candidates: int, best: str) -> None:
        """Say that so many more candidates are done, and what is the best so far."""
        ...


class _Silent:
    def advance(self, num_candidates: int, best: str) -> None:
        """Say nothing."""


@contextmanager
def silent_progress(num_candidates: int) -> Iterator[Progress]:
    """Show nothing."""
    yield _Silent()


def print_line(line: str) -> None:
    """Write a line to stderr."""
    print(line, file=sys.stderr)


@dataclass(frozen=True, slots=True)
class Talk:
    """Where lines go, and what shows how far a search of so many candidates is."""

    say: Callable[[str], None] = print_line
    progress: Callable[[int], AbstractContextManager[Progress]] = silent_progress

    @contextmanager
    def writing(self, path: str | Path) -> Iterator[None]:
        """Report what is written; a place that cannot be written is the user's to change."""
        try:
            yield
        except SlipstickError:
            raise
        except (OSError, ValueError) as error:
            if isinstance(error, ValueError) and "\0" not in str(path):
                raise  # of what is written, not of where
            reason = error.strerror if isinstance(error, OSError) else error
            raise UsageError(f"cannot write '{path}': {reason}") from error
        self.say(f"wrote {path}")


def best_so_far(best: Best) -> str:
    """Return the best so far, in a word."""
    from ..driver.metrics import METRICS, format_metric

    if not best.top:
        return "nothing fits yet"
    first = best.goals[0].name
    return f"best {METRICS[first].label} {format_metric(first, float(best.top[first][0]))}"


def count_reasons(reasons: Counter[str]) -> str:
    """Return reasons with how often each holds, the most frequent first.

    >>> count_reasons(Counter({"does not fit": 2, "odd": 1000}))
    '1,000 odd; 2 does not fit'
    """
    return "; ".join(f"{num:,} {reason}" for reason, num in reasons.most_common())
