"""What a server makes of a load as one record: metrics by the names of the field, and parts that add up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..cost.flops import Convention, ModelFlops
from ..cost.serving.capacity import held_bytes, room, sequence_bytes
from ..cost.serving.metrics import ServingMetrics
from ..cost.serving.requests import Lengths
from ..cost.serving.simulate.result import Simulated
from ..cost.serving.steps import groups_of
from ..driver import Estimate
from .notes import room_notes, wave_notes
from .parts import request_parts
from .target import Target

if TYPE_CHECKING:
    from .load import Load
    from .money import ServeMoney
    from .pools import Pools
    from .server import Server


@dataclass(frozen=True, slots=True)
class ServeEstimate:
    """The answer for one load. `breakdown_s` adds up to `e2el_s`, `memory_bytes` to what the engine takes.

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
    simulated: Simulated | None = None
    pools: Pools | None = None
    money: ServeMoney | None = None

    @property
    def num_gpus(self) -> int:
        """All devices."""
        return self.server.plan.num_gpus if self.pools is None else self.pools.num_gpus


@dataclass(frozen=True, slots=True)
class Fleet:
    """All that answers.

    Attributes:
        num_gpus: devices.
        times: how many times as much as the closed form says.
        most_per_s: the most of that a second.
        room: requests that a replica runs at once.
    """

    num_gpus: int
    times: float
    most_per_s: float
    room: float


def answer_of(
    server: Server, lengths: Lengths, load: Load, found: ServingMetrics, prefill: Estimate, decode: Estimate,
    together: bool = False,
) -> ServeEstimate:  # fmt: skip
    """Put a closed form of one replica into the answer for all of them; prompts may have run together."""
    whole = server.runs_together(load)
    most = server.most_together(lengths, float(found.batch)) if whole else float(server.most(lengths).requests_per_s)
    held = float(room(server.times, server.engine.scheduler, lengths, whole))
    fleet = Fleet(server.plan.num_gpus, server.num_replicas, most, held)
    notes = () if load.traffic else wave_notes(found) if together else room_notes(server, lengths, found)
    return ServeEstimate(
        server, lengths, load, found, prefill, decode,
        dict(metrics_of(server, fleet, lengths, found, decode)),
        request_parts(server, lengths, found, prefill, decode, together),
        memory_of(server, lengths, found, decode),
        (*warnings_of(server, prefill, decode), *notes),
    )  # fmt: skip


def warnings_of(server: Server, prefill: Estimate, decode: Estimate) -> tuple[str, ...]:
    """Return what both steps warn of, and whether the numbers of the engine were ever held against measurements."""
    engine, chip = server.engine, server.system.chip.name
    told: tuple[str, ...] = ()
    if not engine.is_free and (engine.accuracy is None or engine.accuracy.chip != chip):
        like = "" if engine.accuracy is None else f", and they are those of {engine.accuracy.chip}"
        told = (f"host times of {engine.name} are judgement on {chip}: no measured requests{like}",)
    return tuple(dict.fromkeys((*prefill.warnings, *decode.warnings, *told)))


def with_goodput(answer: ServeEstimate, target: Target) -> ServeEstimate:
    """Say how many requests/s meet a target: in a closed form all are alike, so all or none."""
    if not target:
        return answer
    good = answer.metrics["requests_per_s"] if bool(target.meets(answer.found)) else 0.0
    return replace(answer, metrics={**answer.metrics, "request_goodput_rps": good})


def with_inclusive_tpot(answer: ServeEstimate) -> ServeEstimate:
    """Say the mean time of a token with the first one in it."""
    metrics = {**answer.metrics, "inclusive_tpot_s": answer.metrics["e2el_s"] / float(answer.found.output)}
    return replace(answer, metrics=metrics)


def metrics_of(
    server: Server, fleet: Fleet, lengths: Lengths, found: ServingMetrics, decode: Estimate
) -> Iterator[tuple[str, float]]:
    """Yield metrics of all that answers by their names; those of decode steps are of `server`."""
    num_gpus, replicas = fleet.num_gpus, fleet.times
    for name in ("ttft_s", "ttft_low_s", "ttft_high_s", "tpot_s", "itl_s", "e2el_s"):
        if not np.isnan(value := float(getattr(found, name))):
            yield name, value
    tokens = float(found.output_tokens_per_s) * replicas
    yield "requests_per_s", float(found.requests_per_s) * replicas
    yield "tokens_per_s", tokens
    yield "tokens_per_s_per_gpu", tokens / num_gpus
    if found.output > 1:
        yield "tokens_per_s_per_user", float(found.tokens_per_s_per_user)
    yield "total_tokens_per_s", float(found.total_tokens_per_s) * replicas
    yield "total_tokens_per_s_per_gpu", float(found.total_tokens_per_s) * replicas / num_gpus
    yield "concurrency", float(found.concurrency) * replicas
    yield "batch", float(found.batch)
    yield "max_batch", fleet.room
    yield "serve_utilization", float(found.requests_per_s) / fleet.most_per_s
    if server.speculation is not None:
        yield "tokens_per_round", server.tokens_per_gap
    flops = request_flops(server, lengths, server.convention)
    yield "mfu", flops * float(found.requests_per_s) * replicas / (_peak(server) * num_gpus)
    if found.output > 1:
        yield "mbu", _decode_bytes(server, found, decode) / (_bandwidth(server) * float(found.itl_s))
    yield "flops_per_request", flops
    yield "kv_bytes_per_request", float(held_bytes(server.times, server.engine.scheduler, lengths.total))


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
    return float(server.system.chip.matmul_flop_per_s(str(server.served.decode.source.dtype)))


def _bandwidth(server: Server) -> float:
    return float(server.system.chip.hbm_bytes_per_s)


def _decode_bytes(server: Server, found: ServingMetrics, decode: Estimate) -> float:
    """What a device reads while each of the groups takes a step."""
    moved = decode.table.lowered.must_move
    groups = float(groups_of(server.times, found.batch))
    return 0.0 if moved is None else float(moved.evaluate(decode.table.plans)[0]) * groups


def memory_of(
    server: Server, lengths: Lengths, found: ServingMetrics, decode: Estimate
) -> Mapping[str, float]:  # fmt: skip
    """Return what the engine takes of the fullest device: weights, room for a step, and the cache, in use and free."""
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
