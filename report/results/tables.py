"""Results that are tables: searches, sweeps of designs, costs, contents of models, and comparisons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, ClassVar, cast

from ...driver.metrics import METRICS, format_metric
from ...ir.records import dataclass
from ...ir.text.json_text import json_text
from ...ir.units import format_bytes, format_si
from .result import DRAWN, Result
from .table import Line, Panel, Row, flat, shown_rows

if TYPE_CHECKING:
    from ...cost.money import Money
    from ...ir.graph import Graph
    from ...measured.match.run import MatchedRun
    from ..catalogue.contents import GraphContents
    from ..compare.comparison import Comparison
    from ..compare.gates import Gate
    from ..designs.designs import Ranking
    from ..explain.pricing import PricedOp
    from ..pictures.picture import Picture
    from ..search.answer import SearchAnswer
    from ..search.front import Front
    from ..search.trials import Trials
    from .page import Page

# Designs that a screen shows where nobody says how many.
SCREEN = 20


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class SearchResult(Result):
    """The best plans of a search, and the front: see `answer.best`."""

    forms: ClassVar[tuple[str, ...]] = (*Result.forms, *DRAWN)
    answer: SearchAnswer
    front: Callable[[], Front]
    why: bool = True

    def json(self) -> str:
        """Return the document."""
        from ...explore.runs.tool import tool_version
        from ..search.table import search_json

        return search_json(self.answer, tool_version())

    def text(self, columns: int | None = None, color: bool = False) -> str:
        """Return the table, and why the first row beats the second."""
        from ..search.answer import num_rows
        from ..search.table import search_text
        from ..search.why import why, why_text

        shown = search_text(self.answer, columns)
        ranked = self.answer.ranked
        if not self.why or num_rows(ranked) < 2:
            return shown
        first, second = (self.answer.rows.answer(ranked, at) for at in (0, 1))
        return f"{shown}\n\n{why_text(why(first, second, self.answer.rows.goals))}"

    def pictures(self) -> Sequence[Picture]:
        """Return the front of two goals, of one goal the best rows over their memory."""
        from ..pictures.answers import front_picture, rows_picture

        goals = self.answer.rows.goals
        several = len(goals) > 1
        one = (
            front_picture(self.front()) if several else rows_picture(goals[0], self.answer.best, self.answer.rows.shown)
        )
        return [] if one is None else [one]

    def svg(self) -> str:
        """Return the front as a picture."""
        from ..search.front_svg import front_svg

        return front_svg(self.front())

    def page(self) -> Page:
        """Return what the page says; where nothing draws charts, with the picture of the house."""
        alt = f"Pareto-optimal plans in {', '.join(map(str, self.answer.rows.goals))}"
        return replace(super().page(), picture=self.svg(), alt=alt)

    def rows(self) -> Sequence[Row]:
        """Return the best rows, the best first."""
        # A metric is a fraction even where it happens to be whole: a column has one type in every file.
        return [
            {name: float(v) if name in METRICS and isinstance(v, int) else v for name, v in flat(one)}
            for one in _records(self, "best")
        ]

    def panels(self) -> Sequence[Panel]:
        """Return the best rows, and the front."""
        front = shown_rows([dict(flat(one)) for one in _records(self, "front")])
        return [shown_rows(self.rows()), Panel("Rows of the front", front.head, front.rows)]

    def summary(self) -> Sequence[Line]:
        """Return what was searched, and the best row."""
        answer, tally = self.answer, self.answer.tally
        goals = [goal.name for goal in answer.rows.goals]
        shown = dict.fromkeys([*goals, *answer.rows.shown])
        best = {name: float(column[0]) for name, column in answer.best.top.items() if name in shown}
        return [
            (answer.model, f"search of {answer.rows.of}"),
            ("candidates", f"{tally.num_candidates:,}, {tally.num_legal:,} legal, {tally.num_kept:,} kept"),
            ("objectives", ", ".join(map(str, answer.rows.goals))),
            ("best", answer.whole_label(answer.best.top, 0)),
            ("", ", ".join(f"{METRICS[n].label} {format_metric(n, v)}" for n, v in best.items() if n in METRICS)),
        ]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class SweepResult(Result):
    """Designs in the order of the first goal; `system` writes the system of the first one.

    `orders` are the first of them in the order of each book of prices, where several were asked for.
    """

    forms: ClassVar[tuple[str, ...]] = (*Result.forms, *DRAWN)
    ranking: Ranking
    system: Callable[[], str]
    only_pareto: bool = False
    top: int | None = None
    trials: Trials | None = None
    orders: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def json(self) -> str:
        """Return the document."""
        from ..cost.books import orders_record
        from ..designs.designs import designs_json

        chosen = self.ranking.chosen(self.only_pareto, self.top)
        more: dict[str, object] = {} if self.trials is None else {"trials": self.trials.document()}
        return designs_json(self.ranking, chosen, more | orders_record(self.orders))

    def text(self, columns: int | None = None, color: bool = False) -> str:
        """Return the table: where nobody says how many, of the first twenty."""
        from ..cost.books import order_notes
        from ..designs.designs_table import designs_table

        rows = self.ranking.chosen(self.only_pareto, SCREEN if self.top is None else self.top)
        table = "\n".join([designs_table(self.ranking, rows, columns), *order_notes(self.orders)])
        if self.trials is None:
            return table
        again = len(self.trials.values) - len(self.ranking.reason)
        return f"{table}\n{self.trials.line}" + (f"; {again:,} chose a design again" if again else "")

    def pictures(self) -> Sequence[Picture]:
        """Return the first goal over what designs differ in."""
        from ..pictures.answers import designs_picture

        one = designs_picture(self.ranking)
        return [] if one is None else [one]

    def rows(self) -> Sequence[Row]:
        """Return every column of each design."""
        from ..designs.designs import designs_rows

        chosen = self.ranking.chosen(self.only_pareto, self.top)
        return [
            {name: int(v) if name.startswith("num_") and isinstance(v, float) else v for name, v in one.items()}
            for one in designs_rows(self.ranking, chosen)
        ]

    def panels(self) -> Sequence[Panel]:
        """Return the designs."""
        return [shown_rows(self.rows())]

    def summary(self) -> Sequence[Line]:
        """Return how many designs there are, and the first."""
        from ..designs.designs import goals_text

        ranking, first = self.ranking, int(self.ranking.order[0])
        words = (f"{name} {column[first]}" for name, column in ranking.words.items() if column[first] != "")
        goals = ((g.name, float(ranking.columns[g.name][first])) for g in ranking.goals)
        return [
            ("designs", f"{len(ranking.reason):,}, of which {int(ranking.legal.sum()):,} can be built and used"),
            ("objectives", goals_text(ranking.goals)),
            ("Pareto", f"{int(ranking.best.sum()):,}"),
            ("first", ", ".join(words)),
            ("", ", ".join(f"{n} {format_metric(n, v) if n in METRICS else f'{v:.4g}'}" for n, v in goals)),
        ]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class CostResult(Result):
    """What a system costs; its rows are the lines of one view of it."""

    forms: ClassVar[tuple[str, ...]] = (*Result.forms, *DRAWN)
    money: Money
    view: str = "summary"

    def json(self) -> str:
        """Return everything: figures, assumptions, and all bills as trees."""
        from ..cost.cost_views import cost_record

        return json_text(cost_record(self.money), indent=2)

    def text(self, columns: int | None = None, color: bool = False) -> str:
        """Return the view."""
        from ..cost.cost_views import cost_text

        return cost_text(self.money, self.view, columns)

    def explain(self, name: str) -> str:
        """Return why a line or a metric is what it is."""
        from ..explain.money_reasons import explain_cost

        return explain_cost(self.money, name)

    def pictures(self) -> Sequence[Picture]:
        """Return the lines of the view's bill, else of an hour of a GPU."""
        from ..pictures.answers import bill_picture

        bills = {bill.name: bill for bill in self.money.bills}
        return [bill_picture(bills.get(self.view, self.money.owned.gpu_hour))]

    def rows(self) -> Sequence[Row]:
        """Return the lines of the view by path, in USD or, of carbon, in kg."""
        from ..cost.cost_views import cost_lines

        name, unit = ("part", "kg_co2e") if self.view == "carbon" else ("line", "usd")
        return [{name: path, unit: value} for path, value in cost_lines(self.money, self.view)]

    def panels(self) -> Sequence[Panel]:
        """Return the figures, the lines of the view, and the assumptions."""
        tree = self.to_dict()
        metrics, assumed = tree["metrics"], tree["assumptions"]
        assert isinstance(metrics, Mapping)
        assert isinstance(assumed, Mapping)
        shown = [(METRICS[n].label, format_metric(n, v)) for n, v in metrics.items() if n in METRICS]
        lines = [[str(v) if isinstance(v, str) else f"{v:,.2f}" for v in row.values()] for row in self.rows()]
        return [
            Panel("Figures", ("", ""), shown),
            Panel(self.view, tuple(self.rows()[0]), lines),
            Panel("Assumptions", ("", ""), [(name, str(value)) for name, value in flat(assumed)]),
        ]

    def summary(self) -> Sequence[Line]:
        """Return the system, and what people ask for first."""
        tree = self.to_dict()["metrics"]
        assert isinstance(tree, Mapping)
        known = [(METRICS[n].label, format_metric(n, v)) for n, v in tree.items() if n in METRICS]
        terms = "rented" if self.money.terms.rented else f"owned, {self.money.terms.basis} prices"
        gpus = f"{int(cast(Mapping[str, float], self.to_dict()['inputs'])['num_gpus']):,}"
        return [(self.money.system.name, f"{gpus} x {self.money.system.chip.name}, {terms}"), *known[:5]]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class TraceResult(Result):
    """What a model is made of; with `pricing`, how each of its operators is priced on a machine."""

    contents: GraphContents
    pricing: Sequence[PricedOp] = ()
    machine: str = ""

    @property
    def graph(self) -> Graph:
        """The traced graph itself, which every verb takes in the place of a name."""
        return self.contents.graph

    def json(self) -> str:
        """Return the document."""
        from ..catalogue.contents_text import contents_json

        return contents_json(self.contents, self.pricing, self.machine)

    def text(self, columns: int | None = None, color: bool = False) -> str:
        """Return the contents, or how they are priced."""
        from ..catalogue.contents_text import contents_text, coverage_text

        if self.machine:
            return coverage_text(self.contents, self.pricing, self.machine, columns)
        return contents_text(self.contents, columns)

    def rows(self) -> Sequence[Row]:
        """Return a row for each kind of operator."""
        return [dict(flat(one)) for one in _records(self, "pricing" if self.machine else "ops")]

    def panels(self) -> Sequence[Panel]:
        """Return the operators, the regions, and the notes."""
        regions = shown_rows([dict(flat(one)) for one in _records(self, "regions")])
        notes = [(note,) for note in self.graph.notes]
        rows = shown_rows(self.rows())
        return [
            Panel("Operators", rows.head, rows.rows),
            Panel("Regions", regions.head, regions.rows),
            Panel("Notes", ("",), notes),
        ]

    def summary(self) -> Sequence[Line]:
        """Return the model, its size, and its work."""
        graph, found = self.graph, self.contents
        flops = sum(float(cast(float, row["matrix_flops"] or 0)) for row in self.rows())
        return [
            (graph.name, f"{graph.workload} in {graph.dtype}"),
            ("parameters", f"{found.num_parameters / 1e9:,.3f} B, {format_bytes(found.parameter_bytes)}"),
            ("sizes", ", ".join(f"{name} {value:g}" for name, value in found.sizes.items())),
            ("work", f"{format_si(flops, 'FLOP')} in matrix products"),
            ("graph", f"{len(graph.regions)} regions, {sum(len(r.nodes) for r in graph.regions)} nodes"),
        ]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ComparisonResult(Result):
    """What changed from one report to another; `gates` are limits that were set, and whether they hold.

    `matched` is of a measured trace: its kernels beside the nodes of the prediction.
    """

    found: Comparison
    gates: Sequence[Gate] = ()
    floor: float = 0.001
    matched: MatchedRun | None = None

    def json(self) -> str:
        """Return the document."""
        from ..compare.compare_text import comparison_json
        from ..compare.matched import matched_record

        return comparison_json(self.found, self.gates, None if self.matched is None else matched_record(self.matched))

    def text(self, columns: int | None = None, color: bool = False) -> str:
        """Return the tables of what changed, and of kernels matched to nodes."""
        from ..columns import in_columns
        from ..compare.compare_text import comparison_text
        from ..compare.matched import matched_notes

        lines = [comparison_text(self.found, self.gates, self.floor, columns)]
        if self.matched is not None:
            lines += ["", *matched_notes(self.matched)]
        for panel in self._matched_panels():
            lines += ["", panel.title, in_columns([panel.head, *panel.rows], columns)]
        return "\n".join(lines)

    def markdown(self) -> str:
        """Return the comparison for a review."""
        from ..compare.compare_text import comparison_markdown
        from .page import markdown

        text = comparison_markdown(self.found, self.gates, self.floor)
        panels = self._matched_panels()
        return f"{text}\n\n{markdown([('kernels', '')], panels, '')}" if panels else text

    def _matched_panels(self) -> Sequence[Panel]:
        from ..compare.matched import matched_panels

        return [] if self.matched is None else matched_panels(self.matched)

    def pictures(self) -> Sequence[Picture]:
        """Return the parts that changed."""
        from ..pictures.answers import changes_picture

        one = changes_picture(self.found)
        return [] if one is None else [one]

    def rows(self) -> Sequence[Row]:
        """Return a row for each metric."""
        metrics = self.to_dict()["metrics"]
        assert isinstance(metrics, Mapping)
        return [{"metric": name, **change} for name, change in metrics.items()]

    def panels(self) -> Sequence[Panel]:
        """Return the metrics, and the inputs that differ."""
        inputs = [(str(one["name"]), str(one["a"]), str(one["b"])) for one in _records(self, "inputs")]
        rows = shown_rows(self.rows())
        differ = [Panel("Inputs that differ", ("", "A", "B"), inputs)] if inputs or self.matched is None else []
        return [Panel("Metrics", rows.head, rows.rows), *differ, *self._matched_panels()]

    def summary(self) -> Sequence[Line]:
        """Return both reports, and what changed most."""
        lines = [line for line in self.text().splitlines()[2:5] if line.strip()]
        return [
            ("comparison", ""),
            ("A", self.found.a.path),
            ("B", self.found.b.path),
            *(("", line.strip()) for line in lines),
        ]


def _records(result: Result, name: str) -> Sequence[Mapping[str, object]]:
    found = result.to_dict().get(name, [])
    assert isinstance(found, list)
    return found
