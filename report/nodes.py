"""Every node of an estimate with its sizes, so that kernels of a trace are known by them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..backends.pricing.program import group_factors
from ..backends.pricing.timing import PricedGroup
from ..driver.estimate import Estimate
from ..ir.ops import Trait, has
from ..ir.sizes.expr import Dim, Num, as_expr
from ..measured.match.planned import HeadSizes, MatrixProduct, PlannedNode, PlannedStage, PlannedStep, Sent
from .trace.stages import chunks_of

Env = Mapping[str, Num]


def planned_step(answer: Estimate) -> PlannedStep:
    """Return the nodes of an estimate in the order of the graph, and how they fall on pipeline stages."""
    table = answer.table
    env: Env = {name: float(column[0]) for name, column in table.plans.columns.items()}
    found: dict[str, PlannedNode] = {}
    for priced in table.timing.priced:
        for row, entry in enumerate(priced.group.entries):
            if not has(entry, Trait.RECEIVES):
                found[entry.name] = _node(answer, priced, row, env)
    names = (f"{r.name}/%{n.key}" for r in table.lowered.graph.regions for n in r.nodes)
    nodes = tuple(node for name in names if (node := found.get(name)) and (node.sent is None or node.sent.ranks > 1))
    layout, chunks = table.staging.layouts[int(table.staging.which[0])], chunks_of(answer)
    stages = tuple(
        PlannedStage(cls.first, tuple(tuple(zip(c.regions, c.layers, strict=True)) for c in chunks[cls.first]))
        for cls in layout.classes
    )
    return PlannedStep(nodes, stages, len(layout.stages), answer.plan.num_micro_batches)


def _node(answer: Estimate, priced: PricedGroup, row: int, env: Env) -> PlannedNode:
    entry, point = priced.group.entries[row], int(priced.point[0])
    time_s, kernel_s = float(priced.time_s[row, point]), None
    if priced.kernels is not None:
        alone_s = float(np.broadcast_to(priced.kernels.time_s, priced.time_s.shape)[row, point])
        alone_s *= answer.table.system.stack.factor(entry.kind)
        kernel_s = alone_s if alone_s < time_s else None

    def whole(size: Dim | float) -> int:
        return round(float(as_expr(size).evaluate(env)))

    work, sent = entry.work, None
    if entry.message is not None:
        degrees = {axis: float(degree) for axis, degree in answer.plan.mesh.items()}
        ranks = 1.0
        for many, _ in group_factors(entry.axis, degrees, answer.plan.family.order):
            ranks *= float(many)
        sent = Sent(entry.axis, round(ranks), float(entry.message.evaluate(env)))
    products = tuple(MatrixProduct(whole(g.batch), whole(g.m), whole(g.n), whole(g.k)) for g in work.gemms)
    a = work.attention
    heads = None if a is None else HeadSizes(whole(a.batch), whole(a.heads), whole(a.q_len), whole(a.kv_len), a.qk_dim)
    return PlannedNode(
        entry.name, entry.op, str(entry.kind), entry.scope, str(entry.phase), time_s, products, heads, sent, kernel_s
    )
