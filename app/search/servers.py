"""A search of servers that was asked for, turned into its job."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ...ir.errors import UsageError
from ...ir.plan.word import Value
from ..request import Request
from ..run_words import count_of
from ..software import engine_for
from .axes import ALL, Asked
from .job import checked_systems, single, varied_paths
from .memory import MOST_ROWS

if TYPE_CHECKING:
    from ...cost.serving.slo import SLO
    from ...explore.goals import MetricLimit
    from ...explore.machine import MachineChoice
    from ...explore.servers.job import ServingJob
    from ...explore.servers.space import ServingSpace

# Axes of servers; of anything else a search of them has one, or no use.
_AXES = frozenset(
    {
        "system", "tp", "pp", "cp", "ep", "etp", "dp", "mbs", "engine", "precision", "kv_dtype", "chunked_prefill",
        "prefill_tp", "prefill_pp", "prefill_batch",
    }
)  # fmt: skip
_ONE = frozenset(
    {
        "phase", "gpus", "isl", "osl", "cached", "prefix_hit", "shared_prefix", "ttft", "tpot", "max_num_seqs",
        "block_size", "memory_utilization", "dual_batch",
        "pools", "stream_kv", "kv_bandwidth", "dtype", "kernels", "mla",
        "ep_exchange", "expert_popularity", "eplb", "redundant_experts",
        "stack", "calibration", "prices", "year", "cuda_graph", "basis", "rent", "flops_convention", "cache",
        "quiet",
    }
)  # fmt: skip
_USUAL_GOAL = "tokens_per_s"


def server_search_of(asked: Asked, request: Request, text: str) -> ServingJob:
    """Return the search; `request` has the defaults of all flags.

    Raises:
        UsageError: what was asked contradicts itself, leaves nothing to search, or is of training.
        UnknownNameError: a model, a system, an engine or a metric that there is not.
    """
    from ...explore.goals import MetricLimit
    from ...explore.servers.job import serving_job
    from ...explore.servers.rows import KNOWN
    from ...frameworks.runs import runs_server

    check_servers(asked)
    limits = [MetricLimit.of(one, KNOWN) for one in asked.constraints]
    space = _space(asked, request, limits)
    free = tuple(name for name in ("tp", "pp", "cp", "ep", "etp", "dp") if not asked.flags.get(name))
    runs = partial(runs_server, model=space.model, dtype=space.dtype, free=free)
    job = serving_job(space, asked.objectives or (_USUAL_GOAL,), (), asked.rows_at_once or MOST_ROWS, runs)
    return replace(job, limits=tuple(limits), said=text)


def check_servers(asked: Asked) -> None:
    """Raise UsageError for a flag that servers have no use for, and for several values where there is one."""
    for name, values in asked.flags.items():
        flag = name.replace("_", "-")
        if name not in _AXES | _ONE:
            raise UsageError(f"--{flag} says nothing to a search of servers: leave it out")
        if name in _AXES or (len(values) == 1 and values != (ALL,)):
            continue
        given = ",".join(map(str, values))
        if name == "gpus":
            raise UsageError(
                f"gpus={given}: a search of servers has one number of GPUs; servers that use fewer are tried anyway "
                "up to 32"
            )
        raise UsageError(f"{flag}={given}: a search of servers has one {flag}: name it, and search again for others")


def _space(asked: Asked, request: Request, limits: list[MetricLimit]) -> ServingSpace:
    from ...explore.servers.space import ServingSpace

    plain = single(asked, request)
    gpus = _count(asked, "gpus") or 0
    if not gpus:
        raise UsageError("a search of servers needs a number of GPUs: --gpus 16")
    prompt, target = _tokens(asked, "isl", 1024), _target(asked, limits)
    return ServingSpace(
        model=plain.source.model, systems=_machines(asked, plain), gpus=gpus, prompt=prompt,
        output=_tokens(asked, "osl", 1024), cached=_cached(asked, prompt),
        shared_prefix=bool(asked.one("shared_prefix", False)), ttft_s=target.ttft_s, tpot_s=target.tpot_s,
        ttft_share=target.ttft_share, tpot_share=target.tpot_share, e2el_s=_most(limits, "e2el_s"),
        engines=tuple(map(plain.machine.dated, _texts(asked, "engine") or (engine_for(plain, None)[0],))),
        engine_overrides=_of_engine(asked),
        max_batched_tokens=_counts(asked, "chunked_prefill"), max_num_seqs=_count(asked, "max_num_seqs"),
        block_tokens=_count(asked, "block_size"), memory_utilization=_real(asked, "memory_utilization"),
        dual_batch=bool(asked.one("dual_batch", False)),
        dtype=plain.source.dtype, kernels=plain.words.kernels, precision=_recipes(asked) or ("none",),
        kv_dtype=_texts(asked, "kv_dtype") or ("same",), mla=plain.words.mla, exchange=plain.words.exchange,
        expert_popularity=plain.words.expert_popularity, eplb=plain.words.eplb,
        redundant_experts=plain.words.redundant_experts,
        tp=_counts(asked, "tp"), pp=_counts(asked, "pp"), ep=_counts(asked, "ep"), etp=_etp(asked),
        cp=_counts(asked, "cp") or (1,), dp=_counts(asked, "dp"), batch=_counts(asked, "mbs"),
        pools=str(asked.one("pools", "auto")),
        prefill_tp=_counts(asked, "prefill_tp"), prefill_pp=_counts(asked, "prefill_pp"),
        prefill_batch=_counts(asked, "prefill_batch") or (1, 2, 4, 8), stream_kv=bool(asked.one("stream_kv", False)),
        kv_bytes_per_s=_bandwidth(asked), basis=plain.basis, rented=plain.rent, convention=plain.flops_convention,
    )  # fmt: skip


def _machines(asked: Asked, plain: Request) -> tuple[MachineChoice, ...]:
    from ...explore.machine import MachineChoice

    names, at = checked_systems(asked, plain), plain.machine
    assumed = () if _texts(asked, "engine") else engine_for(plain, None)[1]
    paths = {path: values for path, values in asked.paths.items() if not path.startswith("engine.")}
    return tuple(
        MachineChoice(
            name=name,
            overrides=overrides,
            stack=at.stack,
            calibration=at.calibration,
            prices=at.book,
            assumed=assumed,
        )
        for name in names
        for overrides in varied_paths(paths, plain, names)
    )


def _of_engine(asked: Asked) -> tuple[str, ...]:
    """Numbers of the engine that are set; one is not varied."""
    own = {path: values for path, values in asked.paths.items() if path.startswith("engine.")}
    for path, values in own.items():
        if len(values) > 1:
            raise UsageError(f"--vary {path}: a number of the engine is set once: --set {path}={values[0]}")
    return tuple(f"{path.removeprefix('engine.')}={values[0]}" for path, values in own.items())


def _counts(asked: Asked, name: str) -> tuple[int, ...]:
    return tuple(value for value in asked.axis(name) if isinstance(value, int))


def _texts(asked: Asked, name: str) -> tuple[str, ...]:
    return tuple(str(value) for value in asked.words(name))


def _recipes(asked: Asked) -> tuple[str, ...]:
    """Recipes of layers; of all of them those that inference has."""
    from ...ir.graph import Workload
    from ...ir.plan.precision import NONE, recipes_of

    if asked.flags.get("precision") == (ALL,):
        return (NONE, *recipes_of(Workload.DECODE))
    return _texts(asked, "precision")


def _etp(asked: Asked) -> tuple[int, ...]:
    """Degrees inside experts; `tp` is a number where that is fixed, and beside 1 all that is tried anyway."""
    given, tp = asked.axis("etp"), _counts(asked, "tp")
    if "tp" not in given or set(given) == {1, "tp"}:
        return () if "tp" in given else _counts(asked, "etp")
    if len(tp) != 1:
        raise UsageError("etp=tp with tp free: of servers name the degree, as in --etp 8, or leave it out for 1 and tp")
    return tuple(dict.fromkeys(value if isinstance(value, int) else tp[0] for value in given))


def _count(asked: Asked, name: str) -> int | None:
    found = _counts(asked, name)
    return found[0] if found else None


def _real(asked: Asked, name: str) -> float | None:
    value: Value = asked.one(name, None)
    return float(value) if isinstance(value, (int, float)) else None


def _tokens(asked: Asked, name: str, usual: int) -> int:
    found = count_of(str(asked.one(name, usual)))
    if found < 1 or found != int(found):
        raise UsageError(f"--{name} {asked.one(name, usual)}: tokens, a whole number of 1 or more")
    return int(found)


def _cached(asked: Asked, prompt: int) -> int:
    share = _real(asked, "prefix_hit")
    if share is not None and "cached" in asked.flags:
        raise UsageError("--cached and --prefix-hit both say how much of a prompt is there: give one")
    return (_count(asked, "cached") or 0) if share is None else min(round(share * prompt), prompt - 1)


def _target(asked: Asked, limits: list[MetricLimit]) -> SLO:
    """Latencies that are asked for by their flags, or as constraints, which then are none any more."""
    from ...cost.serving.slo import SLO

    texts = (asked.one("ttft", None), asked.one("tpot", None))
    given = SLO.of(*(None if text is None else str(text) for text in texts))
    told = {name: _most(limits, f"{name}_s") for name in ("ttft", "tpot")}
    for name, share in (("ttft", given.ttft_share), ("tpot", given.tpot_share)):
        if share is not None and told[name] is not None:
            raise UsageError(f"--{name} p{share * 100:g} and --constraint {name}_s, which is of the mean: give one")
    pairs = ((given.ttft_s, told["ttft"]), (given.tpot_s, told["tpot"]))
    least = [min((value for value in pair if value is not None), default=None) for pair in pairs]
    return SLO(least[0], least[1], given.ttft_share, given.tpot_share)


def _most(limits: list[MetricLimit], name: str) -> float | None:
    """The least bound on a latency; it is taken out of the limits, for servers are searched within it."""
    mine = [limit for limit in limits if limit.name == name and limit.relation == "<="]
    for limit in mine:
        limits.remove(limit)
    return min((limit.value for limit in mine), default=None)


def _bandwidth(asked: Asked) -> float | None:
    from ...ir.units import parse_quantity

    given = asked.one("kv_bandwidth", None)
    return None if given is None else parse_quantity(str(given), "B/s").value_si
