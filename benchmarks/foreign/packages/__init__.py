"""Modules of foreign packages, a file a kind of package; each is built by the package's own code and left as it is."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec

import torch

from ..case import Case
from . import attention, litgpt, text, vision, x_transformers


@lru_cache
def cases() -> tuple[Case, ...]:
    """Return every case, in order."""
    return (*text.CASES, *x_transformers.CASES, *litgpt.CASES, *attention.CASES, *vision.CASES)


def titles() -> tuple[str, ...]:
    """Return what the cases of installed packages are called."""
    return tuple(case.title for case in cases() if case.package not in missing())


@lru_cache
def missing() -> tuple[str, ...]:
    """Return the packages that are not installed."""
    packages = dict.fromkeys(case.package for case in cases())
    return tuple(name for name in packages if find_spec(name.replace("-", "_")) is None)


def define_torchvision_operators() -> None:
    """Define the operators that torchvision must find: those it compiled may not load beside a torch for the CPU."""
    for name in ("nms", "qnms"):
        with suppress(RuntimeError):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
