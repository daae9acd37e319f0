"""Quantities whose errors are known, and which measurements of whole runs speak for which of them."""

from __future__ import annotations

# Of a training run: seconds of a step, and bytes of the fullest device.
STEP, MEMORY = "step", "memory"
# Of a server: a first token that waits for nobody, one under load, later tokens, whole requests, and their rate.
TTFT, LOADED_TTFT, TPOT, E2EL, THROUGHPUT = "ttft", "loaded_ttft", "tpot", "e2el", "throughput"
SERVING = (TTFT, LOADED_TTFT, TPOT, E2EL, THROUGHPUT)
QUANTITIES = (STEP, *SERVING, MEMORY)
# Suffix of differences between runs of one data set by one software: what a ratio of two answers is subject to.
WITHIN = "within"


def alike(quantity: str) -> tuple[str, ...]:
    """Return the quantities whose measurements speak for software in this one: servers say nothing of training.

    >>> alike("step.within"), alike("tpot") == SERVING
    (('step',), True)
    """
    whole = quantity.partition(".")[0]
    return SERVING if whole in SERVING else (whole,)
