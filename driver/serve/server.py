"""A model on a system under a serving engine: what requests see, what it answers in all, and where their time goes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...backends.machine.software.engine import Engine
from ...backends.machine.system import System
from ...cost.flops import Convention
from ...cost.run.training_run import Failures
from ...cost.serving.batching.continuous import most_throughput
from ...cost.serving.batching.speculative import Speculation
from ...cost.serving.batching.static import static_batch
from ...cost.serving.batching.steps import way_in_s
from ...cost.serving.batching.times import StepTimes
from ...cost.serving.capacity import max_batch
from ...cost.serving.metrics import ServingMetrics
from ...cost.serving.simulate.autoscale import Autoscaling
from ...cost.serving.simulate.failures import ReplicaFailures
from ...cost.serving.traffic.requests import Lengths
from ...ir.errors import UsageError
from ...ir.plan import Plan
from ...ir.records import dataclass
from ...ir.sizes.fixed_sizes import check_served, padded_size
from ..estimate import Estimate, Lowered, estimate
from .load import Load
from .tables import ServedModel, of_phase, step_times


@dataclass(frozen=True, slots=True)
class Server:
    """Replicas of a model that answer requests.

    Attributes:
        served: the model, lowered for both phases.
        system: the machine, with the numbers of its stack that the engine was fitted with.
        plan: degrees of a replica, and how many there are (`dp`).
        engine: what schedules, and what its host costs.
        times: what steps of one replica take.
        longest: most tokens of a request, prompt and answer.
        speculation: how tokens are drafted, None where none are; `times` and `engine` then have rounds, by the token.
        checking: times of rounds whose drafts take no time.
        convention: how masked attention counts in FLOPs.
        failures: how often a replica fails, where a simulation is to know.
        autoscaling: how many replicas there are by the load, up to all of them, where a simulation is to know.
    """

    served: ServedModel
    system: System
    plan: Plan
    engine: Engine
    times: StepTimes
    longest: int
    speculation: Speculation | None = None
    checking: StepTimes | None = None
    convention: Convention = Convention.FULL
    failures: ReplicaFailures | None = None
    autoscaling: Autoscaling | None = None

    @classmethod
    def of(cls, served: ServedModel, system: System, plan: Plan, engine: Engine, longest: int) -> Server:
        """Price the steps of a replica; UsageError for requests that the model's graphs do not hold for."""
        check_positions(served, longest)
        machine = engine.under(system)
        times = step_times(served, machine, plan, engine.scheduler, longest)
        return cls(served, machine, plan, engine, times, longest)

    @property
    def num_replicas(self) -> int:
        """Replicas, which share the requests evenly."""
        return self.plan.dp

    @property
    def tokens_per_gap(self) -> float:
        """Tokens that come at once."""
        return 1.0 if self.speculation is None else self.speculation.tokens

    def most(self, lengths: Lengths) -> ServingMetrics:
        """Return the steady state of one replica in which it answers most requests."""
        return most_throughput(self.times, self.engine, lengths)

    def runs_together(self, load: Load) -> bool:
        """Whether requests start and end together: as asked, or because the engine has nothing else."""
        return load.batch is not None or self.engine.scheduler.batching == "static"

    def most_together(self, lengths: Lengths, batch: float = 1.0) -> float:
        """Return the most requests/s of static batches that follow each other: of all that fit, and of one given."""
        most = float(max_batch(self.times, self.engine.scheduler, lengths, whole=True))
        tried = np.union1d(np.arange(1.0, most + 1.0), min(batch, most))
        found = static_batch(self.times, self.engine, tried, lengths)
        # The next batch is on its way while one runs.
        return float(np.max(tried / (found.e2el_s - way_in_s(self.engine.overheads, lengths))))

    def phase(self, lowered: Lowered, batch: float, seq: float, context: float = 0.0) -> Estimate:
        """Estimate one step of a phase: so many sequences a replica, tokens of each, and tokens in the cache."""
        rows = padded_size(lowered.source, "batch", max(1, round(batch)))
        plan = replace(
            of_phase(self.plan, lowered.source.workload),
            micro_batch=rows,
            global_batch=rows * self.plan.dp,
            seq_len=padded_size(lowered.source, "seq", max(1, round(seq))),
            kv_len=padded_size(lowered.source, "kv", round(context)),
        )
        return estimate(lowered.source, self.system, plan, self.convention, lowered)


def replicated(server: Server, num: int) -> Server:
    """Return so many replicas of a server that has one, or one rank with attention of its own."""
    gpus = server.plan.num_gpus // server.plan.dp * num
    batch = server.plan.micro_batch * num
    return replace(server, plan=replace(server.plan, dp=num, num_gpus=gpus, global_batch=batch))


def with_failures(server: Server, failures: Failures) -> Server:
    """Return a server whose replicas fail as their parts do: M = MTBF / n of the GPUs or nodes of a replica.

    UsageError where replicas share experts, which none of them outlives.
    """
    if server.times.coupled > 1:
        raise UsageError("--mtbf: replicas that share experts fail together, which is not simulated; allowed: --ep 1")
    gpus = server.plan.num_gpus // server.num_replicas
    nodes = -(-gpus // server.system.node_size)
    # All replicas together fail as often as is said of the whole job.
    share = server.num_replicas if failures.of == "job" else 1
    mtbf_s = failures.of_job_s(gpus, nodes) * share
    return replace(server, failures=ReplicaFailures(mtbf_s, failures.restart_s))


def check_positions(served: ServedModel, longest: int) -> None:
    """Raise UsageError for requests that are longer than the model's positions, or that its graphs do not hold for."""
    for lowered in (served.prefill, served.decode):
        check_served(lowered.source, longest)
    most = served.decode.source.max_positions
    if most and longest > most:
        raise UsageError(
            f"requests of {longest:,} tokens, prompt and answer, are beyond the {most:,} positions of "
            f"'{served.decode.source.name}'; with this prompt and answer at most {most:,} in all"
        )


def check_longest(server: Server, lengths: Lengths) -> None:
    """Raise UsageError for requests beyond what the tables of a server were made for."""
    longest = int(np.max(lengths.total))
    if longest > server.longest:
        raise UsageError(f"requests of {longest:,} tokens, and the server was priced for {server.longest:,} at most")
