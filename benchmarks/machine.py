"""The machine and the versions that the numbers were measured with."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def machine_facts() -> dict[str, object]:
    """Return what a reader needs to compare two results; the load says how quiet the machine was."""
    return {
        "num_cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.machine()}",
        "load_1_min": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        **{name: _version(name) for name in ("slipstick", "numpy", "torch", "transformers")},
    }


def byte_code_files() -> int:
    """Return how many modules lie compiled beside their source; without them each process compiles the package."""
    root = Path(__file__).resolve().parents[1]
    tag = sys.implementation.cache_tag
    return sum(1 for folder in ("ir", "driver", "cli", "cost") for _ in (root / folder).rglob(f"*.{tag}.pyc"))


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
            return next(named, platform.processor())
    except OSError:
        return platform.processor()
