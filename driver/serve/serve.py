"""A server's answer for a load: its closed form, what its requests see, and its steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...cost.serving.batching.static import static_batch
from ...cost.serving.batching.steps import groups_of
from ...cost.serving.capacity import max_batch
from ...cost.serving.metrics import ServingMetrics
from ...cost.serving.slo import ANYTHING, SLO, tails_of
from ...cost.serving.traffic.requests import Lengths
from ...ir.errors import UsageError
from ..estimate import Estimate
from .answer import ServeEstimate, answer_of, with_goodput
from .load import Load, under_load
from .server import Server, check_longest


def serve(server: Server, lengths: Lengths, load: Load, target: SLO = ANYTHING) -> ServeEstimate:
    """Answer for requests of given lengths under a load; of a target says how many requests/s meet it.

    InfeasibleError where no request fits, where more requests are asked for than can be answered, and where no load is
    given and one request alone misses the target.
    """
    check_longest(server, lengths)
    each = load.of_replica(server.num_replicas)
    together = together_of(server, each, lengths)
    if together is not None:
        found = static_batch(server.times, server.engine, together, lengths)
    else:
        found = under_load(server.times, server.engine, each, lengths, target)
    found = tails_of(server.times, server.engine, lengths, target)(found)
    found = replace(found, tokens_per_gap=server.tokens_per_gap)
    prefill, decode = phases_of(server, lengths, found, together is not None)
    return with_goodput(answer_of(server, lengths, load, found, prefill, decode, together is not None), target)


def together_of(server: Server, load: Load, lengths: Lengths) -> float | None:
    """Return the requests of a replica that run together: as asked, or because its engine has nothing else.

    None with continuous batching; UsageError for a rate of requests that such an engine would have to gather first.
    """
    if load.batch is not None or not server.runs_together(load):
        return load.batch
    if load.requests_per_s is not None:
        raise UsageError(f"engine {server.engine.name} runs static batches: say how many requests, with --batch")
    if load.concurrency is not None:
        return load.concurrency
    return float(max_batch(server.times, server.engine.scheduler, lengths, whole=True))


def phases_of(server: Server, lengths: Lengths, found: ServingMetrics, together: bool) -> tuple[Estimate, Estimate]:
    """Estimate one prompt by itself, or `together` all of a batch, and a decode step at the mean context.

    With pipeline stages either is of one group of the batch.
    """
    prompt, output = float(np.asarray(lengths.prompt)), float(np.asarray(lengths.output))
    groups = float(groups_of(server.times, found.batch))
    fresh = float(lengths.fresh)
    first = server.phase(server.served.prefill, float(found.batch) / groups if together else 1.0, fresh)
    step = server.phase(server.served.decode, float(found.decodes) / groups, prompt + output / 2, prompt + output / 2)
    return first, step
