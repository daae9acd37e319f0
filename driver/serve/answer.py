"""What a server makes of a load as one record: metrics by the names of the field, and parts that add up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from ...cost.flops import Convention, ModelFlops
from ...cost.money import Money
from ...cost.ownership.energy import StepEnergy
from ...cost.ownership.ownership import Ownership
from ...cost.serving.batching.steps import groups_of
from ...cost.serving.batching.times import Nums
from ...cost.serving.capacity import held_bytes, room, sequence_bytes
from ...cost.serving.metrics import ServingMetrics
from ...cost.serving.simulate.result import SimulatedServing
from ...cost.serving.slo import SLO
from ...cost.serving.traffic.requests import Lengths
from ...ir.plan.precision import counted_dtype
from ...ir.records import dataclass
from ..estimate import Estimate
from .load import Load
from .notes import padding_notes, room_notes, wave_notes
from .parts import request_parts
from .pools import Pools
from .server import Server

# Latencies at the percentiles of limits, where there are such.
TAILS = ("ttft_tail_s", "tpot_tail_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeMoney:
    """What requests cost on a system.

    Attributes:
        money: of the system, whatever it does.
        owned: the same at the power that serving draws.
        energy: of a request, by what takes it.
        metrics: by name; tokens are those that are written, prompts are in their price.
    """

    money: Money
    owned: Ownership
    energy: StepEnergy
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True, repr=False)
class ServeEstimate:
    """The answer for one load. `breakdown_s` adds up to `e2el_s`, `memory_bytes` to what the engine reserves.

    Attributes:
        server: what answers.
        lengths: of the requests.
        load: how they come.
        found: the closed form of one replica.
        prefill: one prompt by itself (of a static batch, all of them).
        decode: a decode step at the mean context.
        metrics: of all replicas together, by the names of the field; SI units.
        breakdown_s: where the time of a request goes.
        memory_bytes: of a device, by part.
        warnings: what a reader must know.
        simulated: there when requests were simulated one by one: see `serve_traffic`.
        pools: there when prompts and answers run on devices of their own; `server` then decodes.
        money: there when it was priced: see `worth_serving`.
    """

    server: Server
    lengths: Lengths
    load: Load
    found: ServingMetrics
    prefill: Estimate
    decode: Estimate
    metrics: Mapping[str, float]
    breakdown_s: Mapping[str, float]
    memory_bytes: Mapping[str, float]
    warnings: tuple[str, ...]
    simulated: SimulatedServing | None = None
    pools: Pools | None = None
    money: ServeMoney | None = None

    @property
    def num_gpus(self) -> int:
        """All devices."""
        return self.server.plan.num_gpus if self.pools is None else self.pools.num_gpus

    @property
    def share_there(self) -> float:
        """Replicas that are there over all of the plan, on average: less than 1 only where they come and go."""
        scaled = () if self.simulated is None else self.simulated.scaled
        return scaled[0].mean / self.server.num_replicas if scaled else 1.0

    def __repr__(self) -> str:
        server, m = self.server, self.metrics
        rates = ", ".join(f"{name} {m[name]:.4g}" for name in ("ttft_s", "tpot_s", "requests_per_s") if name in m)
        name, chip = server.served.decode.source.name, server.system.chip.name
        return f"{name}  served by {server.engine.name} on {self.num_gpus} x {chip}: {rates}"


@dataclass(frozen=True, slots=True)
class ReplicaFleet:
    """All that answers; numbers, or arrays over loads.

    Attributes:
        num_gpus: devices.
        times: how many times as much as the closed form says.
        most_per_s: the most of that a second.
        room: requests that a replica runs at once.
    """

    num_gpus: Nums
    times: Nums
    most_per_s: Nums
    room: Nums


def answer_of(
    server: Server,
    lengths: Lengths,
    load: Load,
    found: ServingMetrics,
    prefill: Estimate,
    decode: Estimate,
    together: bool = False,
) -> ServeEstimate:
    """Put a closed form of one replica into the answer for all of them; prompts may have run together."""
    whole = server.runs_together(load)
    most = server.most_together(lengths, float(found.batch)) if whole else float(server.most(lengths).requests_per_s)
    held = float(room(server.times, server.engine.scheduler, lengths, whole))
    fleet = ReplicaFleet(server.plan.num_gpus, server.num_replicas, most, held)
    notes = () if load.traffic else wave_notes(found) if together else room_notes(server, lengths, found)
    return ServeEstimate(
        server,
        lengths,
        load,
        found,
        prefill,
        decode,
        dict(metrics_of(server, fleet, lengths, found, decode)),
        request_parts(server, lengths, found, prefill, decode, together),
        memory_of(server, lengths, found, decode),
        (*warnings_of(server, prefill, decode), *notes),
    )


def warnings_of(server: Server, prefill: Estimate, decode: Estimate) -> tuple[str, ...]:
    """Return what both steps warn of, and whether the numbers of the engine were ever held against measurements."""
    engine, chip = server.engine, server.system.chip.name
    told: tuple[str, ...] = ()
    if not engine.is_free and (engine.accuracy is None or engine.accuracy.chip != chip):
        like = "" if engine.accuracy is None else f", and they are those of {engine.accuracy.chip}"
        told = (f"host times of {engine.name} are judgement on {chip}: no measured requests{like}",)
    elif engine.version_of and engine.accuracy is not None and engine.accuracy.engine != engine.name:
        told = (
            f"numbers of {engine.accuracy.engine} stand for {engine.name} on {chip}: it has no measured requests there",
        )
    return tuple(dict.fromkeys((*prefill.warnings, *decode.warnings, *told, *padding_notes(server.served))))


def with_goodput(answer: ServeEstimate, target: SLO) -> ServeEstimate:
    """Say how many requests/s meet a target: in a closed form all are alike, so all or none."""
    if not target:
        return answer
    good = answer.metrics["requests_per_s"] if bool(target.met_by(answer.found)) else 0.0
    return replace(answer, metrics={**answer.metrics, "request_goodput_rps": good})


def with_inclusive_tpot(answer: ServeEstimate) -> ServeEstimate:
    """Say the mean time of a token with the first one in it."""
    metrics = {**answer.metrics, "inclusive_tpot_s": answer.metrics["e2el_s"] / float(answer.found.output)}
    return replace(answer, metrics=metrics)


def metrics_of(
    server: Server, fleet: ReplicaFleet, lengths: Lengths, found: ServingMetrics, decode: Estimate
) -> Iterator[tuple[str, float]]:
    """Yield metrics of all that answers by their names; those of decode steps are of `server`."""
    # What a device reads while each of the groups takes a step.
    moved = decode.table.lowered.must_move
    groups = float(groups_of(server.times, found.batch))
    known = fleet_metrics(
        server, fleet, lengths, found, 0.0 if moved is None else float(moved.evaluate(decode.table.plans)[0]) * groups
    )
    # What there is nothing of is not a number: a time between tokens of an answer that has one.
    yield from ((name, float(value)) for name, value in known.items() if not np.isnan(value))


def fleet_metrics(
    server: Server, fleet: ReplicaFleet, lengths: Lengths, found: ServingMetrics, read_bytes: Nums
) -> Mapping[str, Nums]:
    """Return metrics of all that answers by their names; numbers, or arrays over loads, as those of `found` are.

    `read_bytes` is what a device reads while each of its groups takes a decode step.
    """
    num_gpus, replicas = fleet.num_gpus, fleet.times
    tokens = found.output_tokens_per_s * replicas
    flops = request_flops(server, lengths, server.convention)
    latencies = {name: getattr(found, name) for name in ("ttft_s", "ttft_low_s", "ttft_high_s", "tpot_s", "itl_s")}
    tails = {} if np.isnan(found.ttft_tail_s).all() else {name: getattr(found, name) for name in TAILS}
    drafted = {} if server.speculation is None else {"tokens_per_round": np.asarray(server.tokens_per_gap)}
    return {
        **latencies,
        **tails,
        "e2el_s": found.e2el_s,
        "requests_per_s": found.requests_per_s * replicas,
        "tokens_per_s": tokens,
        "tokens_per_s_per_gpu": tokens / num_gpus,
        "tokens_per_s_per_user": found.tokens_per_s_per_user,
        "total_tokens_per_s": found.total_tokens_per_s * replicas,
        "total_tokens_per_s_per_gpu": found.total_tokens_per_s * replicas / num_gpus,
        "concurrency": found.concurrency * replicas,
        "batch": found.batch,
        "max_batch": np.asarray(fleet.room),
        "serve_utilization": found.requests_per_s / fleet.most_per_s,
        **drafted,
        "mfu": flops * found.requests_per_s * replicas / (_peak(server) * num_gpus),
        "mbu": read_bytes / (float(server.system.chip.hbm_bytes_per_s) * found.itl_s),
        "flops_per_request": np.asarray(flops),
        "kv_bytes_per_request": held_bytes(server.times, server.engine.scheduler, lengths.total),
    }


def request_flops(server: Server, lengths: Lengths, convention: Convention = Convention.FULL) -> float:
    """Return the model FLOPs of a request: its prompt less what is cached, and its decode steps.

    Those of a step are linear in the context: all of them are as many as of the mean one each.
    """
    prompt, output, cached = (float(np.asarray(n)) for n in (lengths.prompt, lengths.output, lengths.cached))
    of_prompt, of_step = server.served.prefill.flops, server.served.decode.flops
    first = _flops(of_prompt, prompt, 0.0, convention)
    first -= _flops(of_prompt, cached, 0.0, convention) if cached else 0.0
    return first + (output - 1.0) * _flops(of_step, 1.0, prompt + output / 2, convention)


def _flops(flops: ModelFlops, seq: float, context: float, convention: Convention) -> float:
    env = {"batch": np.ones(1), "seq": np.array([seq]), "kv": np.array([context])}
    return float(np.sum(flops.total(env, convention)))


def _peak(server: Server) -> float:
    served = server.served.decode
    return float(server.system.chip.matmul_flop_per_s(counted_dtype(server.plan.family, str(served.source.dtype))))


def memory_of(server: Server, lengths: Lengths, found: ServingMetrics, decode: Estimate) -> Mapping[str, float]:
    """Return what the engine reserves of the fullest device: weights, room for a step, the cache, in use or free."""
    at, capacity = server.engine.scheduler, float(server.system.chip.hbm_bytes)
    free = server.times.free_bytes
    taken = capacity * at.memory_utilization - free / at.cache_utilization
    parts = {name: decode.memory_bytes[name] for name in ("weights", "reserved")}
    drafter = 0.0 if server.speculation is None else server.speculation.drafter.weight_bytes
    used = min(float(found.batch * sequence_bytes(server.times, at, lengths)), free)
    return {
        "weights": parts["weights"],
        "draft_weights": drafter,
        "kv_cache_in_use": used,
        "kv_cache_free": free - used,
        "temporary": max(taken - drafter - sum(parts.values()), 0.0),
        "reserved": parts["reserved"],
    }
