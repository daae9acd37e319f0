"""A step of post-training: rollouts, passes, training and the change between them, on shared or on separate devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from ...backends.machine.system import System
from ...cost.money import Terms, system_money
from ...ir.errors import InfeasibleError, UsageError
from ...ir.graph import Graph
from ...ir.plan import Plan
from ...ir.records import dataclass
from ...ir.text.stages import stage
from ...ir.units import format_bytes
from ..estimate import Estimate, estimate
from ..serve.server import Server
from .algorithm import POLICY, PostTrainingAlgorithm
from .refit import Refit, refit
from .rollout import Rollouts, RolloutTime, rollout_time
from .samples import Samples, forward_s

COLOCATED, SPLIT, ASYNCHRONOUS = "colocated", "split", "async"
PLACEMENTS = (COLOCATED, SPLIT, ASYNCHRONOUS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostTraining:
    """What a step does, and where.

    Attributes:
        algorithm: which models look at samples, and which are trained.
        rollouts: prompts and answers; their lengths are those of the samples where none are made.
        batch: sequences of one update; all of a step where None.
        epochs: passes over the samples of a step.
        packed: whether training packs samples.
        placement: `colocated`, trainer and engine take turns on the same devices; `split`, they wait for each other on
            devices of their own; `async`, the engine makes samples of a later step meanwhile.
        staleness: updates by which the weights of the engine may be behind, in steps.
        moves_states: colocated, whether the trainer moves its states to the host while the engine runs.
        whole_refit: whether each rank of the engine gets all new weights, not its shard alone.
        environment_s: seconds that a step waits for rewards of an environment beside all models.
        others: graphs of models that are not of the policy's shape, by role.
    """

    algorithm: PostTrainingAlgorithm
    rollouts: Rollouts
    batch: int | None = None
    epochs: int = 1
    packed: bool = True
    placement: str = COLOCATED
    staleness: int = 1
    moves_states: bool = True
    whole_refit: bool = False
    environment_s: float = 0.0
    others: Mapping[str, Graph] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a placement or a number that is none."""
        if self.placement not in PLACEMENTS:
            raise UsageError(f"placement '{self.placement}'; allowed: {', '.join(PLACEMENTS)}")
        if self.placement != ASYNCHRONOUS and self.staleness != 1:
            raise UsageError(f"staleness {self.staleness}: of --placement async alone")
        if self.staleness < 1 or self.epochs < 1:
            raise UsageError(f"staleness {self.staleness}, epochs {self.epochs}: 1 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class PostTrainingStep:
    """The answer for a step. `parts_s` are its parts, one behind the other where nothing runs beside them.

    Attributes:
        asked: what was asked.
        trainer: the estimate of one update of the policy.
        server: what makes rollouts; None where samples are there.
        rollout: how long they take; None likewise.
        samples: as training sees them.
        change: what changing between training and generating takes; None likewise.
        parts_s: seconds by part: `rollout`, `pass.MODEL`, `environment`, `train.MODEL`, `weights`, `states`.
        step_time_s: of the step.
        peak_mem_bytes: of the fullest device of the trainer, with the states of every model that is trained.
        idle: share of the step in which the engine's and the trainer's devices wait for the other side.
    """

    asked: PostTraining
    trainer: Estimate
    server: Server | None
    rollout: RolloutTime | None
    samples: Samples
    change: Refit | None
    parts_s: Mapping[str, float]
    step_time_s: float
    idle: Mapping[str, float]
    peak_mem_bytes: float

    @property
    def num_gpus(self) -> int:
        """Devices of the whole job."""
        apart = self.server is not None and self.asked.placement != COLOCATED
        return self.trainer.plan.num_gpus + (self.server.plan.num_gpus if apart and self.server is not None else 0)

    @property
    def tokens(self) -> float:
        """Tokens of the samples of a step."""
        return self.samples.num * self.samples.mean_tokens

    @property
    def metrics(self) -> Mapping[str, float]:
        """Metrics by name."""
        rate = self.tokens / self.step_time_s
        found = {
            "step_time_s": self.step_time_s,
            "tokens_per_s": rate,
            "tokens_per_s_per_gpu": rate / self.num_gpus,
            "samples_per_s": self.samples.num / self.step_time_s,
            "num_gpus": float(self.num_gpus),
            "mean_tokens": self.samples.mean_tokens,
            "updates": self.samples.updates,
            "trainer_peak_mem_bytes": self.peak_mem_bytes,
        }
        if self.rollout is not None:
            found |= {
                "rollout_tokens_per_s": float(self.rollout.requests.output.sum()) / self.rollout.all_s,
                "rollout_even_s": self.rollout.even_s,
                "straggler_share": self.rollout.straggler_share,
                "rollout_batch": self.rollout.batch_mean,
            }
        return {**found, **{f"{side}_idle": share for side, share in self.idle.items()}}

    def run(self, steps: int, terms: Terms | None = None) -> Mapping[str, float]:
        """Return what so many steps take: seconds, GPU-hours, and dollars where the system has prices."""
        time_s = steps * self.step_time_s
        hours = time_s / 3600.0 * self.num_gpus
        found = {"num_steps": float(steps), "run_time_s": time_s, "gpu_hours": hours}
        try:
            money = system_money(self.trainer.table.system, self.num_gpus, terms)
        except UsageError:
            return found
        return {**found, "usd_run": hours * float(money.owned.gpu_hour.usd)}


def post_training_step(
    asked: PostTraining, graph: Graph, system: System, plan: Plan, server: Server | None = None
) -> PostTrainingStep:
    """Estimate a step.

    Args:
        asked: what the step does.
        graph: the policy, traced for training.
        system: the trainer's machine.
        plan: the trainer's degrees, packs of a micro-batch and policy.
        server: the engine; not needed where samples are there.

    Raises:
        UsageError: rollouts without an engine.
        InfeasibleError: the trainer does not fit, or no answer fits the engine.
        PlanError: degrees that do not divide.
    """
    rollouts = asked.rollouts
    if asked.algorithm.rolls_out and server is None:
        raise UsageError(f"{asked.algorithm.name} makes rollouts: an engine is needed")
    requests = rollouts.requests()
    mean = float((requests.prompt + requests.output).mean())
    num = rollouts.samples * asked.algorithm.sequences
    samples = Samples(num, mean, rollouts.longest, asked.batch or num, asked.epochs, asked.packed)
    own = {role: estimate(other, system, samples.plan(plan)) for role, other in asked.others.items()}
    trainer = estimate(graph, system, samples.plan(plan))
    others = (role for role in asked.algorithm.trains if role != POLICY)
    peak = trainer.metrics["peak_mem_bytes"] + sum(_states(own.get(role, trainer)) for role in others)
    if peak > system.chip.hbm_bytes:
        raise InfeasibleError(
            f"the trainer needs {format_bytes(peak)} a GPU and has {format_bytes(float(system.chip.hbm_bytes))}: more "
            "--tp or --pp, --zero 1, --recompute full, or a shorter --max-tokens"
        )
    learning = _learning(asked, samples, trainer, own)
    alone = PostTrainingStep(
        asked=asked,
        trainer=trainer,
        server=None,
        rollout=None,
        samples=samples,
        change=None,
        parts_s=learning,
        step_time_s=sum(learning.values()),
        idle={},
        peak_mem_bytes=peak,
    )
    if not asked.algorithm.rolls_out or server is None:
        return alone
    colocated = asked.placement == COLOCATED
    change = refit(trainer, server, colocated, asked.moves_states, asked.whole_refit)
    away, room = change.away_bytes + trainer.metrics.get("host_mem_bytes", 0.0), system.host_share_bytes(plan.num_gpus)
    if away > room:
        raise InfeasibleError(
            f"states of the trainer need {format_bytes(away)} of host memory a GPU, and a node has "
            f"{format_bytes(float(room))} for each: more GPUs, or keep them on the device with --no-offload-trainer"
        )
    if colocated and not asked.moves_states:
        # The states of the trainer stay beside the cache of the engine.
        server = replace(server, times=replace(server.times, free_bytes=server.times.free_bytes - _states(trainer)))
    with stage(f"rollouts on {server.plan.num_gpus} GPUs"):
        rollout = rollout_time(server, rollouts)
    parts = {"rollout": rollout.all_s, **learning, "weights": change.weights_s, "states": change.states_s}
    parts["environment"] = asked.environment_s
    time_s, idle = _together(asked, rollout, sum(learning.values()) + asked.environment_s, change)
    told = {name: s for name, s in parts.items() if s}
    return replace(alone, server=server, rollout=rollout, change=change, parts_s=told, step_time_s=time_s, idle=idle)


def _together(
    asked: PostTraining, rollout: RolloutTime, learning_s: float, change: Refit
) -> tuple[float, Mapping[str, float]]:
    """The step, and what each side waits for the other.

    One behind the other: T = rollouts + learning + change. Asynchronous: T = max(rollouts, learning) + weights, where
    rollouts of `staleness` steps run at once, so that stragglers of one fall beside the others:
    rollouts = max(those of equal lengths, all / staleness).
    """
    if asked.placement == ASYNCHRONOUS:
        making_s = max(rollout.even_s, rollout.all_s / asked.staleness)
        time_s = max(making_s, learning_s) + change.weights_s
        return time_s, {
            "engine": 1.0 - (making_s + change.weights_s) / time_s,
            "trainer": 1.0 - (learning_s + change.weights_s) / time_s,
        }
    time_s = rollout.all_s + learning_s + change.total_s
    if asked.placement == COLOCATED:
        return time_s, {}
    return time_s, {"engine": learning_s / time_s, "trainer": rollout.all_s / time_s}


def _learning(
    asked: PostTraining, samples: Samples, trainer: Estimate, own: Mapping[str, Estimate]
) -> dict[str, float]:
    """Seconds of passes over all samples and of training, by part; models without a graph are as the policy.

    Models that are not trained lie in host memory, and their weights come up for their pass.
    """
    found: dict[str, float] = {}
    for role in asked.algorithm.looks:
        model = own.get(role, trainer)
        resting = 0.0 if role in asked.algorithm.trains else model.memory_bytes["weights"]
        link = trainer.table.system.chip.host_link
        fetched_s = 0.0 if link is None else resting / float(link.bytes_per_s * link.efficiency)
        found[f"pass.{role}"] = forward_s(model, samples.num) + fetched_s
    for role in asked.algorithm.trains:
        # The last micro-batch of an update may be filled up: what is counted is what runs.
        found[f"train.{role}"] = own.get(role, trainer).metrics["step_time_s"] * samples.updates
    return found


def _states(model: Estimate) -> float:
    """Bytes of weights, gradients and optimizer states of a model that is trained."""
    return sum(model.memory_bytes[name] for name in ("weights", "gradients", "optimizer"))


def fastest(found: Sequence[PostTrainingStep]) -> PostTrainingStep:
    """Return the step with most tokens a second and GPU: pools of other sizes are compared by what they cost."""
    return max(found, key=lambda step: step.metrics["tokens_per_s_per_gpu"])
