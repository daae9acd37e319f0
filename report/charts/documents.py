"""The charts of an answer, by the kind of its document: those of a page, of a file, of a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from .chart import Chart
from .designs import designs_charts
from .money import bill_charts, money_charts
from .searches import search_charts
from .servers import server_charts, size_charts
from .steps import step_charts
from .timeline import timeline_charts

Document = Mapping[str, object]


def charts_of(document: Document) -> list[Chart]:
    """Return the charts that a document has the numbers for; none for one of another kind."""
    schema = str(document.get("schema", ""))
    made = _KINDS.get(schema.rpartition("/")[0])
    return [chart for chart in made(document) if chart.data] if made is not None else []


def _report(document: Document) -> Iterator[Chart]:
    if "phases" in document:
        yield from server_charts(document)
    else:
        yield from step_charts(document)
        yield from timeline_charts(document)
    yield from money_charts(document)


_KINDS: Mapping[str, Callable[[Document], Iterator[Chart]]] = MappingProxyType(
    {
        "slipstick/report": _report,
        "slipstick/search": search_charts,
        "slipstick/size": size_charts,
        "slipstick/cost": bill_charts,
        "slipstick/designs": designs_charts,
    }
)
