"""Measured exchanges of tokens between ranks: rows to bytes, bytes to seconds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...backends.kernels.exchange import (
    FP8_BYTES,
    ExchangeConstants,
    ExchangeRates,
    ExchangeSizes,
    TokenCopies,
    balanced_ranks,
    distinct_ranks,
    each_expert,
    exchange_times,
    reached_places,
)
from ...backends.kernels.terms import Array
from ...backends.machine.system import System
from ..rows.cases import Case
from ..rows.rows import NotJudged, Row
from ..rows.words import system_of
from .moe_sizes import MoeSizes

# DeepEP's own benchmark routes a token to four nodes at most.
GROUPS = 4
_OUTLIERS = tuple(f"aic_gb200_a2a_alltoall_combine_NVLinkTwoSided_{dtype}_1_16" for dtype in ("bfloat16", "fp8"))
_SPIKE = "60 us between 14 us of 8 and of 32 ranks"


def exchange_case(row: Row) -> Case[MoeSizes]:
    """Read an exchange; a bandwidth becomes a time by the bytes that its benchmark divides by."""
    system = system_of(row)
    way, direction = _way(row), "dispatch" if "dispatch" in row.text("quantity") else "combine"
    # Results come back in 16 bits, whatever the tokens went out in.
    token = float(row.number("hidden")) * (FP8_BYTES if row.text("dtype") == "fp8" and direction == "dispatch" else 2.0)
    sizes = _copies(row, way).sizes(np.array(float(row.number("tokens_per_gpu"))), np.array(token), np.array(1.0))
    group = ",".join([direction, way, *(row.text(c) for c in ("hidden", "topk", "n_gpus", "tokens_per_gpu"))])
    library = "trtllm" if way == "two_sided" else "deepep"
    outlier = _SPIKE if row.id in _OUTLIERS else ""
    measured = _measured_s(row, token)
    return Case(row, system, library, "exchange", f"{direction}_{way}", group, sizes, measured, outlier)


def exchange_seconds(sizes: Sequence[ExchangeSizes], system: System, constants: ExchangeConstants) -> Array:
    """Predict exchanges of one kind."""
    whole = ExchangeSizes(np.array([s.link_bytes for s in sizes]), np.array([s.nic_bytes for s in sizes]))
    return exchange_times(whole, rates_of(system), system.chip, constants).time_s


def rates_of(system: System) -> ExchangeRates:
    """Return the bandwidths that an exchange goes over: that of the node, and the outermost."""
    inner = next(
        (level for level in system.levels if (level.size is None or level.size >= system.node_size)), system.levels[-1]
    )
    return ExchangeRates(inner.bytes_per_s, system.levels[-1].bytes_per_s)


def _way(row: Row) -> str:
    kernel = row.text("kernel")
    if kernel.startswith("low-latency"):
        return "low_latency"
    if kernel.startswith("normal"):
        return "normal"
    if kernel == "NVLinkTwoSided":
        return "two_sided"
    raise NotJudged(f"no exchange is modelled as '{kernel}'")


def _copies(row: Row, way: str) -> TokenCopies:
    top_k, ranks = (np.array(float(row.number(c))) for c in ("topk", "n_gpus"))
    if way == "two_sided":
        return balanced_ranks(top_k, ranks, ranks)
    node = np.array(row.number("n_gpus") / row.number("n_nodes"))
    if way == "normal":
        return distinct_ranks(top_k, ranks, node, np.array(float(GROUPS)))
    return each_expert(top_k, ranks, np.array(1.0) if "pure RDMA" in row.text("kernel") else node)


def _measured_s(row: Row, token_bytes: float) -> float:
    given = row.measured("time_us")
    if given is not None:
        return given * 1e-6
    bandwidth = row.measured("bandwidth_gb_per_s")
    if bandwidth is None:
        raise NotJudged("neither time_us nor bandwidth_gb_per_s is given")
    # Copies that DeepEP's benchmark divides by: to all ranks of one node, or to all nodes, its own among them.
    kind = row.text("bandwidth_kind")
    if not kind.startswith("bottleneck"):
        raise NotJudged(f"a bandwidth '{kind}' does not give a time")
    nodes, ranks = row.number("n_nodes"), row.number("n_gpus")
    places = min(GROUPS, nodes) if nodes > 1 else ranks
    counted_copies = float(reached_places(np.array(float(places)), np.array(float(row.number("topk")))))
    return row.number("tokens_per_gpu") * token_bytes * counted_copies / (bandwidth * 1e9)
