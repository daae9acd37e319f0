"""Measured layers of experts of Megatron-Core: dispatch, experts and combine, forward or backward, as one time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from ...backends.kernels.constants import kind_of
from ...backends.kernels.exchange import distinct_ranks
from ...backends.kernels.experts import ExpertsConstants, of_loads
from ...backends.kernels.loads import balanced_loads
from ...backends.kernels.terms import Array
from ...backends.machine.system import System
from ..rows.cases import Case
from ..rows.rows import NotJudged, Row
from ..rows.words import system_of
from .moe_exchange import exchange_seconds
from .moe_experts import dtype_of, experts_seconds, measured_s
from .moe_sizes import LayerSizes, MoeSizes

BALANCED, BACKWARD = "forced balanced", "moe_layer_backward"
# Tokens travel in 16 bits in both directions and phases.
TOKEN_BYTES = 2.0
WAYS = MappingProxyType({"deepep": "normal", "hybridep": "hybrid"})


def layer_case(row: Row) -> Case[MoeSizes]:
    """Read a layer; routing and its small kernels are in the overhead of the experts."""
    if row.text("distribution") != BALANCED:
        raise NotJudged(f"the loads of '{row.text('distribution')}' are not known")
    dtype, ep = dtype_of(row), row.number("ep")
    tokens, hidden = row.number("tokens_per_gpu"), np.array(float(row.number("hidden")))
    loads = balanced_loads(tokens * ep, row.number("n_experts"), row.number("topk"), ep)
    ffn = np.array(row.number("inter_size") / row.number("tp"))
    experts = of_loads(loads, np.array(float(tokens)), hidden, ffn, True, dtype)
    backward = row.text("quantity") == BACKWARD
    dispatcher = row.text("kernel").removeprefix("dispatcher ")
    if dispatcher not in WAYS:
        raise NotJudged(f"no exchange is modelled as '{dispatcher}'")
    ranks = np.array(float(row.number("ep")))
    node = np.array(row.number("n_gpus") / row.number("n_nodes"))
    copies = distinct_ranks(np.array(float(row.number("topk"))), ranks, node, ranks)
    sizes = LayerSizes(
        replace(experts, passes=2.0 if backward else 1.0),
        copies.sizes(np.array(float(tokens)), hidden, np.array(TOKEN_BYTES)),
        WAYS[dispatcher],
    )
    group = ",".join(row.text(c) for c in ("kernel", "hidden", "dtype"))
    return Case(row, system_of(row), "megatron-core", "experts", dtype, group, sizes, measured_s(row))


def layer_seconds(sizes: Sequence[LayerSizes], dtype: str, system: System, constants: ExpertsConstants) -> Array:
    """Predict layers: dispatch, experts and combine one after the other."""
    return np.array([_seconds(s, dtype, system, constants) for s in sizes])


def _seconds(sizes: LayerSizes, dtype: str, system: System, constants: ExpertsConstants) -> float:
    kinds = [kind_of(system.kernels.exchange, f"{direction}_{sizes.way}") for direction in ("dispatch", "combine")]
    exchanged = [exchange_seconds([sizes.sent], system, kind) for kind in kinds]
    return float(sum(exchanged, experts_seconds([sizes.experts], dtype, system, constants))[0])
