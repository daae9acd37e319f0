"""Names distributed to processes; one that takes too long, or that dies, takes only its own name with it."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from typing import Generic, TypeVar

Row = TypeVar("Row")
# What is found of a name, and what is said of one that failed; both are functions of a module, found again by name.
Measure = Callable[[str], list[Row]]
Failed = Callable[[str, str], list[Row]]
# Started afresh, so that a process has only what it imports itself.
_CONTEXT = multiprocessing.get_context("spawn")


class Worker(Generic[Row]):
    """A process that measures one name after another; it is started when it is first needed."""

    def __init__(self, measure: Measure[Row], failed: Failed[Row], timeout_s: float) -> None:
        """Say what is measured, and how long one name may take."""
        self._measure, self._failed, self._timeout_s = measure, failed, timeout_s
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def measure(self, name: str) -> list[Row]:
        """Return what came out, or what is said when time was up or the process died."""
        if self._pipe is None:
            self._start()
        assert self._pipe is not None
        try:
            self._pipe.send(name)
            if self._pipe.poll(self._timeout_s):
                found: list[Row] = self._pipe.recv()
                return found
            why_not = f"took more than {self._timeout_s:.0f} s"
        except (EOFError, BrokenPipeError):
            why_not = "the process died"
        self.stop()
        return self._failed(name, why_not)

    def _start(self) -> None:
        self._pipe, theirs = _CONTEXT.Pipe()
        process = _CONTEXT.Process(target=_serve, args=(theirs, self._measure, self._failed), daemon=True)
        process.start()
        self._process = process
        theirs.close()

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._process = self._pipe = None


def _serve(pipe: Connection, measure: Measure[Row], failed: Failed[Row]) -> None:
    """Measure what is asked for until nobody asks any more; what libraries print is of no use here."""
    import logging
    import os

    os.environ["HF_HUB_OFFLINE"] = "1"
    os.nice(max(0, 10 - os.nice(0)))
    logging.disable(logging.CRITICAL)
    sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open to the end
    while True:
        try:
            name = str(pipe.recv())
        except EOFError:
            return
        try:
            found = measure(name)
        except Exception as error:
            found = failed(name, f"{type(error).__name__}: {error}")
        pipe.send(found)


def measure_all(
    names: Sequence[str], num_workers: int, measure: Measure[Row], failed: Failed[Row], timeout_s: float
) -> Iterator[list[Row]]:
    """Measure names on several processes and yield what is found of each as it comes."""
    free: SimpleQueue[Worker[Row]] = SimpleQueue()
    workers = [Worker(measure, failed, timeout_s) for _ in range(num_workers)]
    for worker in workers:
        free.put(worker)

    def one(name: str) -> list[Row]:
        worker = free.get()
        try:
            return worker.measure(name)
        finally:
            free.put(worker)

    with ThreadPoolExecutor(num_workers) as pool:
        for future in as_completed([pool.submit(one, name) for name in names]):
            yield future.result()
    for worker in workers:
        worker.stop()
