"""Fresh processes: commands timed from outside, and measurements that a child takes of itself."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class ChildError(RuntimeError):
    """A process that did not end well, with what it said."""


def slipstick(*args: str) -> list[str]:
    """Return the installed command with arguments."""
    return [str(Path(sys.executable).with_name("slipstick")), *args]


def cpu_s(command: Sequence[str], cache: Path | None = None) -> float:
    """Return the CPU seconds of a process, those of the system for it too: what else runs shows less than in a wait."""
    start = _children_s()
    _run(command, {} if cache is None else {"SLIPSTICK_CACHE": str(cache)})
    return _children_s() - start


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def said(command: Sequence[str], cache: Path | None = None) -> str:
    """Return what a process wrote to stdout."""
    return _run(command, {} if cache is None else {"SLIPSTICK_CACHE": str(cache)})


def written(path: Path) -> None:
    """Write the large model in ONNX, in a process of its own."""
    _run([sys.executable, "-m", "benchmarks.onnx_model", str(path)], {})


def measured(probe: str, *args: str) -> Mapping[str, list[float]]:
    """Return what a probe measured in a process of its own, on one thread."""
    out = _run([sys.executable, "-m", "benchmarks.probes", probe, *args], dict.fromkeys(_THREADS, "1"))
    found: Mapping[str, list[float]] = json.loads(out)
    return found


def _run(command: Sequence[str], environment: Mapping[str, str]) -> str:
    # Modules that are compiled anew in every process would be most of what a short one takes.
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, cwd=ROOT, env={**own, **environment}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ChildError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout
