"""What a page says first: the figures that people ask for, how far they are to be trusted, and what warns of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...driver.metrics import METRICS, format_metric
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
        Figure(METRICS[name].label, format_metric(name, value), _band(document, name, float(value)))
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


def _band(document: Mapping[str, object], name: str, value: float) -> str:
    """Say between what a figure lies where errors are as those that were measured; nothing where none were."""
    trust = document.get("trust")
    metrics = trust.get("metrics") if isinstance(trust, Mapping) else None
    told = metrics.get(name) if isinstance(metrics, Mapping) else None
    p90, median = (told.get("p90_ape"), told.get("median_ape")) if isinstance(told, Mapping) else (None, None)
    if not isinstance(p90, int | float) or not isinstance(median, int | float):
        return ""
    low, high = (format_metric(name, value * (1 + sign * p90)) for sign in (-1, 1))
    return f"{low} to {high}: 9 of 10 measured runs lie within {p90:.0%}, half within {median:.1%}"
