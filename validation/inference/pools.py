"""Disaggregated cases: a pool of workers for prompts and one for decodes, tied by the rate of their requests."""

from __future__ import annotations

from ...cost.serving.metrics import ServingMetrics
from ..rows import NotJudged
from .bench import Bench
from .cases import ServedCase


def pooled(case: ServedCase, bench: Bench) -> ServingMetrics:
    """Return latencies and rates of the pools of a case."""
    raise NotJudged("not yet")
