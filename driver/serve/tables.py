"""Step times of one plan as tables: both lowered graphs priced at the points of a grid, each in one call."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...backends.machine.software.engine import Scheduler
from ...backends.machine.system import System
from ...backends.pricing.program import PricedEntry
from ...cost.serving.batching.times import Array, Curve, StepTimes, Surface
from ...ir.errors import UsageError
from ...ir.graph import Workload
from ...ir.ops import OpClass
from ...ir.placement import EP
from ...ir.plan import Plan, PlanTable
from ...ir.plan.divisibility import check_divisibility
from ...ir.records import dataclass
from ...ir.sizes.fixed_sizes import padded
from ..estimate import Estimates, Lowered, evaluate

# Every batch up to here is priced by itself; beyond, and for lengths, points lie this factor apart.
EACH = 32
STEP = 2.0**0.25
LENGTH_STEP = 2.0**0.5
PROMPTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model lowered for both phases of serving."""

    prefill: Lowered
    decode: Lowered

    def __post_init__(self) -> None:
        """UsageError where a graph is of another phase."""
        for lowered, phase in ((self.prefill, Workload.PREFILL), (self.decode, Workload.DECODE)):
            if lowered.source.workload is not phase:
                given = lowered.source.workload
                raise UsageError(f"serving needs a {phase} graph, and '{lowered.source.name}' is of {given}")


def step_times(served: ServedModel, system: System, plan: Plan, scheduler: Scheduler, longest: int) -> StepTimes:
    """Price the steps of one replica of a plan, for requests of up to `longest` tokens in all.

    Degrees are those of `plan`; batches and lengths are those of the grid. Times never fall where a step grows: a
    smaller step can be padded to a larger one. PlanError where a degree does not divide.
    """
    check_divisibility(served.decode.graph, plan)
    plan = plan_of_replica(plan)
    contexts = _grid(longest, LENGTH_STEP, 1)
    batches = _grid(scheduler.max_num_seqs, STEP, EACH)
    tokens = _grid(max(scheduler.max_batched_tokens, longest) + scheduler.max_num_seqs, STEP, 1)
    prompts = np.array([n for n in PROMPTS if n <= max(2, scheduler.max_num_seqs)], dtype=np.float64)
    decodes = _priced(served.decode, system, plan, *_pairs(batches, contexts))
    # Steps of prompts by their tokens, and behind them whole prompts side by side.
    several, lengths = _pairs(prompts, contexts)
    num = len(tokens)
    both = np.append(np.ones_like(tokens), several), np.append(tokens, lengths)
    prefills = _priced(served.prefill, system, plan, *both)
    attention_s, prefill_s = _attention_s(prefills), prefills.metrics["step_time_s"][:num]
    decode_s, steps_s = decodes.metrics["step_time_s"], prefill_s - attention_s[:num]
    if scheduler.dual_batch and plan.ep > 1:
        batch, context = _pairs(batches, contexts)
        halves = _priced(served.decode, in_turn(system), plan, np.ceil(batch / 2), context)
        decode_s = np.where(batch > 1, np.minimum(decode_s, 2.0 * halves.metrics["step_time_s"]), decode_s)
        halves = _priced(served.prefill, in_turn(system), plan, np.ones_like(tokens), np.ceil(tokens / 2))
        half_s = halves.metrics["step_time_s"] - _attention_s(halves)
        steps_s = np.where(tokens > 1, np.minimum(steps_s, 2.0 * half_s), steps_s)
    shape = (len(batches), len(contexts))
    # Tokens of the largest step; where prompts are never cut, a whole one may be larger than a step
    # should be.
    prompt = 0 if scheduler.chunked_prefill else longest
    in_steps = tokens <= (max(scheduler.max_batched_tokens, prompt) + scheduler.max_num_seqs)
    # What hides behind attention, where halves run in turn, shortens the steps of long contexts.
    rest = (decode_s - _attention_s(decodes)).reshape(shape)[:, 0]
    attention = decode_s.reshape(shape) - rest[:, None]
    # Part of the greatest step of prompts that is experts, and messages over the ranks that share
    # them.
    parts = prefills.timing.sums(_is_shared)
    waiting = decodes.step.breakdown.get("bubble")
    return StepTimes(
        Curve(batches, _rising(rest)),
        Surface(batches, contexts, _rising(_rising(attention).T).T),
        Curve(tokens, _rising(steps_s)),
        Surface(prompts, contexts, attention_s[num:].reshape(len(prompts), len(contexts))),
        # Of one sequence: batches start at one, or the least that the graph holds for.
        Curve(contexts, decodes.memory_bytes["kv_cache"].reshape(shape)[0] / decodes.plans.micro_batch[0]),
        _free_bytes(system, scheduler, _taken_bytes(decodes), _taken_bytes(prefills)[:num][in_steps]),
        plan.pp,
        1.0 if waiting is None else float(1.0 - (waiting / decodes.metrics["step_time_s"])[0]),
        plan.dp,
        float(parts[True][num - 1] / prefill_s[-1]) if True in parts else 0.0,
    )


def plan_of_replica(plan: Plan) -> Plan:
    """Return the plan of one deployment: the replicas that share experts; those that share none lie side by side."""
    ranks = plan.inner_ep
    return replace(plan, num_gpus=plan.num_gpus // plan.dp * ranks, dp=ranks, global_batch=plan.micro_batch * ranks)


def of_phase(plan: Plan, workload: Workload) -> Plan:
    """Return the plan of a decode step for another phase: ranks that share out its cache split prompts by heads."""
    if workload is Workload.DECODE:
        return replace(plan, phase=str(workload))
    tp, split = plan.tp * plan.cp, plan.family.etp and plan.etp == plan.tp
    ep = plan.ep if split else plan.ep * plan.cp
    return replace(plan, phase=str(workload), tp=tp, cp=1, etp=tp if split else plan.etp, ep=ep)


def in_turn(system: System) -> System:
    """Return a system on which the layers of two micro-batches run in turn, as far as its stack lets them.

    Exchanges of experts hide behind computation of the other micro-batch; kernels that send take as many SMs as ever.
    """
    stack = system.stack
    return replace(system, stack=replace(stack, overlap=replace(stack.overlap, batches=1.0)))


def _grid(most: int, step: float, each: int) -> Array:
    """Return every whole number up to `each`, and from there points `step` apart up to `most`."""
    few = np.arange(1, each + 1, dtype=np.float64)
    more = np.floor(each * step ** np.arange(1, max(1, np.ceil(np.log(max(most, 2) / each) / np.log(step))) + 1))
    return np.unique(np.concatenate([few[few < max(most, 2)], more[more < most], [max(most, 2)]]))


def _pairs(rows: Array, columns: Array) -> tuple[Array, Array]:
    first, second = np.meshgrid(rows, columns, indexing="ij")
    return first.ravel(), second.ravel()


def _priced(lowered: Lowered, system: System, plan: Plan, batch: Array, length: Array) -> Estimates:
    """Price a graph at batches of a replica and lengths: tokens in the cache of a decode step, or of a prompt."""
    cached = length if lowered.source.workload is Workload.DECODE else np.zeros_like(length)
    one = PlanTable.of([of_phase(plan, lowered.source.workload)]).repeated(len(batch))
    return evaluate(lowered, system, of_sizes(one, lowered, batch, length, cached))


def of_sizes(plans: PlanTable, lowered: Lowered, batch: Array, seq: Array, cached: Array) -> PlanTable:
    """Return plans of one step each: sequences of a replica, tokens of each and in the cache, padded as a server does.

    Lengths below the first and between two that a graph holds for (`ir/sizes/fixed_sizes.py`) take the next.
    """
    graph = lowered.source
    return replace(
        plans,
        micro_batch=padded(graph, "batch", batch),
        num_micro_batches=np.ones_like(batch),
        seq_len=padded(graph, "seq", seq),
        kv_len=padded(graph, "kv", cached),
    )


def _attention_s(table: Estimates) -> Array:
    """Attention of one pass over the model, point by point."""
    found = table.timing.sums(_is_attention)
    return np.asarray(found.get(True, np.zeros(len(table.plans))))


def _is_attention(entry: PricedEntry) -> bool:
    return entry.kind is OpClass.ATTENTION


def _is_shared(entry: PricedEntry) -> bool:
    return entry.kind is OpClass.EXPERTS or (entry.kind is OpClass.COMMUNICATION and EP in entry.axis.axes)


def _rising(values: Array) -> Array:
    return np.maximum.accumulate(values, axis=0)


def _taken_bytes(table: Estimates) -> Array:
    """Memory of the fullest device less the cache, point by point."""
    parts = [value for name, value in table.memory_bytes.items() if name != "kv_cache"]
    return np.asarray(sum(parts, np.zeros(len(table.plans))))


def _free_bytes(system: System, scheduler: Scheduler, *taken: Array) -> float:
    """Memory that the engine may take less what is not cache, in the step that needs most."""
    most = max(float(part.max()) for part in taken)
    return (float(system.chip.hbm_bytes) * scheduler.memory_utilization - most) * scheduler.cache_utilization
