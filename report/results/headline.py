"""What a page says first: the figures that people ask for, how far they are to be trusted, and what warns of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...driver.metrics import METRICS, format_metric
from ...ir.records import dataclass
from ...ir.units import format_bytes

# In this order; a page has room for eight.
_FIRST = (
    "step_time_s",
    "ttft_s",
    "tpot_s",
    "requests_per_s",
    "concurrency",
    "mfu",
    "tokens_per_s_per_gpu",
    "peak_mem_bytes",
    "train_time_s",
    "usd_run",
    "usd_per_mtok",
    "usd_per_gpu_hour",
    "usd_capex",
    "usd_tco",
    "power_w",
    "j_per_token",
)
_MOST = 8


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure in large type: its name, its value, and how near such figures came to measurements."""

    name: str
    value: str
    band: str = ""
    bad: bool = False


def figures(document: Mapping[str, object]) -> list[Figure]:
    """Return the figures of an answer: its own, those of the best row of a search, of the first design of a sweep."""
    metrics = document.get("metrics")
    for name in ("best", "designs", "choices"):
        rows = document.get(name)
        if metrics is None and isinstance(rows, list) and rows and isinstance(rows[0], Mapping):
            metrics = rows[0].get("metrics", rows[0])
    if not isinstance(metrics, Mapping):
        return []
    known = ((name, metrics.get(name)) for name in _FIRST if name in METRICS)
    found = [
        Figure(METRICS[name].label, format_metric(name, value), _band(document, name))
        for name, value in known
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    return [*_fit(document), *found][:_MOST]


def _fit(document: Mapping[str, object]) -> Iterator[Figure]:
    """Yield that a plan does not fit, where it does not."""
    memory = document.get("memory")
    if document.get("feasible") is False and isinstance(memory, Mapping):
        capacity = memory.get("capacity")
        room = format_bytes(float(capacity)) if isinstance(capacity, int | float) else "the device"
        yield Figure("memory", "does not fit", f"a GPU holds {room}", True)


def _band(document: Mapping[str, object], name: str) -> str:
    """Say between what half and nine tenths of measurements are expected; nothing where nobody knows."""
    told: object = document
    for key in ("intervals", "metrics", name):
        told = told.get(key) if isinstance(told, Mapping) else None
    ends = [told.get(end) for end in ("low", "high", "least", "most")] if isinstance(told, Mapping) else []
    shown = [format_metric(name, end) for end in ends if isinstance(end, int | float)]
    return f"50 %: {shown[0]} to {shown[1]}; 90 %: {shown[2]} to {shown[3]}" if len(shown) == len(ends) == 4 else ""
