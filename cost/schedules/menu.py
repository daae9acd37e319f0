"""Names of schedules and what each makes of stages, chunks and micro-batches."""

from __future__ import annotations

from ...ir.plan.layout.pipelines import INTERLEAVED, check_schedule
from .dualpipe import dualpipe, dualpipe_v
from .loops import gpipe, interleaved, one_f_one_b
from .tasks import Schedule
from .v_shaped import zb_v
from .zero_bubble import interleaved_zb, zb_h1, zb_h2


def schedule_of(name: str, num_stages: int, num_micro_batches: int, num_chunks: int = 1) -> Schedule:
    """Return the orders of a schedule; with chunks `1f1b` and `zb-h1` are interleaved, DualPipe's are two copies.

    UnknownNameError or PlanError as `check_schedule` raises them.
    """
    whole = {
        "gpipe": gpipe, "1f1b": one_f_one_b, "zb-h1": zb_h1, "zb-h2": zb_h2, "dualpipe": dualpipe, "zb-v": zb_v,
        "dualpipe-v": dualpipe_v,
    }  # fmt: skip
    check_schedule(name, num_micro_batches, num_stages, 1 if name == "dualpipe" else num_chunks)
    if num_chunks > 1 and name in INTERLEAVED:
        made = interleaved if name == "1f1b" else interleaved_zb
        return made(num_stages, num_micro_batches, num_chunks)
    return whole[name](num_stages, num_micro_batches)
