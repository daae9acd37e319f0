"""Tables of measured collectives: rows into cases, and their times as the network model has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ...backends.kernels.collective import CollectiveConstants, CustomAllReduceConstants
from ...backends.kernels.constants import KernelConstants
from ...backends.machine.system import System
from ...backends.network.algorithms.algorithm import Collective
from ...backends.network.collectives import collective_time
from ...ir.records import dataclass
from ..rows.cases import Case
from ..rows.rows import NotJudged, Row
from ..rows.words import system_of

Array = NDArray[np.float64]
MIB = 2.0**20

_KINDS = MappingProxyType(
    {
        "all_reduce": "all_reduce",
        "all_gather": "all_gather",
        "reduce_scatter": "reduce_scatter",
        "alltoall": "all_to_all",
        "all_to_all": "all_to_all",
        "broadcast": "broadcast",
        "send_recv": "send",
    }
)
# Whose library ran, and how it was timed, by data set. Any other is what PyTorch runs: NCCL, as nccl-tests time it.
_LIBRARIES = MappingProxyType(
    {
        "aiconfigurator_custom_allreduce": "trtllm",
        "vidur_all_reduce": "pytorch-events",
        "vidur_send_recv": "pytorch-send",
        "vtrain_allreduce": "nccl-tests",
        "llmcompass_allreduce": "pytorch-host",
    }
)
# Which NCCL ran; what is not named here is of 2025, version 2.27 or later.
_NCCL: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(("vtrain_allreduce", "llmcompass_allreduce", "vidur_all_reduce", "vidur_send_recv"), "nccl-2023")
)
_CUSTOM = "custom all-reduce"
_SPIKES = frozenset(
    (
        "aic_h100_sxm_alltoall_4_1024",
        "aic_h100_sxm_alltoall_8_2048",
        "aic_h100_sxm_alltoall_8_32768",
        "aic_b200_sxm_all_gather_4_131072",
    )
)
_SWITCHED_OVER = frozenset(("aic_a100_sxm_all_gather_4_2097152", "aic_a100_sxm_reduce_scatter_2_2097152"))
# Of what switches reduce: too few rows tell it from rings.
_SWITCHED = ("reduced", "switching_s")
_RINGS = ("all_reduce", "all_gather", "reduce_scatter")


@dataclass(frozen=True, slots=True)
class CollectiveSizes:
    """What was exchanged: the kind, ranks, ranks between neighbours, and S in bytes."""

    kind: Collective
    group_size: int
    stride: int
    num_bytes: float


@dataclass(frozen=True, slots=True)
class CollectiveJudge:
    """Rows of NCCL, and of all-reduce kernels of serving engines."""

    name: str = "collectives"
    columns: tuple[str, ...] = ("collective", "accelerator", "n_gpus", "size_bytes", "time_us")

    def case(self, row: Row) -> Case[CollectiveSizes]:
        """Read a row; NotJudged says why it has no prediction."""
        measured_us = row.measured("time_us")
        if measured_us is None or measured_us <= 0:
            raise NotJudged("no time is given")
        sizes, custom = _sizes(row), _CUSTOM in row.text("library")
        return Case(
            row=row,
            system=system_of(row),
            library=_LIBRARIES.get(row.dataset, "pytorch"),
            cls="custom_all_reduce" if custom else "collective",
            kind="default" if custom else _NCCL.get(row.dataset, "nccl"),
            # A curve over sizes is split by size: without any row of a collective nothing would tell its bandwidth.
            group=f"{sizes.kind} of {sizes.group_size}, {sizes.num_bytes:.0f} B{', custom' if custom else ''}",
            sizes=sizes,
            measured_s=measured_us * 1e-6,
            outlier=_outlier(row, sizes),
        )

    def seconds(self, cases: Sequence[Case[CollectiveSizes]], system: System, constants: object) -> Array:
        """Predict cases that share system, library, class and kind, under these constants of their class."""
        machine = _with(system, cases[0].kind, constants)
        out = np.zeros(len(cases))
        kinds: dict[Collective, None] = {c.sizes.kind: None for c in cases}
        for kind in kinds:
            rows = [i for i, c in enumerate(cases) if c.sizes.kind == kind]
            size, stride, volume = (
                np.array([float(getattr(cases[i].sizes, name)) for i in rows])
                for name in ("group_size", "stride", "num_bytes")
            )
            out[rows] = collective_time(kind, volume, size, stride, machine).time_s
        return out

    def fixed(self, cls: str, kind: str) -> tuple[str, ...]:
        """Name the constants that rows of a kind cannot tell: collectives that no row shows, SMs that they take."""
        if cls == "custom_all_reduce":
            return ("two_shot", "second")
        kept = ("channels", "send") if kind == "nccl" else ("channels", "gather", "all_to_all", "issue_s")
        return (*kept, *_SWITCHED)


def _sizes(row: Row) -> CollectiveSizes:
    kind = _KINDS.get(row.text("collective"))
    if kind is None:
        raise NotJudged(f"'{row.text('collective')}' is not a collective of the model")
    ranks, nodes = row.number("n_gpus"), row.number("n_nodes", 1)
    num_bytes = row.measured("size_bytes")
    if num_bytes is None or ranks < 2:
        raise NotJudged("a size in bytes and two ranks or more are needed")
    if nodes > 1:
        raise NotJudged("between nodes over a link that the table does not name")
    return CollectiveSizes(cast(Collective, kind), ranks, 1, num_bytes)


def _outlier(row: Row, sizes: CollectiveSizes) -> str:
    """Say why no sane model fits a row: neighbours in size or ranks say otherwise, or the timing does."""
    size = sizes.num_bytes
    if row.id in _SPIKES:
        return "a single spike, 1.5 to 2.5 times its neighbours"
    if row.id in _SWITCHED_OVER:
        return "slower than with 8 GPUs: protocol switch"
    if row.dataset == "vidur_all_reduce" and size < MIB:
        return "vidur below 1 MiB: event timing, 7 to 80 us at random for one size"
    if row.dataset == "llmcompass_allreduce" and 65536 <= size <= 4 * MIB:
        return "LLMCompass from 64 KiB to 4 MiB: an older NCCL, 1.3 to 2 times slower"
    if row.dataset == "aiconfigurator_nccl" and _kept_too_long(row, sizes):
        return "four B200 or GB200 at 8 MiB: low-latency protocol kept too long"
    return ""


def _kept_too_long(row: Row, sizes: CollectiveSizes) -> bool:
    blackwell = row.text("accelerator").startswith(("B200", "GB200"))
    return blackwell and sizes.group_size == 4 and sizes.kind in _RINGS and sizes.num_bytes == 8 * MIB


def _with(system: System, kind: str, constants: object) -> System:
    """Put constants in place of those that the levels of a system go by, whichever NCCL they are of."""
    kernels = system.kernels
    if isinstance(constants, CustomAllReduceConstants):
        changed = replace(kernels, custom_all_reduce={**kernels.custom_all_reduce, kind: constants})
        return _changed(system, changed, True)
    assert isinstance(constants, CollectiveConstants)
    return _changed(system, replace(kernels, collective=dict.fromkeys(kernels.collective, constants)), False)


def _changed(system: System, kernels: KernelConstants, custom: bool) -> System:
    return replace(system, kernels=kernels, stack=replace(system.stack, custom_all_reduce=custom))
