"""Blocks to processes of this machine; one that is killed is replaced, and what it was doing is done again."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait

from ...ir.errors import UsageError
from ...ir.host.children import SafeProcess, spawn_context
from ...ir.records import dataclass
from ..block import Block, Found
from ..job import Job, news_of
from .messages import Errand, Gone, Report
from .process_worker import serve
from .retry import Pieces
from .worker_pool import LIMIT_S, work_through

# How long to wait for news before looking who takes too long.
_LISTEN_S = 1.0


@dataclass(frozen=True, slots=True)
class Processes:
    """Has blocks worked on by processes of this machine, each on one core; what kills one costs it alone.

    Attributes:
        num_workers: how many; None is one for each core that this process may use.
        limit_s: how long one may take over a block.
    """

    num_workers: int | None = None
    limit_s: float = LIMIT_S

    def __post_init__(self) -> None:
        check_num_workers(self.num_workers)

    def run(self, job: Job, blocks: Iterable[Block]) -> Generator[Found]:
        """Yield what is found in each block, as it comes; see `Executor`.

        As with anything that starts processes, what a script does must lie under `if __name__ == "__main__"`.

        Raises:
            InternalError: see `work_through`.
            SlipstickError: what a worker cannot do anything about, such as a model that it cannot read.
        """
        size = self.num_workers or num_cores()
        pool, pieces = _ProcessCrew(job, size), Pieces(blocks, job.columns)
        return work_through(pool, pieces, self.limit_s, news_of(job))


def check_num_workers(num_workers: int | None) -> None:
    """UsageError for fewer workers than one."""
    if num_workers is not None and num_workers < 1:
        raise UsageError(f"{num_workers} workers can do nothing; it takes 1 at least")


def num_cores() -> int:
    """Return how many cores this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class _Worker:
    process: SafeProcess
    connection: Connection


class _ProcessCrew:
    """One process and one pipe a worker, so that it is known which piece a process died of.

    A pool of the standard library is broken as a whole when one of its processes dies, and names neither the process
    nor its piece.
    """

    def __init__(self, job: Job, size: int) -> None:
        self._job = pickle.dumps(job)
        self._size = size
        self._workers: dict[int, _Worker] = {}
        self._num_spawned = 0

    def size(self) -> int:
        return self._size

    def spawn(self) -> int:
        # Started with the first process otherwise, the tracker of its resources would open the interrupt again.
        context = spawn_context()
        ours, theirs = context.Pipe()
        process = SafeProcess(target=serve, args=(theirs, self._job, os.getcwd()), daemon=True)
        with _interrupts_blocked():
            process.start()
        # The only open end must be the worker's: when it dies, ours is at its end.
        theirs.close()
        self._num_spawned += 1
        self._workers[self._num_spawned] = _Worker(process, ours)
        return self._num_spawned

    def give(self, number: int, errand: Errand) -> None:
        with suppress(OSError):
            self._workers[number].connection.send(errand)

    def poll(self) -> Sequence[tuple[int, Report]]:
        ready = wait([worker.connection for worker in self._workers.values()], _LISTEN_S)
        return [
            (number, report)
            for number, worker in [*self._workers.items()]
            if worker.connection in ready
            for report in self._received(number)
        ]

    def end(self, number: int) -> None:
        worker = self._workers.pop(number)
        worker.process.kill()
        self._reap(worker)

    def shutdown(self) -> None:
        for worker in self._workers.values():
            worker.process.kill()
        while self._workers:
            self._reap(self._workers.popitem()[1])

    def _received(self, number: int) -> Sequence[Report]:
        try:
            packet = self._workers[number].connection.recv_bytes()
        except (EOFError, OSError):
            return [Gone(self._reap(self._workers.pop(number)))]
        reports: tuple[Report, ...] = pickle.loads(packet)
        return reports

    def _reap(self, worker: _Worker) -> str:
        """Leave no trace of a worker that is dead or dying, and return how it ended."""
        worker.process.join(timeout=5.0)
        if worker.process.exitcode is None:
            worker.process.kill()
            worker.process.join()
        code = worker.process.exitcode or 0
        worker.process.close()
        worker.connection.close()
        return _ending(code)


def _ending(code: int) -> str:
    """Return how a process ended, from its exit code.

    >>> _ending(-9), _ending(3)
    ('killed by signal 9 (SIGKILL)', 'its worker ended with exit code 3')
    """
    if code >= 0:
        return f"its worker ended with exit code {code}"
    names = {int(known): known.name for known in signal.Signals}
    return f"killed by signal {-code}" + (f" ({names[-code]})" if -code in names else "")


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Keep Ctrl-C from a process that is started now, from its first instruction on: it is for its parent to end it.

    The terminal sends it to all; a worker that is still loading would answer with a traceback.
    """
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
