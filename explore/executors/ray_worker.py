"""What runs in a worker of a Ray cluster, on any machine: compares versions, opens the search, answers each piece."""

from __future__ import annotations

import os
import pickle
import platform
from contextlib import suppress

import numpy as np

from ...ir.errors import UsageError
from ..job import Job, Worker
from ..runs.tool import tool_version
from .messages import Ready, RefusedPiece, answered, opened, packed


def versions() -> str:
    """Return what must be the same on all machines for the same bits: our code and numpy; Ray sees to Python."""
    return f"slipstick {tool_version()} with numpy {np.__version__}"


class RayWorker:
    """An actor: one process with one open search. All answers are pickled reports, which no Ray has to understand."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def open(self, asked: str, job: bytes, folder: str) -> bytes:
        """Open a pickled job, in its folder where there is one such, if this machine has the versions asked for."""
        if versions() != asked:
            # Unread: another version may not understand it, or worse, understand it differently.
            return packed(RefusedPiece(_mixed(asked)))

        with suppress(OSError):
            os.chdir(folder)

        def unpacked() -> Job:
            read: Job = pickle.loads(job)
            return read

        result = opened(unpacked)
        if isinstance(result, RefusedPiece):
            return packed(result)
        self._worker = result
        return packed(Ready())

    def work(self, errand: bytes) -> bytes:
        """Work on the pieces of a pickled errand of an open search."""
        assert self._worker is not None, "opened before"
        return answered(self._worker, pickle.loads(errand))


def _mixed(asked: str) -> UsageError:
    return UsageError(
        f"results of two versions are not mixed: {platform.node()} of the Ray cluster has {versions()}, "
        f"this machine {asked}; install the same on all"
    )
