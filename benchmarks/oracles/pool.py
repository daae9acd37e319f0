"""Model types dealt out to processes of low priority, each type within its time."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from .case import ORACLES, Found, compare


class LateError(BaseException):
    """Time is up; no side of a comparison takes this for its own failure."""


def compared(names: Sequence[str], jobs: int, timeout_s: int) -> Iterator[list[Found]]:
    """Compare on some processes of low priority, started afresh."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, initializer=_quiet, max_tasks_per_child=20) as pool:
        for future in as_completed([pool.submit(_in_time, name, timeout_s) for name in names]):
            yield future.result()


def _quiet() -> None:
    """Be nice; what libraries print is of no use here."""
    import logging

    os.nice(max(0, 10 - os.nice(0)))
    os.environ["HF_HUB_OFFLINE"] = "1"
    logging.disable(logging.CRITICAL)
    sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open to the end


def _in_time(name: str, timeout_s: int) -> list[Found]:
    from slipstick.frontend import GraphCache

    def late(signum: int, frame: object) -> None:
        raise LateError(f"took more than {timeout_s} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(timeout_s)
    try:
        return compare(name, GraphCache.default())
    except LateError as error:
        return [Found(name, oracle, "late", str(error)) for oracle in ORACLES]
    finally:
        signal.alarm(0)
