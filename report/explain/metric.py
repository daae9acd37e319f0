"""A metric into its formula, with the numbers that reproduce it and where they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import numpy as np

from ...cost.flops import ModelFlops
from ...driver.estimate import Estimate
from ...driver.metrics import METRICS, format_metric
from ...driver.uncertainty.answers import evidence_of_step, step_bands
from ...ir.graph import Workload
from ...ir.plan.precision import counted_dtype
from ...ir.units import format_bytes
from ..bounds import bound_seconds
from ..labels import bound_label, parameter_label, part_label
from ..numbers import sources_of
from .intervals import evidence_line, half_line, most_line
from .sensitivity import sensitivity
from .trust import trust_of_parts

# Least elasticity that is worth a word.
LEAST = 5e-3


def metric_lines(answer: Estimate, name: str) -> Iterator[str]:
    """Yield what a metric is, how it comes about, and how near whole runs came in it."""
    value = answer.metrics[name]
    yield f"{name} = {value:.6g} ({format_metric(name, value)})"
    if name in METRICS:
        yield f"  {METRICS[name].meaning}"
    if name in _FORMULAS:
        yield from (f"  {line}" for line in _FORMULAS[name](answer))
    bands = step_bands(answer)
    if name in bands:
        yield from (f"  {line({name: value}, bands, (name,))}" for line in (half_line, most_line))
        yield f"  {evidence_line(evidence_of_step(answer.table), bands[name])}"


def _step(answer: Estimate) -> Iterator[str]:
    m = answer.metrics["step_time_s"]
    yield "= " + " + ".join(f"{k} {v:.7g} s" for k, v in answer.breakdown_s.items() if v)
    bounds = ((bound_label(k), s / m) for k, s in bound_seconds(answer).items())
    yield "bound by: " + ", ".join(f"{label} {share:.1%}" for label, share in bounds if share >= LEAST / 5)
    follows = ((parameter_label(k), e) for k, e in sensitivity(answer).items() if abs(e) >= LEAST)
    yield "for 1 % more of: " + ", ".join(f"{label} {e:+.3f} %" for label, e in follows)
    yield "errors of measured kernels of the kind, as they judge the parts:"
    trust = trust_of_parts(answer)
    for part, seconds in answer.breakdown_s.items():
        if seconds and part in trust:
            yield f"  {part_label(part)}: " + "; ".join(map(str, trust[part].lines))
        elif seconds:
            yield f"  {part_label(part)}: no measurement"


def _tokens(answer: Estimate) -> tuple[float, str]:
    """Tokens of a step, and how they are counted."""
    plan = answer.plan
    if plan.family.workload is Workload.DECODE:
        return plan.global_batch, f"{plan.global_batch} sequences x 1 token"
    if "samples_per_s" in answer.metrics:
        return plan.global_batch, f"{plan.global_batch} samples"
    return plan.global_batch * plan.seq_len, f"{plan.global_batch} sequences x {plan.seq_len} tokens"


def _rate(answer: Estimate) -> Iterator[str]:
    yield f"= {_tokens(answer)[1]} / {_s(answer)}"


def _rate_per_gpu(answer: Estimate) -> Iterator[str]:
    yield f"= {_tokens(answer)[1]} / {_s(answer)} / {answer.plan.num_gpus} GPUs"


def _rate_per_user(answer: Estimate) -> Iterator[str]:
    yield f"= 1 / {_s(answer)}"


def _whole(answer: Estimate) -> Iterator[str]:
    yield f"= step_time_s = {_s(answer)}"


def _s(answer: Estimate) -> str:
    return f"{answer.metrics['step_time_s']:.7g} s"


def _mfu(answer: Estimate) -> Iterator[str]:
    yield f"= {answer.metrics['model_flops']:.7g} FLOP / ({_s(answer)} x {answer.plan.num_gpus} GPUs x {_peak(answer)})"
    yield from _of_peak(answer, _counted(answer))


def _hfu(answer: Estimate) -> Iterator[str]:
    m = answer.metrics
    done = m["model_flops"] * m["hfu"] / m["mfu"]
    again = done - m["model_flops"]
    flops = f"({m['model_flops']:.7g} FLOP + {again if again > 1e-9 * done else 0:.7g} FLOP of recomputation)"
    yield f"= {flops} / ({_s(answer)} x {answer.plan.num_gpus} GPUs x {_peak(answer)})"
    yield from _of_peak(answer, _counted(answer))


def _mfu_bf16(answer: Estimate) -> Iterator[str]:
    dtype = str(answer.table.lowered.source.dtype)
    done = f"{answer.metrics['model_flops']:.7g} FLOP / ({_s(answer)} x {answer.plan.num_gpus} GPUs"
    yield f"= {done} x {answer.table.system.chip.matmul_flop_per_s(dtype):.7g} FLOP/s dense {dtype} peak)"
    yield from _of_peak(answer, dtype)


def _counted(answer: Estimate) -> str:
    return counted_dtype(answer.plan.family, str(answer.table.lowered.source.dtype))


def _peak(answer: Estimate) -> str:
    dtype = _counted(answer)
    return f"{answer.table.system.chip.matmul_flop_per_s(dtype):.7g} FLOP/s dense {dtype} peak"


def _of_peak(answer: Estimate, dtype: str) -> Iterator[str]:
    yield f"masked attention counts as --flops-convention {answer.table.convention} says"
    yield from (f"peak: {text}" for text in sources_of(answer.table.system, f"chip.matmul.{dtype}"))


def _mbu(answer: Estimate) -> Iterator[str]:
    """Weights and cache over what memory could move meanwhile."""
    chip, moved = answer.table.system.chip, answer.table.lowered.must_move
    if moved is None:
        return
    num_bytes = float(moved.evaluate(answer.table.plans)[0])
    yield f"= {num_bytes:.7g} B / ({_s(answer)} x {float(chip.hbm_bytes_per_s):.7g} B/s)"
    yield "weights that nodes read (of experts those that get rows) and the cache, on an average rank"
    yield from (f"bandwidth: {text}" for text in sources_of(answer.table.system, "chip.memory.hbm.bandwidth"))


def _flops(answer: Estimate) -> Iterator[str]:
    """Matrix FLOPs by phase: everything but attention, and attention by the convention."""
    table, flops = answer.table, answer.table.lowered.flops
    p = table.plans
    env = {"batch": p.global_batch, "seq": p.seq_len, "kv": p.kv_len}
    terms = []
    for phase in dict.fromkeys((*flops.dense, *flops.attention)):
        for of, part in (
            ("", ModelFlops({k: v for k, v in flops.dense.items() if k is phase}, {})),
            (" attention", ModelFlops({}, {k: v for k, v in flops.attention.items() if k is phase})),
        ):
            total = float(np.sum(part.total(env, table.convention)))
            terms += [f"{phase}{of} {total:.7g} FLOP"] if total else []
    yield "= " + " + ".join(terms)
    yield f"masked attention counts as --flops-convention {table.convention} says"
    context = (
        f"kv {answer.plan.kv_len}" if answer.plan.family.workload is Workload.DECODE else f"seq {answer.plan.seq_len}"
    )
    yield f"at batch {answer.plan.global_batch}, {context}; recomputation not counted"


def _flops_per_gpu(answer: Estimate) -> Iterator[str]:
    yield f"= {answer.metrics['model_flops']:.7g} FLOP / {_s(answer)} / {answer.plan.num_gpus} GPUs"


def _memory(answer: Estimate) -> Iterator[str]:
    system = answer.table.system
    yield "= " + " + ".join(f"{k} {v / 2**30:.7g} GiB" for k, v in answer.memory_bytes.items() if v)
    has = float(system.chip.hbm_bytes)
    yield f"{answer.metrics['peak_mem_bytes'] / has:.1%} of the {format_bytes(has)} of the device"
    yield from (f"capacity: {text}" for text in sources_of(system, "chip.memory.hbm.capacity"))
    yield from (f"reserve: {text}" for text in sources_of(system, "stack.memory_reserve"))


def _host_memory(answer: Estimate) -> Iterator[str]:
    yield f"= {answer.metrics['host_mem_bytes'] / 2**30:.7g} GiB of the fullest device"
    yield f"kept there by --offload {','.join(answer.plan.family.offload)}"
    host, node = answer.table.system.host, min(answer.table.system.node_size, answer.plan.num_gpus)
    if host is not None:
        yield f"x {node} devices of a node, of {format_bytes(host.num_bytes)}"


def _exposed(answer: Estimate) -> Iterator[str]:
    yield _sum_of(answer.breakdown_s)


def _hidden(answer: Estimate) -> Iterator[str]:
    yield _sum_of(answer.hidden_comm_s)


def _sum_of(parts: Mapping[str, float]) -> str:
    found = [f"{k} {v:.7g} s" for k, v in parts.items() if k.startswith("comm.") and v]
    return "= " + (" + ".join(found) or "0 s: no message takes time")


def _bubble(answer: Estimate) -> Iterator[str]:
    plan = answer.plan
    yield f"= bubble {answer.breakdown_s.get('bubble', 0.0):.6g} s / {_s(answer)}"
    chunks = f", {plan.vpp} chunks a stage" if plan.vpp > 1 else ""
    yield f"schedule {plan.family.schedule}: {plan.pp} stages{chunks}, {plan.num_micro_batches} micro-batches a replica"


_FORMULAS: Mapping[str, Callable[[Estimate], Iterator[str]]] = MappingProxyType(
    {
        "step_time_s": _step,
        "tokens_per_s": _rate,
        "tokens_per_s_per_gpu": _rate_per_gpu,
        "samples_per_s": _rate,
        "samples_per_s_per_gpu": _rate_per_gpu,
        "tokens_per_s_per_user": _rate_per_user,
        "ttft_s": _whole,
        "tpot_s": _whole,
        "mfu": _mfu,
        "mfu_bf16": _mfu_bf16,
        "hfu": _hfu,
        "mbu": _mbu,
        "model_flops": _flops,
        "model_flop_per_s_per_gpu": _flops_per_gpu,
        "peak_mem_bytes": _memory,
        "host_mem_bytes": _host_memory,
        "exposed_comm_s": _exposed,
        "hidden_comm_s": _hidden,
        "bubble_fraction": _bubble,
    }
)
