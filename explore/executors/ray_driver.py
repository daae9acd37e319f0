"""The process that speaks with Ray: where a node that it needs is lost, Ray ends it in C++, and a search goes on.

`relayed` runs where the search runs, `main` in a process of its own. They speak pickle over the pipes of this process,
and what Ray says meanwhile is kept out of sight. It ends when its standard input does, however the search ended.
"""

from __future__ import annotations

import os
import pickle
import re
import signal
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Protocol

from ...ir.errors import ClusterLostError, UsageError
from ...ir.host.children import Child, end_child, handed_paths, start_module
from ...ir.records import dataclass
from ..block import Block, Found
from ..job import Job, News, Telling, news_of
from .messages import Done, RefusedPiece, Report, packed
from .ray_cluster import answering, seclude

# How often to begin again when nothing was found since the last time.
_BEGINNINGS = 3
_LEAVE_S = 10.0
# What Ray says before it ends a process, and what has happened.
_ENDINGS: Mapping[str, str] = {
    r"GCS|gcs_server|head node": "its head node does not answer",
    r"[Rr]aylet": "the raylet of this machine has ended",
}


class Driven(Protocol):
    """What works on blocks in the process where it is: `OnRay`."""

    @property
    def address(self) -> str | None:
        """Of the head node; None for a cluster of this machine alone."""
        ...

    @property
    def timeout_s(self) -> float:
        """How long the head node may take to answer."""
        ...

    def drive(self, job: Job, blocks: Iterable[Block]) -> Generator[Found]:
        """Yield what is found in each block."""
        ...


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a driver is to do; `paths` are where modules are found."""

    paths: Sequence[str]
    work: bytes


def relayed(wanted: Driven, job: Job, blocks: Sequence[Block]) -> Generator[Found]:
    """Yield what a driver finds in each block; begin again, with the blocks that are left, where one is lost.

    Raises:
        ClusterLostError: the cluster is gone, or driver after driver is lost.
        UsageError: what `OnRay.run` raises before the first block.
    """
    left, beginnings, why, before = {block.number: block for block in blocks}, 0, "", ""
    news = news_of(job)
    while left:
        beginnings += 1
        if beginnings > _BEGINNINGS:
            raise _lost(wanted.address, why)
        try:
            if wanted.address is not None:
                answering(wanted.address, wanted.timeout_s)
            work = pickle.dumps((wanted, job, list(left.values())))
            with _driver() as (process, told):
                # A cluster that was lost answers for a moment longer, and then no more.
                before, why = why or before, ""
                heard = news().number
                for report in _reports(process, work):
                    if isinstance(report, RefusedPiece) and isinstance(report.error, ClusterLostError):
                        why = str(report.error)
                    elif isinstance(report, RefusedPiece):
                        raise report.error
                    elif isinstance(report, Done):
                        beginnings = 0
                        del left[report.found.number]
                        yield report.found
                        if (latest := news()).number > heard:
                            heard = latest.number
                            # One that is dying hears none.
                            with suppress(OSError):
                                pickle.dump(latest, _pipe(process.stdin))
                                _pipe(process.stdin).flush()
                why = why or _why(process, told) if left else ""
        except UsageError as error:
            if (why or before) and not isinstance(error, ClusterLostError):
                raise _lost(wanted.address, f"{why or before}, and then: {error}") from error
            raise


def _lost(address: str | None, why: str) -> ClusterLostError:
    return ClusterLostError(f"the Ray cluster {f'at {address}' if address else 'of this machine'} was lost: {why}")


@contextmanager
def _driver() -> Iterator[tuple[Child, IO[bytes]]]:
    """A driver that has nothing to do yet, and what it and Ray say; it is ended as it ends itself."""
    # What the terminal sends is for the search, which ends its driver in order.
    with tempfile.TemporaryFile() as told, start_module(__name__, told) as process:
        try:
            yield process, told
        finally:
            with suppress(OSError):
                _pipe(process.stdin).close()
            end_child(process, 2 * _LEAVE_S)


def _reports(process: Child, work: bytes) -> Iterator[Report]:
    """Have a driver work, and yield what it says until it is done or no more."""
    with suppress(EOFError, OSError, pickle.UnpicklingError):
        pickle.dump(_Asked(handed_paths(), work), _pipe(process.stdin))
        _pipe(process.stdin).flush()
        while True:
            reports: tuple[Report, ...] = pickle.loads(pickle.load(_pipe(process.stdout)))
            yield from reports


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None, "asked for"
    return pipe


def _why(process: Child, told: IO[bytes]) -> str:
    code = process.wait()
    told.seek(0)
    text = told.read()[-20000:].decode("utf-8", "replace")
    for pattern, words in _ENDINGS.items():
        if re.search(pattern, text):
            return words
    return f"the process that spoke with it ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}"


def main() -> None:
    """Be a driver: read what to do, tell what is found, and leave with the one who asked."""
    told = os.fdopen(os.dup(1), "wb")
    # Ray prints to stdout what workers say.
    os.dup2(2, 1)
    asked: _Asked = pickle.load(sys.stdin.buffer)
    sys.path[:] = asked.paths
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    heard: deque[News] = deque(maxlen=1)
    threading.Thread(target=_end_with_the_search, args=(heard,), daemon=True).start()
    try:
        wanted, job, blocks = pickle.loads(asked.work)
        if wanted.address is None:
            seclude()
        for found in wanted.drive(job, blocks):
            if heard and isinstance(job, Telling):
                job.hear(heard.pop())
            pickle.dump(packed(Done(found)), told)
            told.flush()
    except KeyboardInterrupt:
        return
    except Exception as error:
        pickle.dump(packed(RefusedPiece(error)), told)
        told.flush()


def _end_with_the_search(heard: deque[News]) -> None:
    """Hear news until the search hangs up, end in order, and at once if that takes long."""
    with suppress(EOFError, OSError, pickle.UnpicklingError):
        while True:
            heard.append(pickle.load(sys.stdin.buffer))
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(_LEAVE_S)
    os._exit(1)


if __name__ == "__main__":
    main()
