"""Which plans of a table are legal for a graph: every degree divides what it shards, every stage has a layer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..ir.graph import Graph, LengthBound
from ..ir.layers import num_layers
from ..ir.plan import PlanTable
from ..ir.plan.divisibility import deals, deals_tables, has_experts
from ..ir.plan.layout.stages import can_lay
from ..ir.plan.legality import expert_options
from ..ir.records import dataclass
from ..ir.sizes.expr import as_expr, product, symbol
from ..ir.sizes.exprtable import ExprTable
from ..ir.sizes.fixed_sizes import asked_bounds, counts_tokens, fixed_sizes
from ..ir.sizes.points import Points


@dataclass(frozen=True, slots=True)
class ConstraintProgram:
    """The constraints of a lowered graph as a table, checked for many plans at once.

    Attributes:
        table: the dims, then the ranks that share each.
        copied: which of them may be shared by more ranks than there are things, as a column.
        num_blocks: what stages share out.
        has_experts: whether there are any to deal out.
        has_tables: whether `ep` distributes tables instead.
        fixed: the batch and the length that the graph is of, None where open; see `ir/sizes/fixed_sizes.py`.
        has_length: whether there is a length that ranks could share out.
        bounds: the lengths that the graph holds for, where its code asks for some.
    """

    table: ExprTable
    copied: NDArray[np.bool_]
    num_blocks: int
    has_experts: bool
    has_tables: bool = False
    fixed: tuple[int | None, int | None] = (None, None)
    has_length: bool = True
    bounds: tuple[LengthBound, ...] = ()

    @classmethod
    def of(cls, graph: Graph, source: Graph) -> ConstraintProgram:
        """Compile the constraints of a lowered graph, and the sizes of the traced one that it comes of."""
        given = graph.constraints
        rows = [as_expr(c.dim) for c in given] + [product(symbol(a) for a in c.axes) for c in given]
        copied = np.array([[c.copied] for c in given], dtype=np.bool_).reshape(-1, 1)
        return cls(
            ExprTable.of(rows),
            copied,
            num_layers(graph),
            has_experts(graph),
            deals_tables(graph),
            fixed_sizes(source),
            counts_tokens(source),
            asked_bounds(source),
        )

    def hold(self, plans: PlanTable, points: Points) -> NDArray[np.bool_]:
        """Return for each plan whether all constraints hold."""
        env, point = points.of(self.table.symbols)
        rows = self.table.evaluate(env, int(point.max()) + 1)
        sizes, degrees = rows[: len(self.copied)], rows[len(self.copied) :]
        legal = np.asarray(deals(sizes, degrees, self.copied).all(axis=0))
        pp, vpp = plans.stages
        laid = can_lay(self.num_blocks, plans.family.pp_layout, pp * vpp)
        dealt = np.zeros(len(plans), dtype=bool) if plans.ep is None else plans.ep > 1
        return np.asarray(
            legal[point]
            & laid
            & self._are_its_sizes(plans)
            & (self.has_experts | (self.has_tables & dealt) | ~(dealt | bool(expert_options(plans.family, 1))))
        )

    def _are_its_sizes(self, plans: PlanTable) -> NDArray[np.bool_]:
        """Return which plans are for sizes that the graph is of; see `check_sizes`."""
        batch, length = self.fixed
        suits = (plans.micro_batch == batch) if batch is not None else np.ones(len(plans), dtype=bool)
        if batch is not None and plans.ep is not None:
            suits = suits & (plans.ep == 1)
        if not self.has_length and plans.cp is not None:
            suits = suits & (plans.cp == 1)
        asked = {"batch": plans.micro_batch, "kv": plans.kv_len, "seq": plans.seq_len}
        for bound in self.bounds:
            # Which sizes a bound allows; see `LengthBound.holds`.
            sizes = asked[bound.name]
            inside = (sizes >= bound.low) & ((sizes <= bound.high) if bound.high else True)
            suits = suits & np.asarray(inside & ((sizes - bound.low) % bound.step == 0) & ~np.isin(sizes, bound.gaps))
        return np.asarray(suits & (plans.seq_len == length) if length is not None else suits)
