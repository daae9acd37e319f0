"""Random plans that are legal for a lowered graph, as a table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from slipstick.ir.graph import Graph
from slipstick.ir.placement import TP
from slipstick.ir.plan import Family, PlanTable, make_plan
from slipstick.ir.plan.divisibility import legal_degrees

_SHORTEST = 1024
_SEED = 20240722


def random_plans(lowered: Graph, num_plans: int) -> PlanTable:
    """Draw degrees, batches and lengths; every degree divides what it shards.

    Lengths are multiples of 1024 up to 32768, replicas 1 to 128, micro-batches 1 to 16 sequences, 1 to 64 a step:
    about half a million different plans a tensor-parallel degree, so that a large table repeats few of them.
    """
    family = Family(sp=True)
    shortest = make_plan(num_gpus=1, seq_len=_SHORTEST, family=family)
    draw = np.random.default_rng(_SEED)
    tp = draw.choice(np.array(legal_degrees(lowered, shortest, TP.group), dtype=np.float64), num_plans)
    dp, micro, num_micro, length = (_integers(draw, most, num_plans) for most in (128, 16, 64, 32))
    return PlanTable(family, tp * dp, tp, dp, micro, num_micro, length * _SHORTEST, np.zeros(num_plans))


def with_own_lengths(plans: PlanTable) -> PlanTable:
    """Return the plans with a length each, multiples of 8 from 1024 on in no order: no two are one point to a node."""
    lengths = _SHORTEST + 8.0 * np.arange(len(plans))
    return replace(plans, seq_len=np.random.default_rng(_SEED).permutation(lengths))


def screened_plans(family: Family, num_plans: int) -> PlanTable:
    """Draw plans over every axis, legal or not: powers of two, up to 32 stages of three chunks at most."""
    draw = np.random.default_rng(_SEED)
    tp, cp, ep, shards, micro = (2.0 ** (_integers(draw, most, num_plans) - 1) for most in (5, 5, 7, 7, 5))
    pp = _integers(draw, 32, num_plans)
    vpp = np.where(pp > 1.0, _integers(draw, 3, num_plans), 1.0)
    num_micro, length = pp * _integers(draw, 64, num_plans), _integers(draw, 8, num_plans) * (4 * _SHORTEST)
    return PlanTable(
        family, tp * cp * ep * shards * pp, tp, ep * shards, micro, num_micro, length, np.zeros(num_plans),
        cp=cp, ep=ep, pp=pp, vpp=vpp,
    )  # fmt: skip


def family_plans(family: Family, num_gpus: int, global_batch: int, num_layers: int) -> PlanTable:
    """Return every plan of a family over powers of two, with every number of chunks: what a search has of it.

    Degrees multiply to the number of GPUs, and micro-batches to the batch; rounds of stages where they interleave.
    """
    sizes = [2**k for k in range(12)]
    rows = [
        (tp, pp, cp, ep, vpp, mbs, num_gpus // (tp * pp * cp), global_batch * tp * pp * cp // (num_gpus * mbs))
        for tp in sizes[:5]
        for pp in sizes[:7]
        for cp in (sizes[:6] if family.cp != "none" else [1])
        for ep in (sizes[:7] if family.ep else [1])
        for mbs in sizes[:7]
        if num_gpus % (tp * pp * cp * ep) == 0 and global_batch * tp * pp * cp % (num_gpus * mbs) == 0
        for vpp in range(1, num_layers // pp + 1 if pp > 1 else 2)
        if vpp == 1 or global_batch * tp * cp % (num_gpus * mbs) == 0
    ]
    tp, pp, cp, ep, vpp, mbs, dp, num_micro = np.array(rows, dtype=np.float64).T
    ones = np.ones(len(rows))
    return PlanTable(
        family, ones * num_gpus, tp, dp, mbs, num_micro, ones * 8 * _SHORTEST, np.zeros(len(rows)), cp=cp, ep=ep,
        pp=pp, vpp=vpp,
    )  # fmt: skip


def decode_plans(family: Family, num_points: int) -> PlanTable:
    """Return decode steps of one replica at tensor-parallel 1 to 8, over batches and contexts, all distinct."""
    point = np.arange(num_points, dtype=np.float64)
    ones = np.ones(num_points)
    tp, rest = np.exp2(point % 4.0), point // 4.0
    batch, cached = rest % 500.0 + ones, (rest // 500.0 + ones) * 160.0
    return PlanTable(family, tp, tp, ones, batch, ones, cached, cached)


def _integers(draw: np.random.Generator, most: int, num: int) -> NDArray[np.float64]:
    return draw.integers(1, most, num, endpoint=True).astype(np.float64)
