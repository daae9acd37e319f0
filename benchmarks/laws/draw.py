"""Random families and tables of plans over every axis, legal for a lowered graph."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from slipstick.ir.graph import Graph, Workload
from slipstick.ir.layers import num_layers
from slipstick.ir.plan import Family, PlanTable
from slipstick.ir.plan.low_inference import KV_WORDS
from slipstick.ir.plan.precision import RECIPES
from slipstick.ir.schedules.registry import SCHEDULES, can_run
from slipstick.ir.types import DType

_AWAY: tuple[tuple[str, ...], ...] = (("optimizer",), ("activations",), ("optimizer", "activations"))
_TRAINING = tuple(RECIPES)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A model by name, what is done with it, and the family that it is lowered for."""

    model: str
    family: Family


def drawn_family(draw: random.Random, experts: bool) -> Family:
    """Draw a family: two thirds train, the others read or write tokens."""
    workload = draw.choice([*[Workload.TRAIN] * 4, Workload.PREFILL, Workload.DECODE])
    return _training(draw, experts) if workload is Workload.TRAIN else _inference(draw, workload, experts)


def _training(draw: random.Random, experts: bool) -> Family:
    zero, sp = draw.choice([0, 0, 1, 2, 3]), draw.random() < 0.6
    cp = draw.choice(["none", "none", "none", "allgather", "ring", "ulysses"])
    pp = draw.random() < 0.65
    away = draw.choice(_AWAY) if draw.random() < 0.2 else ()
    precision = draw.choice(_TRAINING) if draw.random() < 0.35 else "none"
    ep = experts and draw.random() < 0.6
    return Family(
        sp=sp, zero=zero, cp=cp, pp=pp, ep=ep, offload=away, precision=precision,
        etp=not (experts and sp and draw.random() < 0.5),
        schedule=draw.choice(list(SCHEDULES)) if pp else "1f1b",
        pp_layout=draw.choice(["auto", "auto", "even", "balanced"]),
        recompute=draw.choice(["none", "none", "selective", "ops", "full"]),
        usp=cp in ("allgather", "ring") and draw.random() < 0.3,
        hsdp=zero > 0 and draw.random() < 0.3,
        reshard=draw.choice(["layer", "microbatch", "step"]) if zero == 3 else "layer",
        async_tp=sp and draw.random() < 0.2, capacity=ep and draw.random() < 0.3,
        imbalance=ep and draw.random() < 0.3,
        dispatch_dtype=draw.choice(["same", "fp8"]) if ep else "same",
        grad_dtype=draw.choice([DType.FP32, DType.BF16]),
        kernels=draw.choice(["plain", "torch", "fused"]),
        fp8_param_gather=precision in ("fp8", "fp8-block") and not away and draw.random() < 0.3,
        fp8_attention=precision != "none" and draw.random() < 0.3,
        fp8_output_proj=precision == "mxfp8" and draw.random() < 0.3,
    )  # fmt: skip


def _inference(draw: random.Random, workload: Workload, experts: bool) -> Family:
    precision = draw.choice(["none", "none", "fp8", "fp8-rowwise", "mxfp8", "nvfp4", "int8", "w8a16", "w4a16"])
    return Family(
        workload=workload, pp=draw.random() < 0.3, ep=experts and draw.random() < 0.5, precision=precision,
        kv_dtype=draw.choice(KV_WORDS), kernels=draw.choice(["eager", "fused"]),
    )  # fmt: skip


def drawn_plans(seed: int, num: int, family: Family, graph: Graph) -> PlanTable:
    """Draw degrees, batches and lengths over every axis of a family, legal or not."""
    draw = np.random.default_rng(seed)
    training = family.workload is Workload.TRAIN

    def of(*values: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return draw.choice(np.array(values, dtype=np.float64), num)

    one = np.ones(num)
    tp = of(1, 1, 2, 4, 8)
    pp = of(2, 2, 4, 8) if family.pp else one
    cp = of(1, 2, 4) if family.cp != "none" else one
    inner = np.minimum(of(1, 2), cp) if family.usp else one
    within = of(1, 2, 4, 8) if family.ep else one
    # Whole experts lie on ranks of tp first.
    ep = within * tp if family.ep and not family.etp else within
    shard = of(1, 2, 4) if family.hsdp else None
    dp = within * (shard if shard is not None else one) * of(1, 2, 4, 8)
    chunks = SCHEDULES[family.schedule]
    vpp = np.full(num, float(chunks.chunks))
    if chunks.interleaves and num_layers(graph) >= 16:
        vpp = np.where(pp > 1.0, of(1, 1, 2), 1.0)
    micro = of(1, 1, 2, 4) if training else of(1, 4, 16, 64)
    num_micro = pp * of(1, 2, 3, 4, 8, 16) if training else one
    decode = family.workload is Workload.DECODE
    length = of(512, 1024, 2048, 4096, 8192) if not decode else one
    cached = of(128, 1024, 4096, 16384) if decode else np.zeros(num)
    plans = PlanTable(
        family, tp * cp * pp * dp, tp, dp, micro, num_micro, length, cached, cp=cp, ep=ep, pp=pp, vpp=vpp,
        cp_ulysses=inner, dp_shard=shard, capacity_factor=of(0.5, 1.0, 1.25) if family.capacity else None,
        expert_imbalance=np.where(ep > 1.0, of(1.0, 1.5), 1.0) if family.imbalance else None,
    )  # fmt: skip
    runs = can_run(family.schedule, num_micro, pp, vpp) if training else np.ones(num, dtype=np.bool_)
    return plans.part(np.flatnonzero(runs))
