"""The metrics, in the field's words: name, unit, how people see it, and what it means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ..ir.units import format_bytes, format_flop_per_s, format_flops, format_time


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of a report."""

    name: str
    label: str
    unit: str
    meaning: str


_ALL = (
    Metric("step_time_s", "step time", "s", "one optimizer step (or one prefill, or one decode step), steady state"),
    Metric("tokens_per_s", "tokens/s", "1/s", "tokens of the global batch over the step time"),
    Metric("tokens_per_s_per_gpu", "tokens/s/GPU", "1/s", "tokens/s divided by the number of GPUs"),
    Metric("tokens_per_s_per_user", "tokens/s/user", "1/s", "1 / TPOT"),
    Metric("ttft_s", "TTFT", "s", "time to the first token: one prefill, no queueing"),
    Metric("tpot_s", "TPOT", "s", "time per output token: one decode step of the whole batch"),
    Metric("mfu", "MFU", "1", "model FLOPs / (step time x GPUs x dense peak of the dtype); recomputation not counted"),
    Metric("hfu", "HFU", "1", "as MFU, with the recomputation that the plan asks for counted"),
    Metric(
        "model_flops", "model FLOPs", "FLOP", "matrix FLOPs of a step, forward and backward, of the unsharded model"
    ),
    Metric("model_flop_per_s_per_gpu", "model FLOP/s/GPU", "FLOP/s", "model FLOPs over step time and GPUs"),
    Metric(
        "peak_mem_bytes", "memory/GPU", "B", "states, kept activations, the largest temporaries, cache, and a reserve"
    ),
    Metric("host_mem_bytes", "host memory/GPU", "B", "what a device keeps in the memory of its host"),
    Metric("exposed_comm_s", "exposed comm", "s", "communication of a step that no computation hides"),
    Metric(
        "hidden_comm_s", "hidden comm", "s", "communication that runs behind computation; not part of the step time"
    ),
    Metric("bubble_fraction", "bubble", "1", "share of the step in which pipeline stages wait"),
    Metric("num_steps", "steps", "steps", "steps of the whole training run"),
    Metric("productive_time_s", "time of steps", "s", "steps of the run x step time: nothing fails, nothing is saved"),
    Metric("train_time_s", "time to train", "s", "time of steps / goodput: what the whole run takes"),
    Metric("gpu_hours", "GPU-hours", "h", "time to train x GPUs"),
    Metric("train_goodput", "goodput", "1", "share of the time of a run in which steps are made that count"),
    Metric("effective_tokens_per_s", "effective tokens/s", "1/s", "tokens/s x goodput"),
    Metric("checkpoint_bytes", "checkpoint", "B", "one copy of weights and optimizer states"),
    Metric("checkpoint_every_s", "checkpoint every", "s", "time of the steps between two checkpoints"),
    Metric("checkpoint_stall_s", "checkpoint stall", "s", "what a checkpoint adds to the run"),
    Metric("job_mtbf_s", "time between failures", "s", "mean time between failures of the whole job"),
    Metric("num_failures", "failures", "failures", "failures expected in the whole run"),
)
METRICS: Mapping[str, Metric] = MappingProxyType({m.name: m for m in _ALL})


def format_metric(name: str, value: float) -> str:
    """Format a metric for people.

    >>> format_metric("mfu", 0.4132), format_metric("tokens_per_s", 1572.4)
    ('41.3 %', '1,572')
    """
    unit = METRICS[name].unit if name in METRICS else "1"
    if unit == "s":
        return format_time(value)
    if unit == "B":
        return format_bytes(value)
    if unit == "FLOP":
        return format_flops(value)
    if unit == "FLOP/s":
        return format_flop_per_s(value)
    return f"{value * 100:.1f} %" if unit == "1" else f"{value:,.0f}"
