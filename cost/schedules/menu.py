"""Names of schedules and what each makes of stages, chunks and micro-batches."""

from __future__ import annotations

from ...ir.errors import UnknownNameError
from .loops import gpipe, interleaved, one_f_one_b
from .tasks import Schedule

NAMES = ("gpipe", "1f1b", "interleaved")


def schedule_of(name: str, num_stages: int, num_micro_batches: int, num_chunks: int = 1) -> Schedule:
    """Return the orders of a schedule; `1f1b` with chunks is the interleaved one."""
    if name == "gpipe":
        return gpipe(num_stages, num_micro_batches)
    if name not in NAMES:
        raise UnknownNameError.of("pipeline schedule", name, NAMES)
    if num_chunks > 1:
        return interleaved(num_stages, num_micro_batches, num_chunks)
    return one_f_one_b(num_stages, num_micro_batches)
