"""Results that are documents already: lists of the catalogue, and answers that were saved."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from ...driver.metrics import METRICS, format_metric
from ...ir.errors import UsageError
from ...ir.records import dataclass
from ...ir.text.json_text import json_text
from .result import DRAWN, Result
from .steps import panels_of, row_of
from .table import Cell, Line, Panel, Row, flat, shown_rows

if TYPE_CHECKING:
    from ..charts.chart import Chart
    from ..pictures.picture import Picture
    from .page import Page

_REPORT = "slipstick/report/1"
# Metrics that the line of a saved answer has room for.
_FIRST = (
    "step_time_s",
    "mfu",
    "ttft_s",
    "tpot_s",
    "requests_per_s",
    "usd_per_mtok",
    "usd_per_mtok_output",
    "usd_per_gpu_hour",
)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class DocumentResult(Result):
    """What there is of a kind, or what one of it is.

    `document` is its JSON, `screen` its text for so many columns, `seen` its pictures.
    A list has a row for each of its records, a record one for each of its first list of records, else of its values.
    """

    title: str
    document: Callable[[], str]
    screen: Callable[[int | None], str]
    seen: Callable[[], Sequence[Picture]] = tuple

    def pictures(self) -> Sequence[Picture]:
        """Return what `seen` says."""
        return self.seen()

    def json(self) -> str:
        """Return the document."""
        return self.document()

    def text(self, columns: int | None = None, color: bool = False) -> str:
        """Return the screen."""
        return self.screen(columns)

    def rows(self) -> Sequence[Row]:
        """Return a row for each record, or for each value of the one that there is."""
        tree: object = json.loads(self.document())
        if isinstance(tree, Mapping):
            lists = (value for value in tree.values() if isinstance(value, list) and value)
            tree = next((value for value in lists if isinstance(value[0], Mapping)), tree)
        if isinstance(tree, list):
            return [dict(flat(one)) if isinstance(one, Mapping) else {"name": str(one)} for one in tree]
        assert isinstance(tree, Mapping)
        return [{"name": name, "value": value} for name, value in flat(tree)]

    def summary(self) -> Sequence[Line]:
        """Return the title, and how many rows there are."""
        return [(self.title, ""), ("rows", f"{len(self.rows()):,}")]

    def panels(self) -> Sequence[Panel]:
        """Return all rows."""
        return [shown_rows(self.rows())]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class SavedResult(Result):
    """Answers that were saved as JSON, by the names of their files: all of them as one page, or as one table."""

    forms: ClassVar[tuple[str, ...]] = ("html", "md", "csv", "parquet", "json", "table", *DRAWN)
    documents: Mapping[str, Mapping[str, object]]

    def json(self) -> str:
        """Return the documents by name."""
        return json_text(dict(self.documents), indent=2)

    def text(self, columns: int | None = None, color: bool = False) -> str:
        """Return a line for each answer."""
        return repr(self)

    def rows(self) -> Sequence[Row]:
        """Return a row for each answer: of an estimate inputs, metrics and parts, else all single values."""
        return [
            {"file": name, **(row_of if tree.get("schema") == _REPORT else _single)(tree)}
            for name, tree in self.documents.items()
        ]

    def charts(self) -> Sequence[Chart]:
        """Return the charts of each answer; where there are several, under the names of their files."""
        from ..charts.documents import charts_of

        several = len(self.documents) > 1
        return [
            replace(chart, title=f"{Path(name).stem}: {chart.title}" if several else chart.title)
            for name, tree in self.documents.items()
            for chart in charts_of(tree)
        ]

    def chart(self, name: str = "") -> Chart:
        """Return the chart of a title, else the first of the one answer; UsageError where there are several answers."""
        if len(self.documents) > 1 and not name:
            raise UsageError("a picture is of one result: name one file, or write a page of all with -o FILE.html")
        return super().chart(name)

    def page(self) -> Page:
        """Return the charts and panels of each answer; where there are several, under the names of their files."""
        from .page import Page

        several = len(self.documents) > 1
        document = dict(self.documents) if several else next(iter(self.documents.values()))
        summary = self.summary() if several else [_title(*next(iter(self.documents.items()))), *self.summary()[1:]]
        return Page(summary, self.panels(), self.command, document, self.charts(), several=several)

    def summary(self) -> Sequence[Line]:
        """Return a line for each answer."""
        lines = [(name, _told(tree)) for name, tree in self.documents.items()]
        return [("slipstick report", f"{len(lines)} answers" if len(lines) > 1 else ""), *lines]

    def panels(self) -> Sequence[Panel]:
        """Return the panels of each answer; where there are several, under the names of their files."""
        several = len(self.documents) > 1
        return [
            Panel(f"{Path(name).stem}: {panel.title}" if several else panel.title, panel.head, panel.rows, panel.shares)
            for name, tree in self.documents.items()
            for panel in (panels_of(tree) if tree.get("schema") == _REPORT else _plain_panels(tree))
        ]


def _title(name: str, tree: Mapping[str, object]) -> Line:
    """Return what a page of one answer is called: by its model, else by its file."""
    known = dict(flat(tree))
    title = known.get("inputs.model.name") or known.get("model") or Path(name).stem
    where = known.get("inputs.system.name") or known.get("inputs.system")
    told = " ".join(str(known[key]) for key in ("inputs.phase", "inputs.dtype") if key in known)
    return str(title), " on ".join(str(one) for one in (told, where) if one)


def _told(tree: Mapping[str, object]) -> str:
    """Return what people look for first: the model, the machine, the metrics."""
    known = dict(flat(tree))
    words = [
        str(known[name])
        for name in ("inputs.model.name", "model", "inputs.system.name", "inputs.system")
        if name in known
    ]
    metrics = [(name, known.get(f"metrics.{name}")) for name in _FIRST]
    told = (f"{METRICS[n].label} {format_metric(n, v)}" for n, v in metrics if isinstance(v, int | float))
    return ", ".join([" on ".join(words), *told] if words else [*told])


def _single(tree: Mapping[str, object]) -> dict[str, Cell]:
    """Return the values of a document by their path, without its lists."""
    return dict(flat({name: value for name, value in tree.items() if not isinstance(value, list)}))


def _plain_panels(tree: Mapping[str, object]) -> Iterator[Panel]:
    """Yield the single values of a document, then each of its lists of records."""
    lists = {name: value for name, value in tree.items() if isinstance(value, list) and value}
    yield Panel("Values", ("", ""), [(name, str(value)) for name, value in _single(tree).items()])
    for name, records in lists.items():
        if all(isinstance(one, Mapping) for one in records):
            shown = shown_rows([dict(flat(one)) for one in records])
            yield Panel(name, shown.head, shown.rows)
        else:
            yield Panel(name, ("",), [(str(one),) for one in records])
