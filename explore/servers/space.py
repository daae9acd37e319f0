"""A space of servers: a model on devices of one or more systems, requests, latencies, and all that may be chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from itertools import product

from ...backends.machine.software.usual import usual_engine
from ...cost.flops import Convention
from ...cost.money import Terms
from ...cost.serving.slo import SLO
from ...cost.serving.traffic.requests import Lengths
from ...ir.errors import PlanError, UnknownNameError, UsageError
from ...ir.plan.words import EXCHANGES
from ...ir.records import dataclass
from ..machine import MachineChoice

# Requests in flight a replica by default: each number up to the first of these, then four a doubling.
_EACH, _MOST = 8, 1024
# Up to so many devices, servers that use fewer of them are tried as well.
_FEWER_UP_TO = 32
POOLS = ("auto", "on", "off")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSpace:
    """Servers of a model; an axis is a tuple of what is tried, and an empty one stands for all that is legal.

    Attributes:
        model: a catalogue name, or a path.
        systems: that are tried.
        gpus: devices that there are.
        prompt: tokens of a prompt.
        output: tokens of an answer.
        cached: tokens of the prompt that are in the cache already.
        shared_prefix: all requests have these in common.
        ttft_s: mean time to the first token at most; None where anything goes.
        tpot_s: mean time of a token behind it at most.
        ttft_share: share of the requests that must keep the first, 0.99 for p99; None for their mean.
        tpot_share: likewise of the second.
        e2el_s: mean time to the last token at most.
        engines: names, or paths.
        engine_overrides: `overheads.step=1ms`, of all engines.
        max_batched_tokens: tokens of a step at most, 0 where prompts are never cut; empty for the engine's own.
        max_num_seqs: sequences that a replica runs at once at most; None for the engine's own.
        block_tokens: of the cache, likewise.
        memory_utilization: share of a device's memory that the engine reserves, likewise.
        dual_batch: whether halves of a step run in turn where that is quicker.
        dtype: of weights and activations.
        kernels: `eager` or `fused`; None for those of the stack.
        precision: recipes by which layers multiply, or `as-published`.
        kv_dtype: types of keys and values, `same` for the model's.
        mla: what latent attention runs over in decode.
        exchange: how rows get to experts that are distributed.
        expert_popularity: of those, as a plan says it; empty where all are alike.
        eplb: whether they lie so that ranks have about equal loads.
        redundant_experts: copies of popular ones, a layer.
        tp: tensor-parallel degrees; empty for powers of two and divisors of `gpus`.
        pp: pipeline stages, likewise.
        cp: ranks that share out the cached tokens of a decode step, of servers that do both phases.
        ep: ranks over which whole experts are sharded, likewise; 1 splits them as everything else.
        etp: tensor parallelism inside experts; empty for 1 and tp.
        dp: replicas; empty for as many as there is room for, and where `fewer_gpus` says so any fewer.
        batch: requests in flight on each replica, or for each decode worker; empty for up to 1024, four a doubling.
        fewer_gpus: whether servers that leave devices unused are tried; None: where there are 32 or fewer.
        pools: `off` for replicas that do both phases, `on` for disaggregated prefill and decode, `auto` for either.
        prefill_tp: of workers of prompts; empty as `tp`.
        prefill_pp: likewise.
        prefill_batch: prompts that they run at once.
        stream_kv: send caches layer by layer while the prompt still runs.
        kv_bytes_per_s: what carries caches from one device; None for the network that joins both pools.
        basis: `market` or `build`: how machines are priced.
        rented: by the hour, in place of owning them.
        convention: how masked attention counts in FLOPs.

    Raises:
        PlanError: degrees or counts below one, more than there are.
        UsageError: lengths or latencies that no request has, nothing to try.
    """

    model: str
    systems: tuple[MachineChoice, ...]
    gpus: int
    prompt: int
    output: int
    cached: int = 0
    shared_prefix: bool = False
    ttft_s: float | None = None
    tpot_s: float | None = None
    ttft_share: float | None = None
    tpot_share: float | None = None
    e2el_s: float | None = None
    engines: tuple[str, ...] = field(default_factory=lambda: (usual_engine(),))
    engine_overrides: tuple[str, ...] = ()
    max_batched_tokens: tuple[int, ...] = ()
    max_num_seqs: int | None = None
    block_tokens: int | None = None
    memory_utilization: float | None = None
    dual_batch: bool = False
    dtype: str = "bf16"
    kernels: str | None = None
    precision: tuple[str, ...] = ("none",)
    kv_dtype: tuple[str, ...] = ("same",)
    mla: str = "latent"
    exchange: str = "alltoall"
    expert_popularity: str = ""
    eplb: bool = False
    redundant_experts: int = 0
    tp: tuple[int, ...] = ()
    pp: tuple[int, ...] = ()
    cp: tuple[int, ...] = (1,)
    ep: tuple[int, ...] = ()
    etp: tuple[int, ...] = ()
    dp: tuple[int, ...] = ()
    batch: tuple[int, ...] = ()
    fewer_gpus: bool | None = None
    pools: str = "auto"
    prefill_tp: tuple[int, ...] = ()
    prefill_pp: tuple[int, ...] = ()
    prefill_batch: tuple[int, ...] = (1, 2, 4, 8)
    stream_kv: bool = False
    kv_bytes_per_s: float | None = None
    basis: str = "market"
    rented: bool = False
    convention: str = "full"

    def __post_init__(self) -> None:
        """Refuse what no server can have."""
        for name in ("tp", "pp", "cp", "ep", "etp", "dp", "batch", "prefill_tp", "prefill_pp", "prefill_batch"):
            wrong = [number for number in getattr(self, name) if number < 1]
            if wrong:
                raise PlanError(f"{name}={wrong[0]}: degrees, replicas and batches are 1 or more")
        for name in ("systems", "engines", "precision", "kv_dtype", "cp", "prefill_batch"):
            if not getattr(self, name):
                raise UsageError(f"{name}: nothing to try; name one at least")
        if self.gpus < 1:
            raise PlanError(f"gpus={self.gpus}: 1 or more")
        self._check_limits()
        if self.exchange not in EXCHANGES:
            raise UnknownNameError.of("exchange of rows", self.exchange, EXCHANGES)
        if self.pools not in POOLS:
            raise UnknownNameError.of("use of pools", self.pools, POOLS)
        if self.pools == "on" and self.output < 2:
            raise UsageError("output=1: the prefill makes the only token, and a decode pool has nothing to do")
        if self.e2el_s is not None and not 0 < self.e2el_s < float("inf"):
            raise UsageError(f"E2EL {self.e2el_s:g} s; allowed: more than 0 s")
        _ = self.lengths, self.target, self.terms, Convention(self.convention)

    def _check_limits(self) -> None:
        for name in ("max_num_seqs", "block_tokens"):
            given = getattr(self, name)
            if given is not None and given < 1:
                raise UsageError(f"{name}={given}; allowed: 1 or more, or nothing for the engine's own")
        if min(self.max_batched_tokens, default=0) < 0:
            raise UsageError(
                f"max_batched_tokens={min(self.max_batched_tokens)}; allowed: tokens, or 0 for prompts whole"
            )
        if self.memory_utilization is not None and not 0 < self.memory_utilization <= 1:
            raise UsageError(f"memory_utilization={self.memory_utilization:g}; allowed: a share, above 0 up to 1")

    @property
    def lengths(self) -> Lengths:
        """Tokens of a request."""
        return Lengths(float(self.prompt), float(self.output), float(self.cached), self.shared_prefix)

    @property
    def target(self) -> SLO:
        """Times to the first token and between tokens that are asked for."""
        return SLO(self.ttft_s, self.tpot_s, self.ttft_share, self.tpot_share)

    @property
    def has_target(self) -> bool:
        """Whether any latency is asked for."""
        return bool(self.target) or self.e2el_s is not None

    @property
    def terms(self) -> Terms:
        """The ownership model of the systems."""
        if self.basis not in ("market", "build"):
            raise UnknownNameError.of("basis", self.basis, ("market", "build"))
        return Terms(basis="build" if self.basis == "build" else "market", rented=self.rented)

    @property
    def batches(self) -> tuple[int, ...]:
        """Requests in flight a replica that are tried."""
        return tuple(sorted(dict.fromkeys(self.batch))) or usual_batches()

    @property
    def uses_fewer(self) -> bool:
        """Whether servers that leave devices unused are tried."""
        return self.gpus <= _FEWER_UP_TO if self.fewer_gpus is None else self.fewer_gpus

    @property
    def settings(self) -> tuple[ServerSetting, ...]:
        """All that is not a number of a plan, one setting for each part of the space, in order."""
        kinds = {"auto": (False, True), "off": (False,), "on": (True,)}[self.pools if self.output > 1 else "off"]
        limits = self.max_batched_tokens or (None,)
        return tuple(
            ServerSetting(apart, machine, engine, limit, precision, kv_dtype)
            for apart in kinds
            for machine, engine in product(self.systems, self.engines)
            for limit in limits
            for precision, kv_dtype in product(self.precision, self.kv_dtype)
        )

    @property
    def words(self) -> Mapping[str, tuple[str, ...]]:
        """Of each column whose numbers stand for words, the words from 0 on."""
        limits = (str(tokens) if tokens else "never cut" for tokens in self.max_batched_tokens)
        return {
            "system": tuple(map(str, self.systems)),
            "engine": self.engines,
            "max_batched_tokens": tuple(limits) or ("as the engine",),
            "precision": self.precision,
            "kv_dtype": self.kv_dtype,
            "apart": ("replicas", "pools"),
        }

    def numbers_of(self, setting: ServerSetting) -> Mapping[str, float]:
        """Return where a setting stands in the tuples of the space, by the names of columns."""
        limit = setting.max_batched_tokens
        return {
            "system": float(self.systems.index(setting.machine)),
            "engine": float(self.engines.index(setting.engine)),
            "max_batched_tokens": 0.0 if limit is None else float(self.max_batched_tokens.index(limit)),
            "precision": float(self.precision.index(setting.precision)),
            "kv_dtype": float(self.kv_dtype.index(setting.kv_dtype)),
            "apart": float(setting.apart),
        }

    def setting_of(self, row: Mapping[str, float]) -> ServerSetting:
        """Return the setting of a row of columns."""
        at = {name: int(row[name]) for name in ("system", "engine", "max_batched_tokens", "precision", "kv_dtype")}
        limits = self.max_batched_tokens or (None,)
        return ServerSetting(
            bool(row["apart"]),
            self.systems[at["system"]],
            self.engines[at["engine"]],
            limits[at["max_batched_tokens"]],
            self.precision[at["precision"]],
            self.kv_dtype[at["kv_dtype"]],
        )


@dataclass(frozen=True, slots=True)
class ServerSetting:
    """What a part of a space has in common.

    Attributes:
        apart: whether prompts and answers have devices of their own.
        machine: the system.
        engine: its name.
        max_batched_tokens: tokens of a step at most, 0 where prompts are never cut; None for the engine's own.
        precision: recipe of layers.
        kv_dtype: type of keys and values.
    """

    apart: bool
    machine: MachineChoice
    engine: str
    max_batched_tokens: int | None
    precision: str
    kv_dtype: str


def usual_batches() -> tuple[int, ...]:
    """Return the numbers of requests in flight that are tried by default.

    >>> usual_batches()[:14], usual_batches()[-1]
    ((1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 13, 16, 19, 23), 1024)
    """
    more: list[int] = []
    while (number := round(_EACH * 2 ** ((len(more) + 1) / 4))) <= _MOST:
        more.append(number)
    return (*range(1, _EACH + 1), *more)
