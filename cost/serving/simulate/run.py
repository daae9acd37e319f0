"""Traffic on an engine into what each request waited for: one pool of replicas, or disaggregated prefill and decode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ....backends.machine.software.engine import Engine
from ....ir.errors import InfeasibleError, UsageError
from ....ir.records import dataclass
from ..batching.times import Array, StepTimes
from ..capacity import GIB
from ..traffic.traffic import Index, Traffic
from .autoscale import Autoscaling, Scaler
from .book import Book, Meters, RequestWork
from .failures import FailedReplicas, Outages, ReplicaFailures
from .flow import Flow, Stage
from .lane import BatchLane, Busy
from .result import Fullness, ServedRequests, SimulatedServing
from .room import Room
from .rounds import Rounds
from .speeds import Speeds

ROUTES = ("round-robin", "least-loaded")


@dataclass(frozen=True, slots=True)
class Pool:
    """Replicas that are all alike.

    Attributes:
        times: what steps of one of them take.
        engine: how it schedules, and what its host adds.
        replicas: how many there are.
        rounds: how its decode steps make more than one token, if they do.
        route: to which a request goes: `round-robin`, or `least-loaded`, the one with the fewest in flight.
        shared_prefix: the cached tokens of all requests are the same, and held once.
        failures: how often a replica fails, if any does; only of one pool that does all.
        autoscaling: how many there are by the load, up to all of them; None where all are always there.
    """

    times: StepTimes
    engine: Engine
    replicas: int = 1
    rounds: Rounds | None = None
    route: str = "least-loaded"
    shared_prefix: bool = False
    failures: ReplicaFailures | None = None
    autoscaling: Autoscaling | None = None

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise UsageError(f"a pool has 1 replica or more, not {self.replicas}")
        if self.route not in ROUTES:
            raise UsageError(f"requests go '{self.route}'; allowed: {', '.join(ROUTES)}")
        if self.autoscaling is None:
            return
        if self.failures is not None:
            raise UsageError("replicas fail, or come and go with the load: both at once are not simulated")
        if self.autoscaling.most != self.replicas:
            raise UsageError(f"autoscaling up to {self.autoscaling.most} replicas of a pool of {self.replicas}")


@dataclass(frozen=True, slots=True)
class Transfer:
    """How keys and values get from the pool that computes prompts to the one that decodes.

    Attributes:
        bytes_per_s: of the way between one replica and another.
        latency_s: before the first byte.
        streamed: layers are sent as they are computed, so that only the last of them is waited for.
        layers: of the model; needed where they are streamed.
    """

    bytes_per_s: float
    latency_s: float = 0.0
    streamed: bool = False
    layers: int = 1

    def time_s(self, num_bytes: Array) -> Array:
        """Return what a request waits for its keys and values behind its prompt."""
        return np.asarray(self.latency_s + num_bytes / self.bytes_per_s / (self.layers if self.streamed else 1))


def simulate(traffic: Traffic, pool: Pool, most_steps: int = 0) -> SimulatedServing:
    """Serve traffic with a pool of replicas.

    Args:
        traffic: what clients send.
        pool: what answers.
        most_steps: steps that the result keeps one by one, for timelines.

    InfeasibleError where a request does not fit into the cache of a replica that has nothing else to do.
    """
    book = Book(len(traffic), most_steps)
    work = _work(traffic, traffic.requests.output, pool.rounds)
    lanes = _lanes(pool, traffic, work, book, 0)
    outages = None if pool.failures is None else Outages(pool.failures, pool.replicas)
    way_in_s = _way_in_s(pool, traffic).tolist()
    run = _run(traffic, book, [(pool, _stage(pool, lanes, way_in_s, outages))])
    if outages is None:
        return run
    low_s = float(run.served.arrived_s.min())
    failures, up_share = outages.between(low_s, low_s + run.duration_s)
    failed = FailedReplicas(failures, len(book.restarts), sum(book.restarts.values()), up_share, run.duration_s)
    return replace(run, failed=failed)


def simulate_apart(
    traffic: Traffic, prefill: Pool, decode: Pool, transfer: Transfer, most_steps: int = 0
) -> SimulatedServing:
    """Serve traffic with one pool that computes prompts and another that decodes.

    The first token comes to the client when the keys and values are at the replica that goes on from it; what it then
    waits for a place there is part of the time of the tokens behind.
    """
    if prefill.failures is not None or decode.failures is not None:
        raise UsageError("failures of replicas are those of one pool: disaggregated prefill and decode has none yet")
    book = Book(len(traffic), most_steps)
    once = _work(traffic, np.ones_like(traffic.requests.output), None)
    rest = _work(traffic, traffic.requests.output, decode.rounds)
    first = _lanes(prefill, traffic, once, book, 0)
    then = _lanes(decode, traffic, rest, book, len(first), prefilled=True)
    moved_s = transfer.time_s(prefill.times.kv_bytes(traffic.requests.prompt.astype(np.float64)))
    stages = [
        (prefill, _stage(prefill, first, _way_in_s(prefill, traffic).tolist())),
        (decode, _stage(decode, then, moved_s.tolist())),
    ]
    return _run(traffic, book, stages)


def _stage(pool: Pool, lanes: Sequence[BatchLane], way_in_s: Sequence[float], outages: Outages | None = None) -> Stage:
    scaler = None if pool.autoscaling is None else Scaler(pool.autoscaling)
    return Stage(lanes, pool.route == "least-loaded", way_in_s, pool.times.groups, outages, scaler)


def _run(traffic: Traffic, book: Book, stages: Sequence[tuple[Pool, Stage]]) -> SimulatedServing:
    Flow(traffic, [stage for _, stage in stages], book).run()
    requests = traffic.requests
    arrived_s, start_s, first_s, finish_s = np.array([book.arrived_s, book.start_s, book.first_s, book.finish_s])
    put_back = np.array(book.preemptions, dtype=np.int64)
    tokens = (requests.prompt, requests.output, requests.cached)
    served = ServedRequests(arrived_s, start_s, first_s, finish_s, *tokens, put_back)
    gaps = [np.frombuffer(a) if len(a) else np.zeros(0) for a in (book.gap_s, book.gap_at_s, book.gaps)]
    span_s = float(served.finish_s.max() - served.arrived_s.min())
    low_s = float(served.arrived_s.min())
    scaled = [None if at.scaler is None else at.scaler.between(low_s, low_s + span_s) for _, at in stages]
    fullness = tuple(
        _fullness(pool, [lane.meters for lane in stage.lanes], span_s, pool.replicas if now is None else now.mean)
        for (pool, stage), now in zip(stages, scaled, strict=True)
    )
    return SimulatedServing(
        served,
        gaps[0],
        gaps[1],
        gaps[2],
        fullness,
        tuple(book.steps),
        book.num_steps,
        traffic.clients,
        scaled=tuple(now for now in scaled if now is not None),
    )


def _work(traffic: Traffic, output: Index, rounds: Rounds | None) -> RequestWork:
    requests, behind = traffic.requests, output - 1
    needed = behind if rounds is None else rounds.needed(behind)
    return RequestWork(*(a.tolist() for a in (requests.prompt, output, requests.cached, needed)))


def _way_in_s(pool: Pool, traffic: Traffic) -> Array:
    over, fetch_s = pool.engine.overheads, 0.0 if traffic.fetch_s is None else traffic.fetch_s
    return np.asarray(over.prompt_s + over.prompt_token_s * traffic.requests.prompt.astype(np.float64) + fetch_s)


def _lanes(
    pool: Pool, traffic: Traffic, work: RequestWork, book: Book, number: int, prefilled: bool = False
) -> tuple[BatchLane, ...]:
    """Every group of every replica of a pool, with its part of the cache and of the places."""
    times, scheduler = pool.times, pool.engine.scheduler
    prompt, output = np.array(work.prompt), np.array(work.output)
    shared = int(max(work.cached)) if pool.shared_prefix else 0
    longest = int((prompt + output).max())
    _check_room(Room(times, scheduler, longest, shared), work)
    seqs = max(1, min(scheduler.max_num_seqs // times.groups, scheduler.max_batched_tokens))
    speeds = Speeds(times, pool.engine.overheads, pool.rounds)
    lanes: list[BatchLane] = []
    for _ in range(pool.replicas):
        busy = Busy(times.pace)
        for _ in range(times.groups):
            room = Room(times, scheduler, longest, shared)
            at = number + len(lanes)
            lanes.append(BatchLane(at, scheduler, seqs, speeds, room, work, book, busy, prefilled))
    return tuple(lanes)


def _check_room(room: Room, work: RequestWork) -> None:
    """InfeasibleError where a request is too long for the cache of a group that has nothing else in it."""
    free = room.capacity_bytes - room.used_bytes(0)
    totals = [p + o for p, o in zip(work.prompt, work.output, strict=True)]
    needed = [room.bytes_of(t) - room.saved_bytes(c) for t, c in zip(totals, work.cached, strict=True)]
    i = max(range(len(needed)), key=needed.__getitem__)
    if needed[i] <= free:
        return
    raise InfeasibleError(
        f"the KV cache cannot hold request {i + 1}: {work.prompt[i]:,} tokens of prompt and {work.output[i]:,} of "
        f"answer need {needed[i] / GIB:.3g} GiB, and {max(free, 0.0) / GIB:.3g} GiB are free; "
        f"{_nearest(room.longest(max(free, 0.0)))}"
    )


def _nearest(longest: int) -> str:
    return f"the longest that fits has {longest:,} tokens" if longest else "not even one block fits"


def _fullness(pool: Pool, meters: Sequence[Meters], span_s: float, replicas: float) -> Fullness:
    """How full a pool of so many replicas was, on average over the run and at most, per replica."""
    capacity = max(pool.times.free_bytes, 1.0)
    batch = sum(m.batch.integral for m in meters) / replicas
    held = sum(m.kv_bytes.integral for m in meters) / replicas
    groups = pool.times.groups
    return Fullness(
        batch_mean=batch / span_s if span_s > 0 else 0.0,
        batch_peak=groups * max(m.batch.peak for m in meters),
        kv_mean=held / span_s / capacity if span_s > 0 else 0.0,
        kv_peak=groups * max(m.kv_bytes.peak for m in meters) / capacity,
        busy=sum(m.batch.busy_s for m in meters) / (replicas * groups * span_s) if span_s > 0 else 0.0,
    )
