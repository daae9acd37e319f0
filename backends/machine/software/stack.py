"""What a software stack does that a chip does not: its overheads, its kernels, what it hides, what the host costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, TypeVar

from ....ir.placement import CP, EP, PP, TP, AxisGroup
from ....ir.plan.training.decisions import Decisions
from ....ir.records import dataclass
from ..files.kinds import (
    CAPACITY,
    COUNT,
    FACTOR,
    LATENCY,
    RATIO,
    RESERVE,
    SHARE,
    SOME,
    Key,
)
from .phases import PHASES, Phase

if TYPE_CHECKING:
    from ....ir.ops import OpClass

# Of the bytes that an update moves (fp32 gradient, weight, and its states twice), those of the gradient.
_GRADIENT_SHARE = 4.0 / 30.0
# How sharply the greater of two times hides the smaller: 1 adds them, infinity is the greater alone.
SHARPNESS = 6.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FitBounds:
    """Between what a fit may move a number, in the unit in which files have it.

    Attributes:
        low: the least that it may be.
        high: the most.
        unit: in which it is written: `ms`, or nothing for a plain number.
        rolled: whether it matters only where times of kernels and messages are put together.
    """

    low: float
    high: float
    unit: str = ""
    rolled: bool = False


def fitted(default: T, ends: FitBounds) -> T:
    """Make a field of a record that a fit may move; every list of such numbers is read from the records."""
    return field(default=default, metadata={"ends": ends})


def up_to_ms(most: float, default: float = 0.0) -> float:
    """Make a field of a time that a fit may move."""
    return fitted(default, FitBounds(0.0, most, "ms", rolled=True))


_SHARE = FitBounds(0.0, 1.0, rolled=True)
_MESSAGE = FitBounds(0.5, 5.0)
_KERNEL = FitBounds(0.7, 4.0)


@dataclass(frozen=True, slots=True)
class HostFloor:
    """The least time that the host takes to issue work; where it is longer, the device waits.

    Attributes:
        layer_s: for a layer of one micro-batch, forward and backward; recomputing adds its share.
        layer_tp_s: more for it where there is tensor parallelism.
        layer_rank_s: more for it a tensor-parallel rank.
        layer_far_rank_s: more for it a tensor-parallel rank beyond a node.
        micro_batch_s: once a micro-batch and pipeline stage, never hidden.
        step_s: once a step, never hidden.
        sharpness: q of `(device^q + host^q)^(1/q)`, what a layer takes.
    """

    layer_s: Annotated[float, Key("layer"), LATENCY] = up_to_ms(20)
    layer_tp_s: Annotated[float, Key("layer_tp"), LATENCY] = up_to_ms(10)
    layer_rank_s: Annotated[float, Key("layer_rank"), LATENCY] = up_to_ms(10)
    layer_far_rank_s: Annotated[float, Key("layer_far_rank"), LATENCY] = up_to_ms(10)
    micro_batch_s: Annotated[float, Key("micro_batch"), LATENCY] = up_to_ms(10)
    step_s: Annotated[float, Key("step"), LATENCY] = up_to_ms(100)
    sharpness: Annotated[float, FACTOR] = fitted(SHARPNESS, FitBounds(1.0, 20.0, rolled=True))


@dataclass(frozen=True, slots=True)
class Overlap:
    """Of the messages over an axis that dependencies let run beside computation, the share that does, 0 to 1.

    Attributes:
        tp: tensor parallelism: beside products that neither make nor need the message.
        frozen: with `--async-tp`, gradients that products of frozen weights scatter: beside these products.
        ep: exchanges of experts: beside what does not depend on them, as shared experts.
        fsdp: what ZeRO 2 and 3 gather and scatter in a micro-batch: beside its computation.
        dp: gradients of a step, and parameters gathered once: beside one backward, or forward, phase.
        pp: between interleaved stages: beside their other chunks.
        batches: exchanges of experts: beside the computation of another micro-batch, whose layers run in turn.
        contention: seconds of computation that a second of hidden messages of data and context parallelism costs, where
            these take all of the bandwidth of HBM.
    """

    tp: Annotated[float, SHARE] = fitted(0.0, _SHARE)
    frozen: Annotated[float, SHARE] = fitted(1.0, _SHARE)
    ep: Annotated[float, SHARE] = fitted(0.0, _SHARE)
    fsdp: Annotated[float, SHARE] = fitted(1.0, _SHARE)
    dp: Annotated[float, SHARE] = fitted(1.0, _SHARE)
    pp: Annotated[float, SHARE] = fitted(1.0, _SHARE)
    batches: Annotated[float, SHARE] = fitted(0.0, _SHARE)
    contention: Annotated[float, SOME] = fitted(0.0, FitBounds(0.0, 4.0, rolled=True))


@dataclass(frozen=True, slots=True)
class Slowdown:
    """Time of a message inside of a job over that of the same message alone: 1 and more.

    Attributes:
        tp: of tensor parallelism.
        cp: of context parallelism.
        ep: of expert parallelism.
        pp: between pipeline stages.
        dp: of data parallelism, sharded or not.
    """

    tp: Annotated[float, FACTOR] = fitted(1.0, _MESSAGE)
    cp: Annotated[float, FACTOR] = fitted(1.0, _MESSAGE)
    ep: Annotated[float, FACTOR] = fitted(1.0, _MESSAGE)
    pp: Annotated[float, FACTOR] = fitted(1.0, _MESSAGE)
    dp: Annotated[float, FACTOR] = fitted(1.0, _MESSAGE)

    def of(self, group: AxisGroup) -> float:
        """Return the factor of messages of a group: that of its outermost axis."""
        factors: dict[str, float] = {TP: self.tp, CP: self.cp, EP: self.ep, PP: self.pp}
        return factors.get(group.booked_on, self.dp)


@dataclass(frozen=True, slots=True)
class KernelSlowdown:
    """Time of kernels in training steps over that of the same kernels alone, as calibrations have them.

    Clocks under the load of a whole node, and kernels of other versions, differ from those in tables of kernels.

    Attributes:
        matmul: of matrix products.
        attention: of fused attention.
        rowwise: of everything else on the device, but for updates.
        experts: of banks of experts; None where it is that of matrix products.
    """

    matmul: Annotated[float, FACTOR] = fitted(1.0, _KERNEL)
    attention: Annotated[float, FACTOR] = fitted(1.0, _KERNEL)
    rowwise: Annotated[float, FACTOR] = fitted(1.0, _KERNEL)
    experts: Annotated[float | None, FACTOR] = fitted(None, FitBounds(0.25, 4.0))

    def of(self, kind: OpClass) -> float:
        """Return the factor of a class of ops."""
        from ....ir.ops import OpClass

        if kind is OpClass.EXPERTS and self.experts is not None:
            return self.experts
        if kind in (OpClass.MATMUL, OpClass.EXPERTS):
            return self.matmul
        if kind is OpClass.ATTENTION:
            return self.attention
        return 1.0 if kind in (OpClass.HOST, OpClass.OPTIMIZER) else self.rowwise


@dataclass(frozen=True, slots=True)
class MeasuredAllReduce:
    """A measured all-reduce: bytes on each rank, ranks, and the time it took."""

    num_bytes: Annotated[float, Key("size"), CAPACITY]
    ranks: Annotated[int, COUNT]
    time_s: Annotated[float, Key("time", needed=False), LATENCY]


@dataclass(frozen=True, slots=True)
class NetworkState:
    """What was measured of a network, in place of its model or on top of it.

    Attributes:
        step_latency_s: more for each of the n - 1 steps of a collective over n ranks of more than two nodes.
        all_reduces: times that replace the model for groups of as many ranks; all-gather and reduce-scatter are half.
    """

    step_latency_s: Annotated[float, Key("step_latency"), LATENCY] = 0.0
    all_reduces: Annotated[tuple[MeasuredAllReduce, ...], Key("all_reduce")] = ()


@dataclass(frozen=True, slots=True)
class StackConstants:
    """What the software adds: time per kernel and per collective, memory that the model cannot have.

    Attributes:
        name: as people call it, `megatron-core`.
        launch_s: time of a kernel launch, for kernels without a model of their own.
        collective_launch_s: the same for a collective.
        memory_reserve_bytes: what driver, context and communication libraries take outside of the allocator.
        workspace_bytes: scratch buffers of libraries inside of the allocator.
        memory_packing: share of what the allocator holds that tensors fill.
        gradient_copy: whether data parallelism keeps gradients a second time, as they are computed, in its buckets.
        phases: what it runs, of `train`, `prefill`, `decode` and `serve`.
        decides: what it decides of plans that leave it open.
        library: whose kernels it runs, by its name in calibrations.
        custom_all_reduce: whether it has an all-reduce in one kernel for small messages, as serving engines do.
        fused_all_reduce: whether a kernel behind an all-reduce that adds and normalises its result is part of it.
        attention: its kernel of attention in training, by its name in calibrations.
        issue_s: time of the host to issue a kernel, without which the next cannot start.
        graph_issue_s: the same inside of a captured CUDA graph.
        cuda_graph: whether kernels are captured into graphs and replayed.
        host: the least time of a layer, a micro-batch and a step.
        overlap: which messages it hides behind computation.
        slowdown: how much longer messages take in a job than alone.
        network: what was measured of the network it runs on.
        optimizer_passes: times that the update reads and writes its states: 1 where it is one kernel.
        clip_passes: times that gradients are read or written to limit their norm before the update.
        rank_spread: standard deviation of the time that ranks take for the same work in training, over its mean.
        tf32: whether products of fp32 run on the matrix units in tf32.
        limits_apart: whether the limits of the activation of experts with biases (gpt-oss) are kernels of their own.
        heads_apart: whether attention over a cache reads it once a query head, also where heads share keys and values.
        kernel_slowdown: how much longer kernels take in its steps than alone.
        framework: whose launches say its plans: that of an exporter, or of the names of schedules; empty for any plan.
        runs: values of words of a plan that it runs, by word: `zero: 0, 1`; of other words all that its framework says.
        as_of: the year or month that it describes.
        version_of: the product whose older version it is; empty for what is run today.
        versions: those that it stands for, `0.4 .. 0.6`.
        since: the month in which people began to run them.
        until: the month in which they stopped.
    """

    name: str
    launch_s: Annotated[float, Key("launch_overhead"), LATENCY]
    collective_launch_s: Annotated[float, Key("collective_overhead"), LATENCY]
    memory_reserve_bytes: Annotated[float, Key("memory_reserve"), RESERVE]
    workspace_bytes: Annotated[float, Key("workspace"), RESERVE] = 0.0
    memory_packing: Annotated[float, RATIO] = 1.0
    gradient_copy: bool = False
    phases: tuple[Phase, ...] = PHASES
    decides: Decisions = field(default_factory=Decisions)
    library: str = "pytorch"
    attention: str = "flash2"
    issue_s: Annotated[float, Key("issue_overhead"), LATENCY] = 0.0
    graph_issue_s: Annotated[float, Key("graph_issue_overhead"), LATENCY] = 0.0
    cuda_graph: bool = False
    custom_all_reduce: bool = False
    fused_all_reduce: bool = False
    host: HostFloor = field(default_factory=HostFloor)
    overlap: Overlap = field(default_factory=Overlap)
    slowdown: Slowdown = field(default_factory=Slowdown)
    network: NetworkState = field(default_factory=NetworkState)
    optimizer_passes: Annotated[float, FACTOR] = fitted(1.0, FitBounds(1.0, 8.0))
    clip_passes: Annotated[float, COUNT] = 0.0
    rank_spread: Annotated[float, SHARE] = fitted(0.0, FitBounds(0.0, 0.1, rolled=True))
    kernel_slowdown: KernelSlowdown = field(default_factory=KernelSlowdown)
    tf32: bool = False
    limits_apart: bool = False
    heads_apart: bool = False
    framework: str = field(default="", repr=False)
    runs: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    as_of: str = ""
    version_of: str = field(default="", repr=False)
    versions: str = field(default="", repr=False)
    since: str = field(default="", repr=False)
    until: str = field(default="", repr=False)

    def factor(self, kind: OpClass) -> float:
        """Return the time of kernels of a class in its steps over that of one fused kernel alone."""
        from ....ir.ops import OpClass

        if kind is OpClass.OPTIMIZER:
            return self.optimizer_passes + self.clip_passes * _GRADIENT_SHARE
        return self.kernel_slowdown.of(kind)

    @property
    def spacing_s(self) -> float:
        """The least time from one kernel to the next: what the host, or a captured graph, takes to issue one."""
        return self.graph_issue_s if self.cuda_graph else self.issue_s
