"""Intervals around the metrics of an answer: those of its time, its memory, and of what follows from either.

A rate is as sure as the time that it is the inverse of, so that its interval has the same factors; so have dollars,
joules and carbon, whose prices are taken as given. What is asked for, as a rate of requests, has no interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from ...ir.graph import Workload
from ..estimate import Estimate, Estimates
from .bands import E2EL, LOADED_TTFT, MEMORY, STEP, THROUGHPUT, TPOT, TTFT, Band, Interval, band_of
from .evidence import Evidence, evidence_of

if TYPE_CHECKING:
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


def evidence_of_step(table: Estimates) -> Evidence:
    """Return what the times of a table of plans rest on."""
    return evidence_of(table.system, table.system.stack.name)


def band_of_step(table: Estimates) -> Band:
    """Return the band of the step times of a table of plans on one system: the same for all of them."""
    return band_of(_OF_STEPS[table.lowered.source.workload], evidence_of_step(table), has_experts(table))


def has_experts(table: Estimates) -> bool:
    """Whether the model has experts: a kernel that runs a bank of them."""
    entries = (entry for priced in table.timing.priced for entry in priced.group.entries)
    return any(entry.work.experts is not None for entry in entries)


def step_bands(answer: Estimate) -> Mapping[str, Band]:
    """Return the band of each metric of a step that has one, by name; those of its run and its money with them."""
    time, table = band_of_step(answer.table), answer.table
    found = {**dict.fromkeys(_TIMES, time), **dict.fromkeys(_RATES, time.inverse)}
    if table.lowered.source.workload is Workload.TRAIN:
        found["peak_mem_bytes"] = band_of(MEMORY, evidence_of_step(table), has_experts(table))
    return found


def server_bands(answer: ServeEstimate) -> Mapping[str, Band]:
    """Return the band of each metric of a server that has one, by name."""
    server = answer.server
    evidence = evidence_of(server.system, server.engine.name)
    experts = has_experts(answer.decode.table)
    alone = server.runs_together(answer.load) or answer.metrics["concurrency"] <= server.num_replicas
    first, gap, whole, rate = (
        band_of(quantity, evidence, experts) for quantity in (TTFT if alone else LOADED_TTFT, TPOT, E2EL, THROUGHPUT)
    )
    found = {"ttft_s": first, **dict.fromkeys(_GAPS, gap), **dict.fromkeys(_GAP_RATES, gap.inverse), "e2el_s": whole}
    if answer.load.name != "requests_per_s":
        found |= {**dict.fromkeys(_THROUGHPUTS, rate), **dict.fromkeys(_COSTS, rate.inverse)}
    return found


def band_of_fleet(answer: ServeEstimate) -> Band:
    """Return the band of how many machines a load takes, and of what they cost: that of the inverse of a throughput."""
    evidence = evidence_of(answer.server.system, answer.server.engine.name)
    return band_of(THROUGHPUT, evidence, has_experts(answer.decode.table)).inverse


def intervals(metrics: Mapping[str, float], bands: Mapping[str, Band]) -> Mapping[str, Interval]:
    """Return the interval of each metric that has a band, in the order of the metrics."""
    return {name: bands[name].around(value) for name, value in metrics.items() if name in bands}
