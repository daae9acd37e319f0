"""Which plans of a table are legal for a graph: every degree divides what it shards, every stage has a layer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..ir.divisibility import has_experts, suits
from ..ir.experts_plan import expert_options
from ..ir.expr import as_expr
from ..ir.exprtable import ExprTable
from ..ir.graph import Constraint, Graph
from ..ir.plan import PlanTable
from ..ir.points import Points
from ..ir.stages import block_row, can_lay


@dataclass(frozen=True, slots=True)
class ConstraintProgram:
    """The constraints of a lowered graph as a table, checked for many plans at once."""

    constraints: tuple[Constraint, ...]
    dims: ExprTable
    num_blocks: int
    has_experts: bool

    @classmethod
    def of(cls, graph: Graph) -> ConstraintProgram:
        """Compile the constraints of a lowered graph."""
        dims = ExprTable.of([as_expr(c.dim) for c in graph.constraints] or [as_expr(0)])
        return cls(graph.constraints, dims, len(block_row(graph)), has_experts(graph))

    def hold(self, plans: PlanTable, points: Points) -> NDArray[np.bool_]:
        """Return for each plan whether all constraints hold."""
        axes = {a for c in self.constraints for a in c.axes}
        env, point = points.of(self.dims.symbols | axes)
        num = int(point.max()) + 1
        sizes = self.dims.evaluate(env, num)
        legal = np.ones(num, dtype=bool)
        for size, constraint in zip(sizes, self.constraints, strict=False):
            legal &= suits(constraint, size, math.prod(env[a] for a in constraint.axes))
        pp, vpp = plans.stages
        laid = can_lay(self.num_blocks, plans.family.pp_layout, pp * vpp)
        return np.asarray(legal[point] & laid & (self.has_experts | ~_asks_for_experts(plans)))


def _asks_for_experts(plans: PlanTable) -> NDArray[np.bool_]:
    dealt = np.zeros(len(plans), dtype=bool) if plans.ep is None else plans.ep > 1
    return np.asarray(dealt | bool(expert_options(plans.family, 1)))
