"""A step into a whole training run: how many steps, how long with checkpoints and failures, how many GPU-hours."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, TypeAlias

from ...backends.machine.system import System
from ...ir.errors import UsageError
from ...ir.graph import Graph
from ...ir.ops.optimizer import OptimizerAttrs
from ...ir.plan import Plan
from ...ir.records import dataclass
from ...ir.sizes.fixed_sizes import counts_tokens
from ...ir.units import format_bytes, format_time
from ..memory.states import held_parameters
from .goodput import TimeShares, best_interval_s, shares
from .sites import SiteExchange, Sites

Unit: TypeAlias = Literal["gpu", "node", "job"]
UNITS: tuple[Unit, ...] = ("gpu", "node", "job")
Amount: TypeAlias = Literal["tokens", "samples", "steps"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """How a run is saved. All nodes write at once, each its part of one copy of the states.

    Attributes:
        every_steps: steps between two checkpoints.
        every_s: or work between them, to the nearest step; with neither, what makes the run shortest.
        bytes_per_s: what the storage takes from the whole job.
        node_bytes_per_s: what one node reaches; the slower of the two counts.
        num_bytes: of a checkpoint; None for weights and optimizer states.
        stall_s: what a checkpoint adds to the run, where that was measured.
        asynchronous: the run waits only for the copy to the memory of the host, and is written from there.
    """

    every_steps: int | None = None
    every_s: float | None = None
    bytes_per_s: float | None = None
    node_bytes_per_s: float | None = None
    num_bytes: float | None = None
    stall_s: float | None = None
    asynchronous: bool = False

    def __post_init__(self) -> None:
        """Refuse what is not positive, and storage without a speed."""
        numbers = {
            "--checkpoint-every": (self.every_steps, self.every_s),
            "--checkpoint-bandwidth": (self.bytes_per_s,),
            "--checkpoint-node-bandwidth": (self.node_bytes_per_s,),
            "--checkpoint-bytes": (self.num_bytes,),
            "--checkpoint-stall": (self.stall_s,),
        }
        for name, values in numbers.items():
            wrong = [v for v in values if v is not None and not 0 < v < math.inf]
            if wrong:
                raise UsageError(f"{name} is {wrong[0]:g}: a number above 0 is needed")
        known = self.bytes_per_s is not None or self.node_bytes_per_s is not None
        if not known and (self.stall_s is None or self.asynchronous):
            raise UsageError(
                "checkpoints need the bandwidth of their storage: --checkpoint-bandwidth 200GB/s for the whole job, "
                "--checkpoint-node-bandwidth 2GB/s for a node, or both; or, unless they are asynchronous, the time "
                "that one was measured to take: --checkpoint-stall 20s"
            )

    def storage_bytes_per_s(self, num_nodes: int) -> float:
        """Return what all nodes reach together."""
        of_nodes = math.inf if self.node_bytes_per_s is None else self.node_bytes_per_s * num_nodes
        return min(of_nodes, math.inf if self.bytes_per_s is None else self.bytes_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """How often something fails and what a failure costs.

    Attributes:
        mtbf_s: mean time between failures of one `of`, all causes together.
        of: a GPU, a node, or the whole job, which fails as often as its parts together.
        restart_s: from a failure to the first step behind it: notice, replace, start, load.
    """

    mtbf_s: float
    of: Unit = "gpu"
    restart_s: float = 600.0

    def __post_init__(self) -> None:
        """Refuse what is not positive."""
        if not self.mtbf_s > 0 or not 0 <= self.restart_s < math.inf:
            raise UsageError(
                f"--mtbf is {self.mtbf_s:g} s and --restart-time {self.restart_s:g} s: above 0, and 0 or more"
            )

    def of_job_s(self, num_gpus: int, num_nodes: int) -> float:
        """Return the mean time between failures of a job: M = MTBF / n.

        >>> round(Failures(mtbf_s=50_677 * 3600).of_job_s(16_384, 2048) / 3600, 2)
        3.09
        """
        return self.mtbf_s / {"gpu": num_gpus, "node": num_nodes, "job": 1}[self.of]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """What a run knows of its steps and its machine; `copy_bytes_per_s` is a GPU's share of the link to its host."""

    step_time_s: float
    samples: int
    tokens: int
    num_gpus: int
    num_nodes: int
    state_bytes: float
    num_parameters: float = 0.0
    copy_bytes_per_s: float | None = None

    @classmethod
    def of(cls, graph: Graph, system: System, plan: Plan, step_time_s: float) -> TrainingJob:
        """Gather what a traced model, a machine and a plan say."""
        link = system.chip.host_link
        length = plan.seq_len if counts_tokens(graph) else 1
        return cls(
            step_time_s=step_time_s,
            samples=plan.global_batch,
            tokens=plan.global_batch * length,
            num_gpus=plan.num_gpus,
            num_nodes=-(-plan.num_gpus // system.node_size),
            state_bytes=checkpoint_bytes(graph, OptimizerAttrs(*plan.family.states)),
            num_parameters=float(graph.num_parameters.evaluate({})),
            copy_bytes_per_s=None if link is None else float(link.bytes_per_s * link.efficiency),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """What the checkpoints of a run come to; `late_s` is work done while one is written beside it."""

    num_bytes: float
    write_s: float
    stall_s: float
    late_s: float
    every_steps: int
    every_s: float
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEstimate:
    """The answer for a run: metrics by name, and what the time goes to where checkpoints are counted."""

    run: TrainingRun
    metrics: Mapping[str, float]
    saving: Saving | None = None
    shares: TimeShares | None = None
    exchange: SiteExchange | None = None

    def warnings(self, job: TrainingJob, system: System) -> list[str]:
        """Say what a node's host lacks for its part of a checkpoint that is written from there."""
        asked = self.run.checkpoints
        if self.exchange is not None and system.host is not None:
            needed_bytes = self.exchange.outer_bytes * min(system.node_size, job.num_gpus)
            if needed_bytes > system.host.num_bytes:
                has = format_bytes(system.host.num_bytes)
                return [f"states of the outer optimizer take {format_bytes(needed_bytes)} of a host that has {has}"]
        if self.saving is None or asked is None or not asked.asynchronous or system.host is None:
            return []
        part = self.saving.num_bytes / job.num_nodes
        if part <= system.host.num_bytes:
            return []
        needed, has = format_bytes(part), format_bytes(system.host.num_bytes)
        return [f"a node's part of a checkpoint is {needed}, and its host, which keeps a copy of it, has {has}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    """A run to estimate: its length, its checkpoints, its failures; each of them may be left out.

    Failures need checkpoints, without which a failure would lose the whole run.
    """

    amount: float | None = None
    unit: Amount = "tokens"
    checkpoints: Checkpoints | None = None
    failures: Failures | None = None
    sites: Sites | None = None

    def __post_init__(self) -> None:
        """Refuse an empty run, failures without checkpoints, and a best interval of nothing."""
        if self.amount is not None and not 1 <= self.amount < math.inf:
            raise UsageError(f"a run of {self.amount:g} {self.unit}: 1 or more")
        if self.failures is not None and self.checkpoints is None:
            raise UsageError(
                "--mtbf needs checkpoints, without which a failure loses the whole run: say what their "
                "storage takes with --checkpoint-bandwidth or --checkpoint-node-bandwidth"
            )
        saved = self.checkpoints
        if saved is not None and self.failures is None and saved.every_steps is None and saved.every_s is None:
            raise UsageError(
                "the best interval of checkpoints depends on how often something fails: say --mtbf, or "
                "--checkpoint-every with a time or a number of steps"
            )

    def over(self, job: TrainingJob) -> RunEstimate:
        """Estimate the run from its steps, which are those of one site where there are several."""
        if self.sites is None:
            return self._over(job)
        exchange, num = self.sites.over(job.step_time_s, job.num_gpus, job.num_parameters), self.sites.num
        of_all = {name: getattr(job, name) * num for name in ("samples", "tokens", "num_gpus", "num_nodes")}
        found = self._over(replace(job, step_time_s=exchange.step_s, **of_all))
        return replace(found, exchange=exchange, metrics={**found.metrics, **exchange.metrics})

    def _over(self, job: TrainingJob) -> RunEstimate:
        # Steps, to the last one that is needed, and the time that they take.
        if self.amount is None:
            length = {}
        else:
            num_steps = math.ceil(self.amount / {"tokens": job.tokens, "samples": job.samples, "steps": 1}[self.unit])
            length = {"num_steps": num_steps, "productive_time_s": num_steps * job.step_time_s}
        if self.checkpoints is None:
            return RunEstimate(run=self, metrics=length | _spent(length, 1.0, job))
        # Mean time between failures of the job, and from one to the first step behind it.
        if self.failures is None:
            mtbf_s, restart_s = math.inf, 0.0
        else:
            mtbf_s, restart_s = self.failures.of_job_s(job.num_gpus, job.num_nodes), self.failures.restart_s
        saving = _saving(self.checkpoints, job, mtbf_s, restart_s)
        found = shares(saving.every_s, saving.stall_s, mtbf_s, restart_s, saving.late_s)
        # Refuse a run that hardly gets on: what follows from it would be a number of no use to anybody.
        if found.steps < 1e-6:
            raise UsageError(
                f"the job fails every {format_time(mtbf_s)}, restarts in {format_time(restart_s)} and makes no "
                "progress: fewer GPUs, faster restarts or checkpoints are needed"
            )
        spent = _spent(length, found.steps, job)
        failures = {"num_failures": spent["train_time_s"] / mtbf_s} if spent else {}
        failing = {} if self.failures is None else {"job_mtbf_s": mtbf_s, **failures}
        saved = {
            "train_goodput": found.steps,
            "effective_tokens_per_s": job.tokens / job.step_time_s * found.steps,
            "checkpoint_bytes": saving.num_bytes,
            "checkpoint_every_s": saving.every_s,
            "checkpoint_stall_s": saving.stall_s,
        }
        return RunEstimate(run=self, metrics=length | spent | saved | failing, saving=saving, shares=found)


def checkpoint_bytes(graph: Graph, kept: OptimizerAttrs | None = None) -> float:
    """Return the bytes of weights and optimizer states of a traced model: one copy of all, without gradients.

    With 2-byte weights and Adam on fp32 master weights that is 14 bytes a trained parameter; `kept` names other types.
    """
    found = 0.0
    for held in held_parameters(graph, kept):
        weights, _, optimizer = held.states
        runs = graph.counts[held.regions[0]] if held.each_layer else 1
        found += float((weights + optimizer).evaluate({})) * runs
    return found


def _spent(length: Mapping[str, float], goodput: float, job: TrainingJob) -> dict[str, float]:
    """Time and GPU-hours of the whole run, where its length is known."""
    if not length:
        return {}
    time_s = length["productive_time_s"] / goodput
    return {"train_time_s": time_s, "gpu_hours": time_s / 3600.0 * job.num_gpus}


def _saving(asked: Checkpoints, job: TrainingJob, mtbf_s: float, restart_s: float) -> Saving:
    """Price one checkpoint and settle how often there is one."""
    num_bytes = job.state_bytes if asked.num_bytes is None else asked.num_bytes
    stall_s, write_s = _stall_and_write(asked, job, num_bytes)
    late_s = max(0.0, write_s - stall_s) if asked.asynchronous else 0.0
    least = max(1, math.ceil(late_s / job.step_time_s))
    chosen = asked.every_steps is None and asked.every_s is None
    if chosen:
        # The whole number of steps beside the best interval that makes the run shortest.
        below = int(best_interval_s(stall_s, mtbf_s) / job.step_time_s)
        choices = {max(least, below), max(least, below + 1)}
        num = max(sorted(choices), key=lambda n: shares(n * job.step_time_s, stall_s, mtbf_s, restart_s, late_s).steps)
    else:
        num = asked.every_steps or max(1, round((asked.every_s or 0.0) / job.step_time_s))
    if num < least:
        raise UsageError(
            f"a checkpoint every {num} steps ({format_time(num * job.step_time_s)}) is due before the last one is "
            f"written: {format_bytes(num_bytes)} take {format_time(write_s)}; every {least} steps or more"
        )
    return Saving(
        num_bytes=num_bytes,
        write_s=write_s,
        stall_s=stall_s,
        late_s=late_s,
        every_steps=num,
        every_s=num * job.step_time_s,
        chosen=chosen,
    )


def _stall_and_write(asked: Checkpoints, job: TrainingJob, num_bytes: float) -> tuple[float, float]:
    """How long the run waits for a checkpoint, and how long it takes until it is there."""
    if math.isinf(asked.storage_bytes_per_s(job.num_nodes)) and asked.stall_s is not None:
        return asked.stall_s, asked.stall_s
    storage_s = num_bytes / asked.storage_bytes_per_s(job.num_nodes)
    if asked.stall_s is not None:
        return asked.stall_s, max(storage_s, asked.stall_s) if asked.asynchronous else asked.stall_s
    # Time to copy a GPU's part to its host; where that is not waited for alone, a machine may leave the link out.
    if job.copy_bytes_per_s is not None:
        copy_s = num_bytes / job.num_gpus / job.copy_bytes_per_s
    else:
        if asked.asynchronous:
            raise UsageError(
                "--checkpoint-async copies to the host first, and the system does not say how fast: add "
                "chip.host_link with bandwidth, latency and efficiency to its file, or use --no-checkpoint-async"
            )
        copy_s = 0.0
    # What is written while it is copied is not done before it is copied.
    write_s = max(storage_s, copy_s)
    return (copy_s if asked.asynchronous else write_s), write_s
