"""Modules of foreign packages, a file a kind of package; each is built by the package's own code and left as it is."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache

import torch

from ..case import Case
from . import attention, litgpt, text, vision, x_transformers


@lru_cache
def cases() -> tuple[Case, ...]:
    """Return every case, in order."""
    return (*text.CASES, *x_transformers.CASES, *litgpt.CASES, *attention.CASES, *vision.CASES)


def titles() -> tuple[str, ...]:
    """Return what all cases are called."""
    return tuple(case.title for case in cases())


def define_torchvision_operators() -> None:
    """Define the operators that torchvision must find: those it compiled may not load beside a torch for the CPU."""
    for name in ("nms", "qnms"):
        with suppress(RuntimeError):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
