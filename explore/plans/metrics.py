"""The metrics of a row of a search of plans: those of its step, of its workload, of its money."""

from __future__ import annotations

from collections.abc import Container, Mapping

from ...ir.graph import Graph, Workload
from ...ir.sizes.fixed_sizes import counts_tokens

_STEP = (
    "step_time_s",
    "tokens_per_s",
    "tokens_per_s_per_gpu",
    "mfu",
    "hfu",
    "model_flops",
    "model_flop_per_s_per_gpu",
    "peak_mem_bytes",
    "exposed_comm_s",
    "hidden_comm_s",
)
# Of a graph without tokens.
_SAMPLES = ("samples_per_s", "samples_per_s_per_gpu")
# What is offloaded; zero where nothing is.
_HOST = "host_mem_bytes"
_OWN: Mapping[Workload, tuple[str, ...]] = {
    Workload.TRAIN: ("bubble_fraction",),
    Workload.PREFILL: ("ttft_s", "mbu"),
    Workload.DECODE: ("tpot_s", "tokens_per_s_per_user", "mbu"),
}
_MONEY = (
    "usd_per_gpu_hour", "usd_per_step", "usd_capex", "usd_opex", "usd_tco", "tokens_per_usd", "model_flops_per_usd",
    "model_flop_per_s_per_w", "average_power_w", "j_per_token", "j_per_token_facility", "kg_co2e_per_mtok",
)  # fmt: skip
_PER_MTOK: Mapping[Workload, str] = {
    Workload.TRAIN: "usd_per_mtok",
    Workload.PREFILL: "usd_per_mtok_input",
    Workload.DECODE: "usd_per_mtok_output",
}


def metrics_of(graph: Graph, asked: Container[str], offloads: bool, *, money: bool) -> tuple[str, ...]:
    """Return the metrics of each row; what is held in host memory where that is asked for or something is offloaded."""
    host = (_HOST,) if _HOST in asked or offloads else ()
    samples = () if counts_tokens(graph) else _SAMPLES
    return (*_STEP, *samples, *_OWN[graph.workload], *host, *(money_of(graph.workload) if money else ()))


def money_of(workload: Workload) -> tuple[str, ...]:
    """Return the metrics of money that a step of a workload has."""
    return (_PER_MTOK[workload], *_MONEY)


def known_metrics(workload: Workload) -> tuple[str, ...]:
    """Return every metric that a search of plans can be for."""
    return (*_STEP, *_OWN[workload], _HOST, *money_of(workload))
