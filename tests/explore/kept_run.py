"""What tests of ledgers share: runs of toy jobs, all they find as one table, and a search as a program of its own."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from slipstick.explore.block import Found, joined
from slipstick.explore.executors.processes import Processes
from slipstick.explore.goals import Goal
from slipstick.explore.job import InProcess
from slipstick.explore.runs.ledger import Ledger
from slipstick.explore.runs.run import SearchRun
from slipstick.explore.runs.running import Ran, run_blocks
from slipstick.explore.searching import search

from .fake_job import FakeJob

VERSION = "1.0+abc"


@dataclass(frozen=True)
class AimedJob(FakeJob):
    """A toy search for the least time, as whole searches are."""

    goals: tuple[Goal, ...] = (Goal("step_time_s"),)


# Some seconds of search, most of it waiting; what it finds does not depend on the wait.
LONG = AimedJob(num_candidates=4000, at_once=10, pause_s=0.005)


def run_of(job: FakeJob, version: str = VERSION) -> SearchRun:
    return SearchRun.of(job, version, "toy/Toy-1", "slipstick search toy", ("step_time_s",))


def finished(path: Path, job: FakeJob) -> Path:
    """Write the ledger of a whole search."""
    with Ledger.create(path, run_of(job)) as ledger:
        run_blocks(job, InProcess(), ledger, lambda _: None)
    return path


def table_of(blocks: Iterable[Found]) -> tuple[object, ...]:
    """All that was found, as something that can be compared: rows bit for bit in the order of candidates."""
    whole = joined(sorted(blocks, key=lambda found: found.number))
    columns = {name: np.asarray(column).tobytes() for name, column in whole.columns.items()}
    return whole.pruned, whole.num_legal, whole.crashed, columns


def read_all(path: Path) -> tuple[object, ...]:
    with Ledger.open(path) as ledger:
        return table_of(ledger.kept())


def resumed(path: Path, job: FakeJob) -> tuple[Ran, tuple[object, ...]]:
    """Go on with a run; what came of it, and all that was shown."""
    shown: list[Found] = []
    with Ledger.resume(path, job, VERSION) as ledger:
        ran = run_blocks(job, InProcess(), ledger, shown.append)
    return ran, table_of(shown)


def main(path: Path, num_workers: int) -> None:
    """Begin a search or resume it, as a process that may be stopped; prints each block that is done.

    With workers these are processes that keep what they find in shards.
    """
    ledger = Ledger.resume(path, LONG, VERSION) if path.exists() else Ledger.create(path, run_of(LONG))
    with ledger:
        if num_workers:
            search(
                LONG,
                Processes(num_workers),
                ledger,
                watch=lambda found, _: print(found.number, flush=True),
                reduced=True,
            )
        else:
            run_blocks(LONG, InProcess(), ledger, lambda found: print(found.number, flush=True))


if __name__ == "__main__":
    # Whoever started this may ignore interrupts (`nohup make test &`), and a child inherits that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    except KeyboardInterrupt as stop:
        print(stop, file=sys.stderr)
        sys.exit(130)
