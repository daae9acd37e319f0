"""What a model becomes: the traced graph, the graph after the passes, and every node with its cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from ...ir.records import dataclass
from .result import Result
from .table import Line, Panel, Row, shown_rows

if TYPE_CHECKING:
    from ...driver.estimate import Estimate, Lowered
    from ...ir.graph import Graph
    from ...ir.plan import Plan

_NO_SIZES: Mapping[str, object] = MappingProxyType({})
_GRAPHS = (".graph", ".graph.gz")


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class CompiledResult(Result):
    """A model compiled for a plan. What costs time is done when it is first asked for; costs need a system.

    Attributes:
        graph: as it was traced.
        plan: complete.
        lower: runs the passes.
        price: prices the lowered graph; UsageError where no system was named.
        check: verifies by a kind at small sizes, and says what was run.
        overrides: numbers that were set anew.
    """

    graph: Graph
    plan: Plan
    lower: Callable[[], Lowered]
    price: Callable[[Lowered], Estimate]
    check: Callable[[str, Mapping[str, object]], str]
    overrides: tuple[str, ...] = ()

    @cached_property
    def lowered(self) -> Lowered:
        """The graph after the passes, with its tables."""
        return self.lower()

    @cached_property
    def answer(self) -> Estimate:
        """The estimate of the plan."""
        return self.price(self.lowered)

    @property
    def sharded(self) -> Graph:
        """The graph after the passes."""
        return self.lowered.graph

    def verify(self, kind: str = "numeric", sizes: Mapping[str, object] = _NO_SIZES) -> str:
        """Verify that the lowered graph is the model, and return what was run or proven.

        Args:
            kind: `numeric` runs a small model on simulated ranks, `proof` proves it by index maps.
            sizes: of `numeric`: `batch`, `seq`, `kv`; other names are arguments of the factory.

        Raises:
            GateError: the graph is another program than the model, or nothing could be run.
        """
        return self.check(kind, sizes)

    def plan_text(self) -> str:
        """Return the style of each parameter, as a file that `tp_plan` reads back."""
        from ...passes.sharding.plans.choose import plan_for, styles_in
        from ...passes.sharding.plans.plan_files import plan_text
        from ...passes.sharding.shard import shard_by

        found = plan_for(self.plan.family.tp_plan, self.graph, shard_by)
        return plan_text(found, styles_in(found, self.graph))

    def json(self) -> str:
        """Return the report of the estimate."""
        from ..json_report import report_json

        return report_json(self.answer, self.overrides)

    def text(self, columns: int | None = None, color: bool = False) -> str:
        """Return the graph after the passes, as text."""
        from ...ir.text.printer import print_graph

        return print_graph(self.sharded)

    def save(self, path: str | Path, form: str = "") -> Path:
        """Write the graph after the passes (.graph, .graph.gz), or its costs in the form of the suffix."""
        from ...ir.text.files import save_graph

        if not str(path).endswith(_GRAPHS):
            return super().save(path, form)
        save_graph(self.sharded, Path(path))
        return Path(path)

    def rows(self) -> Sequence[Row]:
        """Return every node with its work, time and bound."""
        from ..trace.costed import costed_rows

        return [asdict(row) for row in costed_rows(self.answer)]

    def panels(self) -> Sequence[Panel]:
        """Return the nodes with their costs."""
        rows = shown_rows(self.rows())
        return [Panel("Nodes", rows.head, rows.rows)]

    def summary(self) -> Sequence[Line]:
        """Return the model, the plan, and how large both graphs are."""
        graph, plan = self.graph, self.plan
        return [
            (graph.name, f"{graph.workload} in {graph.dtype}"),
            ("plan", f"{plan.num_gpus} GPUs  {plan.degrees}"),
            ("traced", f"{len(graph.regions)} regions, {sum(len(r.nodes) for r in graph.regions)} nodes"),
        ]
