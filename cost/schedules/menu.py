"""Names of schedules and what each makes of stages, chunks and micro-batches."""

from __future__ import annotations

from ...ir.errors import UnknownNameError
from .dualpipe import dualpipe
from .loops import gpipe, interleaved, one_f_one_b
from .tasks import Schedule
from .v_shaped import zb_v
from .zero_bubble import zb_h1, zb_h2

NAMES = ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe")


def schedule_of(name: str, num_stages: int, num_micro_batches: int, num_chunks: int = 1) -> Schedule:
    """Return the orders of a schedule; `1f1b` with chunks is the interleaved one."""
    if name == "gpipe":
        return gpipe(num_stages, num_micro_batches)
    if name not in NAMES:
        raise UnknownNameError.of("pipeline schedule", name, NAMES)
    made = {"zb-h1": zb_h1, "zb-h2": zb_h2, "zb-v": zb_v, "dualpipe": dualpipe}
    if name in made:
        return made[name](num_stages, num_micro_batches)
    if num_chunks > 1:
        return interleaved(num_stages, num_micro_batches, num_chunks)
    return one_f_one_b(num_stages, num_micro_batches)
