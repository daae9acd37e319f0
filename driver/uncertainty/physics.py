"""Floors of answers that no interval goes below.

They are model FLOPs at the dense peak, traffic that cannot be avoided at the bandwidth of the memory, and what rests in
the memory of a device. Each is a share of what is predicted, so that it bounds every metric that follows from it. FLOPs
count as in the MFU of the answer; where masked attention in full makes that more than 1, only what masks leave counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ...cost.flops import Convention

if TYPE_CHECKING:
    from ..estimate import Estimate
    from ..serve.answer import ServeEstimate

# Parts of the memory of a device that are there before and after a step.
_AT_REST = ("weights", "optimizer")


def step_floor(answer: Estimate) -> float:
    """Return the least time of a step that physics allows, as a share of the predicted time."""
    metrics, bandwidth = answer.metrics, float(answer.table.system.chip.hbm_bytes_per_s)
    # A step of training reads the states of the optimizer once, and writes them.
    states_s = 2.0 * answer.memory_bytes.get("optimizer", 0.0) / bandwidth
    return max(_flops_share(answer), metrics.get("mbu", 0.0), states_s / metrics["step_time_s"])


def memory_floor(answer: Estimate) -> float:
    """Return weights and optimizer states at rest as a share of the predicted peak memory."""
    held = sum(answer.memory_bytes.get(part, 0.0) for part in _AT_REST)
    return held / answer.metrics["peak_mem_bytes"]


def server_floors(answer: ServeEstimate) -> Mapping[str, float]:
    """Return floors of a server's latencies by their names, and of the time of its work, as shares of predicted ones.

    A first token takes the step of its prompt, a later one a decode step (of drafts only its traffic), and a request
    all of them. `throughput_s` is the time of a request, or the work of all over the peaks, whichever is more.
    """
    metrics, prefill, decode = answer.metrics, answer.prefill, answer.decode
    gap_s = metrics.get("itl_s", 0.0)
    first_s = prefill.metrics["step_time_s"] * min(1.0, step_floor(prefill))
    step_s = 0.0 if answer.server.speculation is not None else decode.metrics["step_time_s"] * step_floor(decode)
    later_s = min(gap_s, max(metrics.get("mbu", 0.0) * gap_s, step_s))
    request_s = first_s + later_s * (float(np.asarray(answer.lengths.output)) - 1.0)
    least_s = {"ttft_s": first_s, "tpot_s": later_s, "itl_s": later_s, "e2el_s": request_s}
    shares = {name: seconds / metrics[name] for name, seconds in least_s.items() if metrics.get(name)}
    return {**shares, "throughput_s": max(shares["e2el_s"], metrics.get("mfu", 0.0))}


def _flops_share(answer: Estimate) -> float:
    mfu = answer.metrics["mfu"]
    if mfu <= 1.0:
        return mfu
    table = answer.table
    plans, flops = table.plans, table.lowered.flops
    env = {"batch": plans.global_batch, "seq": plans.seq_len, "kv": plans.kv_len}
    left = float(np.sum(flops.total(env, Convention.CAUSAL)))
    return mfu * left / answer.metrics["model_flops"]
