"""What any search is made of: a job that can be sent to a worker, and the worker that it opens there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

from ..ir.records import dataclass
from .block import Block, Found


class Worker(Protocol):
    """Works on blocks in one process; keeps what blocks share (graphs, lowered families, systems) for the next."""

    def work(self, block: Block) -> Found:
        """Prune and evaluate a block; the same block gives the same bits in any worker."""
        ...


@runtime_checkable
class ManyAtOnce(Protocol):
    """A worker for which several blocks are less work than one after another."""

    def work_through(self, blocks: Iterable[Block]) -> Iterator[Found]:
        """Yield what `work` returns for each block, in order."""
        ...


@dataclass(frozen=True, slots=True)
class News:
    """What the one who asked knows by now, for workers that leave out what is behind it; later news have more."""

    number: int = 0
    packet: bytes = b""


@runtime_checkable
class Telling(Protocol):
    """A job that has news for its workers while they work; a copy of it in another process hears them first."""

    def news(self) -> News:
        """Return the latest."""
        ...

    def hear(self, news: News) -> None:
        """Take the latest."""
        ...


def news_of(job: object) -> Callable[[], News]:
    """Return what gives the latest news of a job; one that has none gives empty ones."""
    return job.news if isinstance(job, Telling) else News


@runtime_checkable
class Learning(Protocol):
    """A worker that takes news."""

    def learn(self, packet: bytes) -> None:
        """Take what the one who asked knows."""
        ...


class Described(Protocol):
    """What a ledger knows of a search."""

    @property
    def digest(self) -> str:
        """What tells this search from any other: model, systems, space; 64 hexadecimal digits."""
        ...

    @property
    def text(self) -> str:
        """The space as YAML, from which the same job can be made again."""
        ...

    @property
    def columns(self) -> Sequence[str]:
        """The names of all columns that its blocks find, in order."""
        ...

    def blocks(self) -> Sequence[Block]:
        """Return the blocks of the space, in order; the same list in any process."""
        ...


class Job(Described, Protocol):
    """What is searched, small and picklable: any process can open it."""

    def open(self) -> Worker:
        """Load what is needed to work on blocks."""
        ...


class Executor(Protocol):
    """Has blocks worked on, somewhere."""

    def run(self, job: Job, blocks: Iterable[Block]) -> Iterator[Found]:
        """Yield what is found in each block, as it comes: every block once, in any order.

        A block whose worker dies or fails is tried again, then cut in halves until the candidates that do it are found:
        these are in `Found.crashed`. Closing the iterator stops what is running.
        """
        ...


class InProcess:
    """Works on blocks one behind the other, here; what fails, fails."""

    def run(self, job: Job, blocks: Iterable[Block]) -> Iterator[Found]:
        """Yield what is found in each block, in order."""
        worker = job.open()
        yield from worker.work_through(blocks) if isinstance(worker, ManyAtOnce) else map(worker.work, blocks)
