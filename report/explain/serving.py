"""Where one number of a server comes from: its formula, the numbers in it, and their sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from ...driver.metrics import METRICS, format_metric
from ...ir.errors import UnknownNameError
from ...ir.plan.precision import counted_dtype
from ...ir.units import format_bytes, format_time
from ..labels import batch_of, request_part_label
from ..numbers import shown_with_source, sources_of
from .explain import explain_text, names_of
from .money_reasons import explain_money

if TYPE_CHECKING:
    from ...backends.machine.files.records import NumberRecord
    from ...driver.serve.answer import ServeEstimate

Lines = Iterator[str]


def explain_serving(answer: ServeEstimate, wanted: str) -> str:
    """Explain a metric of a server, or nodes of its prefill and decode graphs, by name, op or module path.

    `memory` is that of a device of the server; `prefill:NODE`, `decode:NODE` and `decode:memory` ask for one of both
    graphs. UnknownNameError names the nearest.
    """
    labels = {m.label.lower(): m.name for m in METRICS.values()}
    name = labels.get(wanted.lower(), wanted)
    if name == "memory":
        return "\n".join(_memory(answer))
    if name in answer.metrics:
        return "\n".join(_metric(answer, name))
    money = {} if answer.money is None else answer.money.metrics
    if name in money:
        return explain_money(answer, name)
    return _nodes(answer, wanted, [*answer.metrics, *money])


def _nodes(answer: ServeEstimate, wanted: str, metrics: Sequence[str]) -> str:
    phases = {"prefill": answer.prefill, "decode": answer.decode}
    phase, colon, node = wanted.partition(":")
    if colon and phase in phases:
        return explain_text(phases[phase], node)
    found = []
    for called, one in phases.items():
        try:
            found.append(f"{called}:\n{explain_text(one, wanted)}")
        except UnknownNameError:
            continue
    if not found:
        known = sorted({*metrics, *names_of(answer.prefill), *names_of(answer.decode)})
        raise UnknownNameError.of("node, module, op or metric", wanted, known)
    return "\n\n".join(found)


def _metric(answer: ServeEstimate, name: str) -> Lines:
    value = answer.metrics[name]
    yield f"{name} = {value:.7g} ({format_metric(name, value)})"
    if name in METRICS:
        yield f"  {METRICS[name].meaning}"
    if name in _FORMULAS:
        yield from (f"  {line}" for line in _FORMULAS[name](answer))


def _memory(answer: ServeEstimate) -> Lines:
    server, taken = answer.server, sum(answer.memory_bytes.values())
    pool = "" if answer.pools is None else " that decodes"
    capacity = float(server.system.chip.hbm_bytes)
    share = server.engine.scheduler.memory_utilization
    yield f"memory of a GPU{pool} = {taken:.7g} B ({format_bytes(taken)}), {share:.0%} of {format_bytes(capacity)}"
    for part, held in answer.memory_bytes.items():
        if held > 0.0:
            yield f"  {part.replace('_', ' ').replace('kv cache', 'KV cache')} {format_bytes(held)}"
    held = answer.metrics["kv_bytes_per_request"]
    yield f"  a request holds {format_bytes(held)} of cache when it ends; {answer.metrics['batch']:.7g} run at once"
    yield from (f"  {line}" for line in _max_batch(answer))
    yield "  a step by itself: --explain prefill:memory or decode:memory"


def _parts(answer: ServeEstimate, *patterns: str) -> Lines:
    """Parts of the time of a request, those of kernels and messages together by phase."""
    found: dict[str, float] = {}
    for part, seconds in answer.breakdown_s.items():
        if any(fnmatchcase(part, pattern) for pattern in patterns):
            phase = part.partition(".")[0]
            called = f"{phase} kernels and messages" if phase in ("prefill", "decode") else request_part_label(part)
            found[called] = found.get(called, 0.0) + seconds
    yield "= " + " + ".join(f"{called} {seconds:.7g} s" for called, seconds in found.items())


def _numbers(answer: ServeEstimate, *paths: str) -> Lines:
    """Numbers of the engine, each with where it comes from."""
    sources: Mapping[str, NumberRecord] = {n.path: n for n in answer.server.engine.sources}
    yield from (f"{path}: {shown_with_source(sources[path])}" for path in paths if path in sources)


def _ttft(answer: ServeEstimate) -> Lines:
    m = answer.metrics
    steps = answer.server.engine.overheads.step_s
    parts = {p: s for p, s in answer.breakdown_s.items() if p.startswith("prefill.")}
    way = answer.breakdown_s.get("host.request", 0.0)
    waits = answer.breakdown_s.get("queue", 0.0)
    prompt = sum(parts.values())
    host = max(m["ttft_s"] - way - waits - prompt, 0.0)
    named = {"request overhead": way, "waits": waits, "prefill": prompt, "host": host}
    yield "= " + " + ".join(f"{name} {seconds:.7g} s" for name, seconds in named.items())
    yield from (f"  {request_part_label(p)} {format_time(s)}" for p, s in parts.items())
    yield f"range: {format_time(m['ttft_low_s'])} alone, {format_time(m['ttft_high_s'])} behind all others"
    yield f"prefill of {float(answer.lengths.fresh):g} tokens; each step takes the host {format_time(steps)}"
    yield from _numbers(answer, "overheads.prompt", "overheads.prompt_token", "overheads.step")


def _tpot(answer: ServeEstimate) -> Lines:
    gaps = max(float(answer.lengths.gaps), 1.0)
    step = sum(s for p, s in answer.breakdown_s.items() if p.startswith("decode.")) / gaps
    others = answer.breakdown_s.get("interference", 0.0) / gaps
    host = answer.metrics["tpot_s"] - step - others
    yield f"= decode step {step:.7g} s + prefill interference {others:.7g} s + host {host:.7g} s"
    yield from (
        f"  {request_part_label(p)} {format_time(s / gaps)}"
        for p, s in answer.breakdown_s.items()
        if p.startswith("decode.")
    )
    batch = f"{float(answer.found.decodes):.4g} sequences a {batch_of(answer.server)}"
    yield f"a decode step of {batch} over {answer.decode.plan.kv_len} tokens each on average"
    yield from _numbers(answer, "overheads.step", "overheads.sequence", "overheads.interference")


def _e2el(answer: ServeEstimate) -> Lines:
    yield from _parts(answer, "*")
    m = answer.metrics
    if "tpot_s" in m:
        yield f"= TTFT {m['ttft_s']:.7g} s + {float(answer.lengths.gaps):.7g} x TPOT {m['tpot_s']:.7g} s"


def _rate(answer: ServeEstimate) -> Lines:
    m = answer.metrics
    if answer.simulated is None and answer.server.runs_together(answer.load):
        whole_s = m["concurrency"] / m["requests_per_s"]
        yield f"= {m['concurrency']:.7g} requests that start together / {whole_s:.7g} s until the last of them ends"
        yield f"of {answer.server.num_replicas} replicas, static batches one behind the other"
        return
    yield f"= {m['concurrency']:.7g} requests in flight / {m['e2el_s']:.7g} s, by Little's law"


def _tokens(answer: ServeEstimate) -> Lines:
    yield f"= {answer.metrics['requests_per_s']:.7g} requests/s x {_number(answer.lengths.output):.7g} tokens out"


def _per_gpu(rate: str, answer: ServeEstimate) -> Lines:
    yield f"= {answer.metrics[rate]:.7g} tokens/s / {answer.num_gpus} GPUs"


def _total(answer: ServeEstimate) -> Lines:
    prompt, output = _number(answer.lengths.prompt), _number(answer.lengths.output)
    yield f"= {answer.metrics['requests_per_s']:.7g} requests/s x ({prompt:.7g} + {output:.7g}) tokens"


def _in_flight(answer: ServeEstimate) -> Lines:
    m = answer.metrics
    if answer.load.name == "concurrency":
        yield f"= {m['concurrency']:.7g} requests, as asked"
    else:
        yield f"= {m['requests_per_s']:.7g} requests/s x {m['concurrency'] / m['requests_per_s']:.7g} s in flight each"


def _flops(answer: ServeEstimate) -> Lines:
    """Of the prompt less what is cached, and of each further token at the mean context."""
    gaps, whole = _number(answer.lengths.output) - 1.0, answer.metrics["flops_per_request"]
    each = answer.decode.metrics["model_flops"] / answer.decode.plan.global_batch
    yield f"= prompt {whole - gaps * each:.7g} FLOP + {gaps:.7g} tokens x {each:.7g} FLOP at the mean context"


def _max_batch(answer: ServeEstimate) -> Lines:
    server, m = answer.server, answer.metrics
    at = server.engine.scheduler
    yield (
        f"{format_bytes(server.times.free_bytes)} free for the cache, {format_bytes(m['kv_bytes_per_request'])} for a "
        f"request when it ends; at most {at.max_num_seqs} sequences"
    )
    yield (
        "room for all tokens of a request is set aside"
        if at.reserve_output or server.runs_together(answer.load)
        else "a sequence holds its mean over its life"
    )
    yield from _numbers(
        answer,
        "scheduler.max_num_seqs",
        "scheduler.max_batched_tokens",
        "scheduler.block_tokens",
        "scheduler.memory_utilization",
        "scheduler.cache_utilization",
    )
    yield from (f"capacity: {text}" for text in sources_of(server.system, "chip.memory.hbm.capacity"))


def _mfu(answer: ServeEstimate) -> Lines:
    server, m = answer.server, answer.metrics
    served = server.served.decode
    dtype = counted_dtype(server.plan.family, str(served.source.dtype))
    yield (
        f"= {m['flops_per_request']:.7g} FLOP a request x {m['requests_per_s']:.7g} requests/s / "
        f"({answer.num_gpus} GPUs x {server.system.chip.matmul_flop_per_s(dtype):.7g} FLOP/s dense {dtype})"
    )
    yield from (f"peak: {text}" for text in sources_of(server.system, f"chip.matmul.{dtype}"))


def _mbu(answer: ServeEstimate) -> Lines:
    server, m = answer.server, answer.metrics
    bandwidth = float(server.system.chip.hbm_bytes_per_s)
    moved = m["mbu"] * m["itl_s"] * bandwidth
    yield f"= {moved:.7g} B of weights and cache / ({m['itl_s']:.7g} s x {bandwidth:.7g} B/s)"
    yield from (f"bandwidth: {text}" for text in sources_of(server.system, "chip.memory.hbm.bandwidth"))


def _load(answer: ServeEstimate) -> Lines:
    rate, share = answer.metrics["requests_per_s"], answer.metrics["serve_utilization"]
    yield f"= {rate:.7g} requests/s / {rate / share:.7g} requests/s at most"


def _number(value: object) -> float:
    return float(np.asarray(value))


_FORMULAS: Mapping[str, Callable[[ServeEstimate], Lines]] = MappingProxyType(
    {
        "ttft_s": _ttft,
        "tpot_s": _tpot,
        "itl_s": _tpot,
        "e2el_s": _e2el,
        "requests_per_s": _rate,
        "tokens_per_s": _tokens,
        "tokens_per_s_per_gpu": partial(_per_gpu, "tokens_per_s"),
        "total_tokens_per_s": _total,
        "total_tokens_per_s_per_gpu": partial(_per_gpu, "total_tokens_per_s"),
        "tokens_per_s_per_user": lambda answer: iter((f"= 1 / {answer.metrics['tpot_s']:.7g} s of TPOT",)),
        "concurrency": _in_flight,
        "flops_per_request": _flops,
        "max_batch": _max_batch,
        "kv_bytes_per_request": _max_batch,
        "mfu": _mfu,
        "mbu": _mbu,
        "serve_utilization": _load,
    }
)
