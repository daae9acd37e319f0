"""Processes are started here and nowhere else: none of them looks for modules in the current folder.

What lies in that folder is data. Python would take `json.py` there for the module of that name, in every process that
it starts in its usual way.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import IO, TypeAlias

Child: TypeAlias = subprocess.Popen[bytes]

# Python's own word for it, which grandchildren inherit.
_SAFE = "PYTHONSAFEPATH"
_STARTING = threading.Lock()


class SafeProcess(SpawnProcess):
    """A spawned process that finds modules where its parent does, the current folder left out."""

    def start(self) -> None:
        """Start it."""
        with _safe_start():
            super().start()


class _SafeContext(SpawnContext):
    Process = SafeProcess


def spawn_context() -> SpawnContext:
    """Return what spawns safe processes; the tracker of their resources, a process too, runs already.

    Spawned, not forked: a copy of a process that has threads (torch starts some) may hang for ever.
    """
    if sys.platform != "win32":
        from multiprocessing.resource_tracker import ensure_running

        with _safe_start():
            ensure_running()
    return _SafeContext()


def process_pool(size: int) -> ProcessPoolExecutor:
    """Return a pool of so many safe processes."""
    return ProcessPoolExecutor(size, mp_context=spawn_context())


def start_module(name: str, errors: IO[bytes]) -> Child:
    """Start a module as a program, with pipes to its input and from its output, away from the keys of the terminal."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        start_new_session=True,
        env={**os.environ, _SAFE: "1"},
    )


def run_program(path: Path, given: bytes) -> subprocess.CompletedProcess[bytes]:
    """Run a program of ours on bytes to its end, whatever that is; OSError where it does not start."""
    return subprocess.run(
        [sys.executable, "-P", str(path)], input=given, capture_output=True, check=False, env={**os.environ, _SAFE: "1"}
    )


def end_child(child: Child, patience_s: float) -> None:
    """Wait so long for a child to end, then kill it."""
    try:
        child.wait(patience_s)
    except subprocess.TimeoutExpired:
        child.kill()


def output_of(words: Sequence[str], timeout_s: float) -> str | None:
    """Return what a program of the system prints; None where there is none such, or it fails or takes too long."""
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, check=True, timeout=timeout_s, env={**os.environ, _SAFE: "1"}
        )
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return done.stdout


def handed_paths() -> list[str]:
    """Return where children find modules: where this process does, but in no folder that is merely the current one."""
    return [path for path in sys.path if path]


@contextmanager
def _safe_start() -> Iterator[None]:
    """Have what is started meanwhile inherit the variable and `handed_paths`."""
    with _STARTING:
        before, paths = os.environ.get(_SAFE), sys.path[:]
        os.environ[_SAFE] = "1"
        sys.path[:] = handed_paths()
        try:
            yield
        finally:
            sys.path[:] = paths
            if before is None:
                del os.environ[_SAFE]
            else:
                os.environ[_SAFE] = before
