"""Where the time of a request goes: request overhead, waits, parts of its prefill and of its decode steps, host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ...cost.serving.batching.static import batch_prefill_s
from ...cost.serving.batching.steps import decode_step_s, groups_of, host_s, prefill_s, way_in_s
from ...cost.serving.metrics import ServingMetrics
from ...cost.serving.traffic.requests import Lengths
from ..estimate import Estimate

if TYPE_CHECKING:
    from .server import Server

WAY_IN, QUEUE, INTERFERENCE, HOST, DRAFT = "host.request", "queue", "interference", "host.steps", "draft"


def request_parts(
    server: Server, lengths: Lengths, found: ServingMetrics, prefill: Estimate, decode: Estimate, together: bool = False
) -> Mapping[str, float]:
    """Return seconds by part; they add up to `e2el_s`. Prompts that run `together` are one prefill.

    `prefill.*` and `decode.*` are spread as the kernels and messages of one step are; `queue` is what a first token
    waits for beside its own prompt, `interference` what prefills of other requests add between tokens.
    """
    gaps, over = float(lengths.gaps), server.engine.overheads
    way_in = float(way_in_s(over, lengths))
    first, first_host = _first_s(server, lengths, found, together)
    tpot = float(found.tpot_s) if gaps else 0.0
    groups = groups_of(server.times, found.batch)
    step_host = min(float(host_s(over, found.decodes / groups)), tpot)
    alone = float(decode_step_s(server.times, over, found.decodes, lengths)) - float(
        host_s(over, found.decodes / groups)
    )
    step = min(alone, tpot - step_host)
    waits = max(float(found.ttft_s) - way_in - first - first_host, 0.0)
    parts = {WAY_IN: way_in, QUEUE: waits, **spread_over("prefill", first, prefill)}
    drafts = min(_draft_s(server, lengths, found), step)
    parts |= spread_over("decode", gaps * (step - drafts), decode)
    parts[DRAFT] = gaps * drafts
    parts[INTERFERENCE] = max(gaps * (tpot - step_host - step), 0.0)
    parts[HOST] = first_host + gaps * step_host
    return {name: seconds for name, seconds in parts.items() if seconds > 0.0}


def _draft_s(server: Server, lengths: Lengths, found: ServingMetrics) -> float:
    """Seconds of a token in which it is drafted; nothing where none are."""
    if server.checking is None:
        return 0.0
    over = server.engine.overheads
    drafted, free = (decode_step_s(times, over, found.decodes, lengths) for times in (server.times, server.checking))
    return max(float(drafted - free), 0.0)


def _first_s(server: Server, lengths: Lengths, found: ServingMetrics, together: bool) -> tuple[float, float]:
    """Seconds of the prompt by itself, of kernels and of the host; of a static batch, of all prompts together."""
    engine, room = server.engine, float(found.ttft_s) - float(way_in_s(server.engine.overheads, lengths))
    alone = float(
        batch_prefill_s(server.times, engine, found.batch, lengths)
        if together
        else prefill_s(server.times, engine, lengths)
    )
    alone = min(alone, room)
    tokens = float(lengths.fresh) * (float(found.batch) if together else 1.0)
    host = min(float(np.ceil(tokens / engine.scheduler.max_batched_tokens)) * engine.overheads.step_s, alone)
    return alone - host, host


def spread_over(phase: str, seconds: float, step: Estimate) -> Mapping[str, float]:
    """Return seconds distributed as a step of the phase does."""
    whole = sum(step.breakdown_s.values())
    return {f"{phase}.{name}": seconds * part / whole for name, part in step.breakdown_s.items() if part > 0.0}
