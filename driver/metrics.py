"""The metrics, in the field's words: name, unit, how people see it, what it means, and which way is better."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from ..ir.records import dataclass
from ..ir.units import format_in


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of an answer.

    Attributes:
        name: as reports and objectives have it.
        label: as people read it.
        unit: in which it is counted, SI.
        meaning: what it is.
        better: which way a search goes where no sign says so.
    """

    name: str
    label: str
    unit: str
    meaning: str
    better: Literal["less", "more"] = "less"


# Behind an estimate that was priced: see `cost/money.py`.
MONEY = (
    Metric(
        "usd_per_gpu_hour", "cost of a GPU-hour", "USD", "a year of owning, or renting, over the hours that GPUs serve"
    ),
    Metric("usd_per_step", "cost of a step", "USD", "cost of a GPU-hour x GPUs x step time"),
    Metric("usd_per_mtok", "cost of 1M tokens", "USD", "cost of a step over its tokens, of a million trained on"),
    Metric("usd_per_mtok_input", "cost of 1M tokens in", "USD", "the same of a million tokens read: one prefill"),
    Metric("usd_per_mtok_output", "cost of 1M tokens out", "USD", "the same of a million tokens written: decode steps"),
    Metric("usd_capex", "capital", "USD", "capital expenditure: servers, network, and their part of a building"),
    Metric("usd_opex", "operation", "USD", "interest, maintenance and energy over the servers' life; all of a rent"),
    Metric("usd_tco", "cost of owning", "USD", "depreciation and operation over the life of the servers"),
    Metric("usd_run", "cost of the run", "USD", "cost of a GPU-hour x GPU-hours of the whole run"),
    Metric("usd_run_fixed", "cost, fixed fleet", "USD", "cost of a GPU-hour x GPU-hours of all replicas all the time"),
    Metric("tokens_per_usd", "tokens/$", "1/USD", "tokens of a step over its cost", "more"),
    Metric("tokens_per_s_per_usd_capex", "tokens/s/$ of capital", "1/s/USD", "tokens/s over capex", "more"),
    Metric("model_flops_per_usd", "model FLOPs/$", "FLOP/USD", "model FLOPs of a step over its cost", "more"),
    Metric(
        "model_flop_per_s_per_w",
        "model FLOP/s/W",
        "FLOP/s/W",
        "model FLOPs of a step over the machines' joules",
        "more",
    ),
    Metric("average_power_w", "average power", "W", "what all machines draw over a step, without the building"),
    Metric("gpu_power_w", "power of a GPU", "W", "what one accelerator that computes draws over a step, by itself"),
    Metric("j_per_token", "energy of a token", "J", "what the machines draw over a step, over its tokens"),
    Metric("j_per_token_facility", "energy of a token, PUE", "J", "the same with cooling and losses of the building"),
    Metric("kg_co2e_per_mtok", "carbon of 1M tokens", "kg", "of the energy, PUE in it, and the machines' making"),
    Metric("kwh", "energy of the run", "kWh", "machines and building over the whole run"),
    Metric("tco2e_operational", "carbon of its energy", "t", "energy of the run x what the grid emits"),
    Metric("tco2e_embodied", "carbon of its machines", "t", "of making the machines, the part that the run uses up"),
    Metric("tco2e", "carbon of the run", "t", "of its energy and of its machines"),
)
# Of a server that answers requests: see `driver/serve/answer.py`.
SERVING = (
    Metric(
        "ttft_tail_s", "TTFT at the limit's percentile", "s", "TTFT that the share of requests of a limit have, or less"
    ),
    Metric(
        "tpot_tail_s", "TPOT at the limit's percentile", "s", "TPOT that the share of requests of a limit have, or less"
    ),
    Metric("ttft_low_s", "TTFT, least", "s", "time to the first token of a request whose prompt runs by itself"),
    Metric("ttft_high_s", "TTFT, most", "s", "the same behind the prompts of all others, come at the same moment"),
    Metric("itl_s", "ITL", "s", "time between two moments at which tokens of a request come"),
    Metric("e2el_s", "E2EL", "s", "from sending a request to its last token: TTFT + (output - 1) x TPOT"),
    Metric("inclusive_tpot_s", "TPOT, inclusive", "s", "E2EL over all tokens of the answer, the first included"),
    Metric("requests_per_s", "requests/s", "requests/s", "requests that all replicas together answer", "more"),
    Metric(
        "request_goodput_rps", "request goodput", "requests/s", "requests/s whose TTFT and TPOT are as asked", "more"
    ),
    Metric("total_tokens_per_s", "total tokens/s", "1/s", "tokens of prompts and answers; cached ones count", "more"),
    Metric(
        "total_tokens_per_s_per_gpu",
        "total tokens/s/GPU",
        "1/s",
        "total tokens/s divided by the number of GPUs",
        "more",
    ),
    Metric("concurrency", "concurrency", "requests", "requests in flight on all replicas, those that wait as well"),
    Metric("batch", "batch", "requests", "requests that a replica runs at once"),
    Metric(
        "max_batch", "largest batch", "requests", "requests that the KV cache of a replica, and the engine, let run"
    ),
    Metric("tokens_per_round", "tokens a round", "tokens", "tokens that a draft and its check make on average"),
    Metric("serve_utilization", "load", "1", "requests/s over the most that the replicas answer"),
    Metric("prefill_busy", "prefill pool busy", "1", "requests/s over the most that the prefill pool can answer"),
    Metric("decode_busy", "decode pool busy", "1", "requests/s over the most that the decode pool can answer"),
    Metric("transfer_s", "transfer of a cache", "s", "sending one request's cache from one pool to the other"),
    Metric(
        "flops_per_request", "FLOPs of a request", "FLOP", "matrix FLOPs of prompt and answer, cached tokens left out"
    ),
    Metric("kv_bytes_per_request", "KV cache/request", "B", "what a request holds on the fullest GPU when it ends"),
    Metric("usd_per_request", "cost of a request", "USD", "cost of a GPU-hour x GPUs / requests/s"),
)
_LATENCIES = (("ttft", "TTFT"), ("tpot", "TPOT"), ("itl", "ITL"), ("e2el", "E2EL"))
_SHARES = (("p50", "half"), ("p90", "90 %"), ("p99", "99 %"))
# Of a simulation, request by request.
SIMULATED = (
    *(
        Metric(f"{name}_{part}_s", f"{label} {part}", "s", f"{share} of the requests have this {label}, or less")
        for name, label in _LATENCIES
        for part, share in _SHARES
    ),
    Metric("num_requests", "requests", "requests", "requests that were answered in a simulation"),
    Metric("duration_s", "duration", "s", "from the first request that is sent to the last answer"),
    Metric("request_goodput_share", "in time", "1", "share of the requests whose TTFT and TPOT are as asked"),
    Metric("peak_batch", "most at once", "requests", "the most requests that a replica ran at once"),
    Metric("kv_cache_share", "KV cache in use", "1", "share of the KV cache that is held, over the whole run"),
    Metric("peak_kv_cache_share", "KV cache, most", "1", "the most of the KV cache that was held"),
    Metric("preemptions", "preemptions", "requests", "how often a request was put back and computed anew"),
    Metric("replica_mtbf_s", "MTBF of a replica", "s", "mean time between failures of a replica, while it is up"),
    Metric("replica_availability", "availability", "1", "MTBF / (MTBF + restart): share of the time a replica is up"),
    Metric("replica_up_share", "availability, simulated", "1", "the same share, counted in the simulated run"),
    Metric("replica_failures", "failures of replicas", "failures", "failures in the simulated run, of all replicas"),
    Metric("requests_restarted", "restarted", "requests", "requests that went on elsewhere as their replica failed"),
    Metric("replicas_mean", "replicas, mean", "replicas", "replicas that have GPUs, on average over the run"),
    Metric("replicas_serving", "replicas, serving", "replicas", "replicas that take requests, on average over the run"),
    Metric("replicas_most", "replicas, most", "replicas", "the most replicas that had GPUs at once"),
    Metric("replica_starts", "replicas started", "replicas", "replicas that autoscaling started during the run"),
    Metric("gpu_hours_fixed", "GPU-hours, fixed fleet", "h", "GPU-hours of a fleet that always has all replicas"),
    *(
        Metric(f"fixed_{name}_{part}_s", f"{label} {part}, fixed", "s", f"{label} {part} of a fleet of all replicas")
        for name, label in _LATENCIES[:2]
        for part, _ in _SHARES
    ),
    Metric("fixed_goodput_share", "in time, fixed", "1", "share of requests in time of a fleet of all replicas"),
)
_ALL = (
    Metric("step_time_s", "step time", "s", "one optimizer step (or one prefill, or one decode step), steady state"),
    Metric(
        "tokens_per_s",
        "tokens/s",
        "1/s",
        "tokens of the global batch over the step time; an image counts as one",
        "more",
    ),
    Metric("tokens_per_s_per_gpu", "tokens/s/GPU", "1/s", "tokens/s divided by the number of GPUs", "more"),
    Metric("samples_per_s", "samples/s", "1/s", "samples (images, ...) of the global batch over the step time", "more"),
    Metric("samples_per_s_per_gpu", "samples/s/GPU", "1/s", "samples/s divided by the number of GPUs", "more"),
    Metric("tokens_per_s_per_user", "tokens/s/user", "1/s", "1 / TPOT", "more"),
    Metric("ttft_s", "TTFT", "s", "time to the first token: one prefill; of a server with what a request waits for"),
    Metric(
        "tpot_s", "TPOT", "s", "time per output token behind the first: a decode step; of a server with what is between"
    ),
    Metric(
        "mfu",
        "MFU",
        "1",
        "model FLOPs / (step time x GPUs x dense peak of the dtype of products); recomputation not counted",
        "more",
    ),
    Metric(
        "mfu_bf16",
        "MFU of bf16",
        "1",
        "as MFU, of the peak of the dtype that the model is written in, where products run in a narrower one",
        "more",
    ),
    Metric("hfu", "HFU", "1", "as MFU, with the recomputation that the plan asks for counted", "more"),
    Metric(
        "mbu",
        "MBU",
        "1",
        "bytes of weights and cache that a step must read / (step time x peak memory bandwidth)",
        "more",
    ),
    Metric(
        "model_flops", "model FLOPs", "FLOP", "matrix FLOPs of a step, forward and backward, of the unsharded model"
    ),
    Metric("model_flop_per_s_per_gpu", "model FLOP/s/GPU", "FLOP/s", "model FLOPs over step time and GPUs", "more"),
    Metric(
        "peak_mem_bytes", "memory/GPU", "B", "states, kept activations, the largest temporaries, cache, and a reserve"
    ),
    Metric("host_mem_bytes", "host memory/GPU", "B", "what a device keeps in the memory of its host"),
    Metric("exposed_comm_s", "exposed comm", "s", "communication of a step that no computation hides"),
    Metric(
        "hidden_comm_s",
        "hidden comm",
        "s",
        "communication that runs behind computation; not part of the step time",
        "more",
    ),
    Metric("bubble_fraction", "bubble", "1", "share of the step in which pipeline stages wait"),
    Metric("num_steps", "steps", "steps", "steps of the whole training run"),
    Metric("productive_time_s", "time of steps", "s", "steps of the run x step time: nothing fails, nothing is saved"),
    Metric("train_time_s", "time to train", "s", "time of steps / goodput: what the whole run takes"),
    Metric("gpu_hours", "GPU-hours", "h", "GPUs x time: to train, or of the replicas of a run that come and go"),
    Metric("train_goodput", "goodput", "1", "share of the time of a run in which steps are made that count"),
    Metric("effective_tokens_per_s", "effective tokens/s", "1/s", "tokens/s x goodput"),
    Metric("checkpoint_bytes", "checkpoint", "B", "one copy of weights and optimizer states"),
    Metric("checkpoint_every_s", "checkpoint every", "s", "time of the steps between two checkpoints"),
    Metric("checkpoint_stall_s", "checkpoint stall", "s", "what a checkpoint adds to the run"),
    Metric("job_mtbf_s", "time between failures", "s", "mean time between failures of the whole job"),
    Metric("site_utilisation", "compute utilisation", "1", "share of the time in which sites compute, and none waits"),
    Metric("site_sync_s", "exchange of sites", "s", "time of the exchange of all weights, or of a fragment"),
    Metric("site_wait_s", "wait for sites", "s", "part of an exchange that no steps hide"),
    Metric("site_sent_bytes", "sent by a site", "B", "what a site sends between two outer steps of the same weights"),
    Metric(
        "outer_state_bytes", "outer states/GPU", "B", "weights of the last exchange and momentum, fp32, on the host"
    ),
    Metric("num_failures", "failures", "failures", "failures expected in the whole run"),
    *SERVING,
    *SIMULATED,
    *MONEY,
)
METRICS: Mapping[str, Metric] = MappingProxyType({m.name: m for m in _ALL})


def format_metric(name: str, value: float) -> str:
    """Format a metric for people.

    >>> format_metric("mfu", 0.4132), format_metric("tokens_per_s", 1572.4)
    ('41.3 %', '1,572')
    """
    unit = METRICS[name].unit if name in METRICS else "1"
    form = format_in(value, unit)
    if form is not None:
        return form
    if unit == "tokens":
        return f"{value:.2f}"
    if unit in ("requests/s", "replicas", "h"):
        return f"{value:.3g}" if value < 1e3 else f"{value:,.0f}"
    if unit in ("kg", "t", "kWh", "1/s/USD"):
        return f"{value:.3g} {unit.removeprefix('1/s/USD')}".rstrip() if value < 1e3 else f"{value:,.0f} {unit}"
    return f"{value * 100:.1f} %" if unit == "1" else f"{value:,.0f}"
