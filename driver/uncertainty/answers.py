"""Intervals around the metrics of an answer: those of its time, its memory, and of what follows from either.

A rate is as sure as the time that it is the inverse of, so that its interval has the same factors; so have dollars,
joules and carbon, whose prices are taken as given. What is asked for, as a rate of requests, has no interval. No end is
beyond what `physics` allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from ...ir.graph import Workload
from .bands import Band, Interval, band_of, band_within
from .evidence import Evidence, evidence_of
from .physics import memory_floor, server_floors, step_floor
from .quantities import E2EL, LOADED_TTFT, MEMORY, STEP, THROUGHPUT, TPOT, TTFT

if TYPE_CHECKING:
    from ..estimate import Estimate, Estimates
    from ..serve.answer import ServeEstimate

# What a step of each kind is judged by.
_OF_STEPS = MappingProxyType({Workload.TRAIN: STEP, Workload.PREFILL: TTFT, Workload.DECODE: TPOT})
# Metrics that follow from the time of a step, and those that follow from its inverse.
_TIMES = (
    "step_time_s",
    "ttft_s",
    "tpot_s",
    "productive_time_s",
    "train_time_s",
    "gpu_hours",
    "usd_per_step",
    "usd_per_mtok",
    "usd_per_mtok_input",
    "usd_per_mtok_output",
    "usd_run",
)
_RATES = (
    "tokens_per_s",
    "tokens_per_s_per_gpu",
    "samples_per_s",
    "samples_per_s_per_gpu",
    "tokens_per_s_per_user",
    "mfu",
    "hfu",
    "mbu",
    "model_flop_per_s_per_gpu",
    "effective_tokens_per_s",
    "tokens_per_usd",
    "model_flops_per_usd",
)
# The same of a server: what follows from its throughput, from the inverse of that, and from the time of a token.
_THROUGHPUTS = (
    "requests_per_s",
    "tokens_per_s",
    "tokens_per_s_per_gpu",
    "total_tokens_per_s",
    "total_tokens_per_s_per_gpu",
    "mfu",
    "tokens_per_usd",
)
_COSTS = ("usd_per_request", "usd_per_mtok", "usd_per_mtok_output")
_GAPS, _GAP_RATES = ("tpot_s", "itl_s"), ("tokens_per_s_per_user", "mbu")


def evidence_of_step(table: Estimates, quantity: str = "") -> Evidence:
    """Return what the times of a table of plans rest on, or another quantity of them."""
    return evidence_of(table.system, table.system.stack.name, quantity or _quantity(table))


def band_of_step(table: Estimates) -> Band:
    """Return the band of the step times of a table of plans on one system: the same for all of them.

    That of a single answer ends where physics does: see `step_bands`.
    """
    return band_of(_quantity(table), evidence_of_step(table), has_experts(table))


def _quantity(table: Estimates) -> str:
    return _OF_STEPS[table.lowered.source.workload]


def has_experts(table: Estimates) -> bool:
    """Whether the model has experts: a kernel that runs a bank of them."""
    entries = (entry for priced in table.timing.priced for entry in priced.group.entries)
    return any(entry.work.experts is not None for entry in entries)


def step_bands(answer: Estimate) -> Mapping[str, Band]:
    """Return the band of each metric of a step that has one, by name; those of its run and its money with them."""
    table = answer.table
    found = _of_step(band_of_step(table).above(step_floor(answer)))
    if table.lowered.source.workload is Workload.TRAIN:
        memory = band_of(MEMORY, evidence_of_step(table, MEMORY), has_experts(table))
        found["peak_mem_bytes"] = memory.above(memory_floor(answer))
    return found


def ratio_bands(table: Estimates) -> Mapping[str, Band]:
    """Return the band of the ratio of each metric to that of another plan on this machine by this software."""
    experts = has_experts(table)
    time = band_within(evidence_of_step(table), experts, _quantity(table))
    found = _of_step(time.over(time))
    if table.lowered.source.workload is Workload.TRAIN:
        memory = band_within(evidence_of_step(table, MEMORY), experts, MEMORY)
        found["peak_mem_bytes"] = memory.over(memory)
    return found


def _of_step(time: Band) -> dict[str, Band]:
    return {**dict.fromkeys(_TIMES, time), **dict.fromkeys(_RATES, time.inverse)}


def evidence_of_server(answer: ServeEstimate) -> Evidence:
    """Return what the latencies and rates of a server rest on."""
    return evidence_of(answer.server.system, answer.server.engine.name, THROUGHPUT)


def server_bands(answer: ServeEstimate) -> Mapping[str, Band]:
    """Return the band of each metric of a server that has one, by name."""
    first, gap, whole, rate = _bands_of_server(answer)
    floors = server_floors(answer)
    own = {"ttft_s": first, "tpot_s": gap, "itl_s": gap, "e2el_s": whole}
    found = {name: band.above(floors.get(name, 0.0)) for name, band in own.items()}
    found |= {"tokens_per_s_per_user": found["tpot_s"].inverse, "mbu": found["itl_s"].inverse}
    return found | _of_throughput(answer, rate.inverse.above(floors["throughput_s"]).inverse)


def server_ratio_bands(answer: ServeEstimate) -> Mapping[str, Band]:
    """Return the band of the ratio of each metric to that of another plan or load on this machine by this engine."""
    first, gap, whole, rate = (band.over(band) for band in _bands_of_server(answer, within=True))
    found = {"ttft_s": first, **dict.fromkeys(_GAPS, gap), **dict.fromkeys(_GAP_RATES, gap.inverse), "e2el_s": whole}
    return found | _of_throughput(answer, rate)


def _of_throughput(answer: ServeEstimate, rate: Band) -> dict[str, Band]:
    """Bands of what follows from the throughput, where that is not what was asked for."""
    if answer.load.name == "requests_per_s":
        return {}
    return {**dict.fromkeys(_THROUGHPUTS, rate), **dict.fromkeys(_COSTS, rate.inverse)}


def _bands_of_server(answer: ServeEstimate, within: bool = False) -> Iterator[Band]:
    """Bands of a first token, a later one, a request and the throughput; those of differences `within` a data set."""
    server, experts = answer.server, has_experts(answer.decode.table)
    for quantity in (LOADED_TTFT if _waits(answer) else TTFT, TPOT, E2EL, THROUGHPUT):
        evidence = evidence_of(server.system, server.engine.name, quantity)
        yield band_within(evidence, experts, quantity) if within else band_of(quantity, evidence, experts)


def _waits(answer: ServeEstimate) -> bool:
    """Whether first tokens wait for those of others: under load, or where a batch runs in waves."""
    metrics = answer.metrics
    if answer.server.runs_together(answer.load):
        return metrics["ttft_high_s"] > metrics["ttft_low_s"]
    return metrics["concurrency"] > answer.server.num_replicas


def band_of_fleet(answer: ServeEstimate) -> Band:
    """Return the band of how many machines a load takes, and of what they cost: that of the inverse of a throughput."""
    return band_of(THROUGHPUT, evidence_of_server(answer), has_experts(answer.decode.table)).inverse


def intervals(metrics: Mapping[str, float], bands: Mapping[str, Band]) -> Mapping[str, Interval]:
    """Return the interval of each metric that has a band, in the order of the metrics."""
    return {name: bands[name].around(value) for name, value in metrics.items() if name in bands}
