"""Model types dealt out to processes; one that takes too long, or that dies, takes only its own type with it."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import SimpleQueue

from .result import WORKLOADS, Result, from_json

# Started afresh, so that a process has only what it imports itself.
_CONTEXT = multiprocessing.get_context("spawn")


class Worker:
    """A process that measures one model type after another; it is started when it is first needed."""

    def __init__(self, timeout_s: float) -> None:
        """Say how long one model type may take."""
        self._timeout_s = timeout_s
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def measure(self, model_type: str) -> Result:
        """Return what came out, or a result that says that time was up or that the process died."""
        if self._pipe is None:
            self._start()
        assert self._pipe is not None
        try:
            self._pipe.send(model_type)
            if self._pipe.poll(self._timeout_s):
                return from_json(str(self._pipe.recv()))
            why_not = f"took more than {self._timeout_s:.0f} s"
        except (EOFError, BrokenPipeError):
            why_not = "the process died"
        self.stop()
        return Result(model_type, why_not=dict.fromkeys(WORKLOADS, why_not), oracle=why_not)

    def _start(self) -> None:
        self._pipe, theirs = _CONTEXT.Pipe()
        process = _CONTEXT.Process(target=_serve, args=(theirs,), daemon=True)
        process.start()
        self._process = process
        theirs.close()

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._process = self._pipe = None


def _serve(pipe: Connection) -> None:
    """Measure what is asked for until nobody asks any more; what libraries print is of no use here."""
    import logging
    import os

    os.environ["HF_HUB_OFFLINE"] = "1"
    logging.disable(logging.CRITICAL)
    sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open to the end
    from .case import measured

    while True:
        try:
            model_type = str(pipe.recv())
        except EOFError:
            return
        try:
            pipe.send(measured(model_type).to_json())
        except Exception as error:
            why_not = f"{type(error).__name__}: {error}"
            pipe.send(Result(model_type, why_not=dict.fromkeys(WORKLOADS, why_not), oracle=why_not).to_json())


def measure_all(
    model_types: Sequence[str], num_workers: int, timeout_s: float, done: Callable[[Result], None]
) -> Iterator[Result]:
    """Measure model types on several processes and yield results as they come; each is told to `done` at once."""
    free: SimpleQueue[Worker] = SimpleQueue()
    workers = [Worker(timeout_s) for _ in range(num_workers)]
    for worker in workers:
        free.put(worker)

    def one(model_type: str) -> Result:
        worker = free.get()
        try:
            return worker.measure(model_type)
        finally:
            free.put(worker)

    with ThreadPoolExecutor(num_workers) as pool:
        for future in as_completed([pool.submit(one, name) for name in model_types]):
            done(future.result())
            yield future.result()
    for worker in workers:
        worker.stop()
