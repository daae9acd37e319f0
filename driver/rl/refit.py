"""New weights from the trainer to the engine, and a trainer that makes room for an engine on the same devices."""

from __future__ import annotations

from ...backends.machine.system import System
from ...ir.errors import UsageError
from ...ir.records import dataclass
from ..estimate import Estimate
from ..serve.pools import level_of
from ..serve.server import Server


@dataclass(frozen=True, slots=True)
class Refit:
    """What changing between training and generating takes.

    Attributes:
        weights_s: until each rank of the engine has its new weights.
        states_s: states of the trainer to the host and back, where both share their devices.
        num_bytes: of weights that a rank of the engine receives.
        away_bytes: of states that a device moves to its host.
    """

    weights_s: float
    states_s: float
    num_bytes: float
    away_bytes: float

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.weights_s + self.states_s


def refit(trainer: Estimate, server: Server, colocated: bool, moves_states: bool = True, whole: bool = False) -> Refit:
    """Price the change from training to generating and back.

    Every rank of the engine receives its shard of the weights over its own link to the level of the network that
    holds trainer and engine together; colocated it has 1/ranks of a shard already. A rank of a trainer sends what it
    has to one engine at least and no more than all ranks can take, so that the receiving side sets the time:
    t = bytes a rank / bandwidth + latency. `whole`: each rank gets all of a model that is gathered for it, as where it
    is loaded by the names of a checkpoint (NeMo RL's broadcast, docs/design-docs/nccl-reshard-refit.md). States of the
    trainer (optimizer, gradients) go to the host before and come back after, behind nothing: t = 2 bytes / bandwidth of
    the link.

    UsageError where states are to move and the machine does not say how fast.
    """
    system = trainer.table.system
    if whole:
        kinds = trainer.table.lowered.source.distinct_parameters()
        weights = sum(float(kind.num_bytes.evaluate({})) * count for _, kind, count in kinds)
    else:
        weights = float(server.phase(server.served.decode, 1.0, 1.0, 1.0).memory_bytes["weights"])
    devices = trainer.plan.num_gpus + (0 if colocated else server.plan.num_gpus)
    level = level_of(system, devices)
    share = 1.0 - 1.0 / trainer.plan.num_gpus if colocated else 1.0
    weights_s = weights * share / (float(level.bytes_per_s) * float(level.efficiency)) + float(level.latency_s)
    away = sum(trainer.memory_bytes[name] for name in ("optimizer", "gradients")) if colocated and moves_states else 0.0
    return Refit(weights_s, _copies_s(system, away), weights, away)


def _copies_s(system: System, num_bytes: float) -> float:
    if not num_bytes:
        return 0.0
    link = system.chip.host_link
    if link is None:
        raise UsageError(
            f"system '{system.name}' does not say how fast states of the trainer go to the host: add chip.host_link to "
            "its file, or keep them on the device with --no-offload-trainer"
        )
    return 2.0 * num_bytes / float(link.bytes_per_s * link.efficiency)
