"""What a file of a software stack may hold, and what it is to the models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from ....ir.errors import UsageError
from ..files.system_numbers import (
    Bandwidth,
    Capacity,
    Count,
    Factor,
    Latency,
    Number,
    Ratio,
    Reserve,
    Section,
    Share,
    filled,
)
from .stack import MeasuredAllReduce, NetworkState, StackConstants
from .stack_limits import MOVABLE, Movable, movable


class HostFloorSection(Section):
    """The least time that the host takes to issue work."""

    layer: Latency | None = None
    layer_tp: Latency | None = None
    layer_rank: Latency | None = None
    layer_far_rank: Latency | None = None
    micro_batch: Latency | None = None
    step: Latency | None = None
    sharpness: Factor | None = None


class OverlapSection(Section):
    """Of the messages over an axis that dependencies let run beside computation, the share that does."""

    tp: Share | None = None
    ep: Share | None = None
    fsdp: Share | None = None
    dp: Share | None = None
    pp: Share | None = None
    batches: Share | None = None


class SlowdownSection(Section):
    """Time of a message inside of a job over that of the same message alone."""

    tp: Factor | None = None
    cp: Factor | None = None
    ep: Factor | None = None
    pp: Factor | None = None
    dp: Factor | None = None


class KernelSlowdownSection(Section):
    """Time of kernels in training steps over that of the same kernels alone."""

    matmul: Factor | None = None
    attention: Factor | None = None
    rowwise: Factor | None = None
    experts: Factor | None = None


class AllReduceSection(Section):
    """One measured all-reduce: how large on each rank, over how many, and its time or its bus bandwidth."""

    size: Capacity
    ranks: Count
    time: Latency | None = None
    bus_bandwidth: Bandwidth | None = None

    @model_validator(mode="after")
    def _check_one(self) -> AllReduceSection:
        if (self.time is None) == (self.bus_bandwidth is None):
            raise UsageError("give either time or bus_bandwidth of a measured all-reduce")
        if self.ranks.si < 2:
            raise UsageError("a measured all-reduce has 2 ranks or more")
        return self


class NetworkStateSection(Section):
    """What was measured of a network, in place of its model or on top of it."""

    step_latency: Latency | None = None
    all_reduce: list[AllReduceSection] = Field(default_factory=list)


class FitSection(Section):
    """Which numbers of a stack a fit may move, and by which data sets; where one did, how near it came."""

    known: ClassVar[Mapping[str, Movable]] = MOVABLE

    data_sets: tuple[str, ...] = Field(min_length=1)
    free: tuple[str, ...] = Field(min_length=1)
    table: str | None = None
    split: Literal["half", "all"] = "half"
    rule: str | None = None
    together: tuple[str, ...] = ()
    excluded: int | None = None
    tool: str | None = None
    fitted: dict[str, float] | None = None
    judged: dict[str, float] | None = None

    @model_validator(mode="after")
    def _check_free(self) -> FitSection:
        for path in self.free:
            movable(path, self.known)
        twice = sorted({path for path in self.free if self.free.count(path) > 1})
        if twice:
            raise UsageError(f"given twice: {', '.join(twice)}")
        return self


class StackSection(Section):
    """Stack constants."""

    name: str
    launch_overhead: Latency
    collective_overhead: Latency
    memory_reserve: Reserve
    workspace: Reserve | None = None
    memory_packing: Ratio | None = None
    gradient_copy: bool = False
    kernels: Literal["plain", "eager", "merged", "torch", "fused"] = "plain"
    library: str = "pytorch"
    attention: str = "flash2"
    issue_overhead: Latency | None = None
    graph_issue_overhead: Latency | None = None
    cuda_graph: bool = False
    custom_all_reduce: bool = False
    fused_all_reduce: bool = False
    host: HostFloorSection | None = None
    overlap: OverlapSection | None = None
    slowdown: SlowdownSection | None = None
    network: NetworkStateSection | None = None
    scatter_p2p: bool = False
    optimizer_passes: Factor | None = None
    clip_passes: Count | None = None
    kernel_slowdown: KernelSlowdownSection | None = None
    tf32: bool = False
    limits_apart: bool = False
    heads_apart: bool = False
    as_of: str = ""
    version_of: str = ""
    versions: str = ""
    since: str = ""
    until: str = ""
    fit: FitSection | None = None


def as_stack(section: StackSection) -> StackConstants:
    """Return a checked stack as plain numbers in base units."""
    # Keys of a file that are not the names of their fields.
    plain = StackConstants(
        name=section.name,
        launch_s=section.launch_overhead.si,
        collective_launch_s=section.collective_overhead.si,
        memory_reserve_bytes=section.memory_reserve.si,
        workspace_bytes=_or(section.workspace, 0.0),
        issue_s=_or(section.issue_overhead, 0.0),
        graph_issue_s=_or(section.graph_issue_overhead, 0.0),
    )
    found = filled(plain, section)
    return found if section.network is None else replace(found, network=_network(section.network))


def _or(number: Number | None, default: float) -> float:
    return default if number is None else number.si


def _network(section: NetworkStateSection) -> NetworkState:
    measured = sorted((_measured(s) for s in section.all_reduce), key=lambda m: (m.ranks, m.num_bytes))
    return NetworkState(_or(section.step_latency, 0.0), tuple(measured))


def _measured(section: AllReduceSection) -> MeasuredAllReduce:
    """Bus bandwidth counts 2 (n - 1)/n of the bytes, as nccl-tests prints it."""
    size, ranks = section.size.si, int(section.ranks.si)
    if section.bus_bandwidth is None:
        return MeasuredAllReduce(size, ranks, _or(section.time, 0.0))
    return MeasuredAllReduce(size, ranks, 2.0 * (ranks - 1) / ranks * size / section.bus_bandwidth.si)
