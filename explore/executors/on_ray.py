"""Blocks to the machines of a Ray cluster; a worker or machine that is lost is replaced, its pieces are done again."""

from __future__ import annotations

import os
import pickle
import re
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING, Protocol, cast

from ...ir.errors import UsageError
from ...ir.records import dataclass
from ..block import Block, Found
from ..job import Job, news_of
from .messages import Errand, Gone, RefusedPiece, Report
from .processes import check_num_workers, num_cores
from .ray_cluster import cluster, is_connected, need_ray
from .ray_driver import relayed
from .ray_worker import RayWorker, versions
from .retry import Pieces
from .worker_pool import LIMIT_S, work_through

if TYPE_CHECKING:
    from ray import ObjectRef
    from ray.actor import ActorHandle

# How long to wait for news before looking whether the cluster has grown.
_LISTEN_S = 5.0
# What Ray says of an actor that could not be made, which takes no more than the code of our package.
_NOT_MADE = "error raised in its creation task"
_NODE_DIED = r"its node has died|node was terminated"


@dataclass(frozen=True, slots=True)
class OnRay:
    """Has blocks worked on by actors of a Ray cluster, each on one core; the answers are those of one process.

    Attributes:
        address: `HOST:PORT` of the head node of a cluster that this machine is part of, or `auto`; None starts a
            cluster of this machine alone, for as long as the search takes.
        num_workers: how many; None is one for each core of the cluster, also of those that join it later.
        timeout_s: how long the head node may take to answer.
        limit_s: how long a worker may take over a block.
    """

    address: str | None = None
    num_workers: int | None = None
    timeout_s: float = 10.0
    limit_s: float = LIMIT_S

    def __post_init__(self) -> None:
        check_num_workers(self.num_workers)
        need_ray()

    def run(self, job: Job, blocks: Iterable[Block]) -> Generator[Found]:
        """Yield what is found in each block, as it comes; see `Executor`.

        Where this process is connected to a cluster, that is used; otherwise a process of its own connects, which Ray
        may end without harm. It begins again with what is left while it can.

        Raises:
            UsageError: no cluster answers at the address, it has no cores, or a machine of it has another version.
            ClusterLostError: the cluster was there and is no more.
            InternalError: see `work_through`.
            SlipstickError: what a worker cannot do anything about, such as a model that it cannot read.
        """
        return self.drive(job, blocks) if is_connected() else relayed(self, job, list(blocks))

    def drive(self, job: Job, blocks: Iterable[Block]) -> Generator[Found]:
        """Do so in this process."""
        with cluster(self.address, self.num_workers or num_cores(), self.timeout_s):
            pool, pieces = _RayCrew(job, self.num_workers), Pieces(blocks, job.columns)
            yield from work_through(pool, pieces, self.limit_s, news_of(job))


class _Method(Protocol):
    """A method of an actor as it is called from elsewhere."""

    def remote(self, *arguments: object) -> ObjectRef[bytes]: ...


class _Actor(Protocol):
    """`RayWorker` as it is seen from elsewhere."""

    @property
    def open(self) -> _Method: ...

    @property
    def work(self) -> _Method: ...


@dataclass(slots=True)
class _Worker:
    """An actor, and what it was asked and has not answered, in order."""

    actor: _Actor
    asked: deque[ObjectRef[bytes]] = field(default_factory=deque)
    is_open: bool = False


class _RayCrew:
    """One actor a worker: it opens the search once, keeps to its part, and dies of one piece, which is then known.

    Tasks would be simpler to send. But Ray picks the process of a task, so that each process comes to lower every
    family of the space, and it repeats a task that killed its worker without saying so.
    """

    def __init__(self, job: Job, num_workers: int | None) -> None:
        import ray

        self._job = ray.put(pickle.dumps(job))
        self._versions = versions()
        self._num_workers = num_workers
        self._workers: dict[int, _Worker] = {}
        self._num_spawned = 0

    def size(self) -> int:
        return self._num_workers or _num_cores_of_cluster()

    def spawn(self) -> int:
        import ray

        # Ray would begin the next piece on its own in an actor that it restarts: those who die are replaced by us.
        actor = cast("_Actor", ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(RayWorker).remote())
        self._num_spawned += 1
        self._workers[self._num_spawned] = _Worker(
            actor, deque([actor.open.remote(self._versions, self._job, os.getcwd())])
        )
        return self._num_spawned

    def give(self, number: int, errand: Errand) -> None:
        worker = self._workers[number]
        worker.asked.append(worker.actor.work.remote(pickle.dumps(errand)))

    def poll(self) -> Sequence[tuple[int, Report]]:
        import ray

        numbers = {worker.asked[0]: number for number, worker in self._workers.items() if worker.asked}
        ready, _ = ray.wait(list(numbers), num_returns=1, timeout=_LISTEN_S)
        # All that is there: to ask for each of a thousand takes longer than what it says.
        more, _ = ray.wait(list(numbers), num_returns=len(numbers), timeout=0) if len(numbers) > 1 else (ready, [])
        return [(numbers[ref], report) for ref in more or ready for report in self._received(numbers[ref])]

    def end(self, number: int) -> None:
        self._end(self._workers.pop(number))

    def shutdown(self) -> None:
        while self._workers:
            self._end(self._workers.popitem()[1])

    def _received(self, number: int) -> Sequence[Report]:
        import ray
        from ray.exceptions import RayError

        worker = self._workers[number]
        try:
            packet = ray.get(worker.asked[0])
        except RayError as error:
            self._end(self._workers.pop(number))
            return [RefusedPiece(_not_installed(error)) if _NOT_MADE in str(error) else _gone(error, worker.is_open)]
        worker.asked.popleft()
        worker.is_open = True
        reports: tuple[Report, ...] = pickle.loads(packet)
        return reports

    def _end(self, worker: _Worker) -> None:
        import ray

        with suppress(Exception):
            ray.kill(cast("ActorHandle[RayWorker]", worker.actor))


def _num_cores_of_cluster() -> int:
    import ray

    num_cores = int(ray.cluster_resources().get("CPU", 0.0))  # type: ignore[no-untyped-call]
    if num_cores < 1:
        raise UsageError("the Ray cluster has no cores to work on: join a machine with 'ray start --address=HOST:PORT'")
    return num_cores


def _not_installed(error: Exception) -> UsageError:
    """Return the error of a machine that cannot even load the code of a worker."""
    why = str(error).strip().splitlines()[-1]
    return UsageError(f"a machine of the Ray cluster cannot load {versions()} ({why}); install the same on all")


def _gone(error: Exception, is_open: bool) -> Gone:
    """Return a lost worker, and whether its machine was lost with it, as far as Ray knows.

    Who cannot be reached has lost its machine, unless it was at work that may have ended it.

    >>> _gone(RuntimeError("The actor died because its node has died. Node Id: 1"), True).with_machine
    True
    """
    from ray.exceptions import ActorUnavailableError

    is_out_of_reach = isinstance(error, ActorUnavailableError) and not is_open
    return Gone(_ending(error), with_machine=is_out_of_reach or re.search(_NODE_DIED, str(error)) is not None)


def _ending(error: Exception) -> str:
    """Return how an actor ended, as far as Ray knows, which may be long, with numbers that are different every time.

    >>> _ending(RuntimeError("The actor died. Worker exit type: SYSTEM_ERROR Worker exit detail: end of file."))
    'killed its worker (RuntimeError, SYSTEM_ERROR)'
    """
    known = re.search(r"exit type: (\w+)", str(error))
    return f"killed its worker ({type(error).__name__}{f', {known[1]}' if known else ''})"
