"""What a row of a table of serving measured, and in which quantities: they decide by which form it is predicted."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType

from ...ir.records import dataclass
from ..rows.rows import NotJudged, Row


class RequestForm(StrEnum):
    """How requests came."""

    STATIC = "static batch"
    FIRST_TOKEN = "first token"
    CLOSED_LOOP = "closed loop"
    SATURATED = "saturated"
    POOLS = "disaggregated"


class CaseQuantity(StrEnum):
    """What was measured of them."""

    TTFT = "ttft"
    TPOT = "tpot"
    E2EL = "e2el"
    THROUGHPUT = "throughput"


@dataclass(frozen=True, slots=True)
class MeasuredQuantity:
    """One quantity of a row: seconds, or output tokens a second of one replica."""

    quantity: CaseQuantity
    value: float


_MS = 1e-3
# By the words with which a table's `measurement` begins; the first that fit.
_WORDS: Mapping[str, RequestForm] = MappingProxyType(
    {
        "static batch": RequestForm.STATIC,
        "batch-1 first token": RequestForm.FIRST_TOKEN,
        "online serving, fixed concurrency (disagg)": RequestForm.POOLS,
        "online": RequestForm.CLOSED_LOOP,
        "maximum throughput": RequestForm.SATURATED,
    }
)


def form_of(row: Row) -> RequestForm:
    """Return how the requests of a row came; NotJudged where its words are of another kind.

    >>> form_of(Row({"measurement": "maximum throughput, in-flight batching, infinite request rate"}))
    <RequestForm.SATURATED: 'saturated'>
    """
    given = row.text("measurement")
    found = next((form for words, form in _WORDS.items() if given.startswith(words)), None)
    if found is None:
        raise NotJudged(f"'{given}' is no measurement that is predicted")
    return found


def measured_of(row: Row, form: RequestForm, computed: Collection[str] = ()) -> tuple[MeasuredQuantity, ...]:
    """Return the quantities of a row; NotJudged where it has none.

    Quantities that are `computed` from others of their row in its publication are not judged a second time. Time per
    token follows from the whole latency where it is not given: (total - TTFT) / (output tokens - 1).
    """
    found = tuple(one for one in _quantities(row, form) if one.quantity.value not in computed)
    if not found:
        raise NotJudged("it has neither latencies nor a throughput")
    return found


def _quantities(row: Row, form: RequestForm) -> Iterator[MeasuredQuantity]:
    ttft, tpot, total = (row.measured(f"{name}_ms") for name in ("ttft", "tpot", "total_latency"))
    if ttft is not None:
        yield MeasuredQuantity(CaseQuantity.TTFT, ttft * _MS)
    if tpot is None and form is RequestForm.STATIC and ttft is not None and total is not None:
        tpot = (total - ttft) / (row.number("output_tokens") - 1)
    if tpot is not None:
        yield MeasuredQuantity(CaseQuantity.TPOT, tpot * _MS)
    if total is not None:
        yield MeasuredQuantity(CaseQuantity.E2EL, total * _MS)
    rate = row.measured("output_tokens_per_s_total")
    if rate is not None:
        yield MeasuredQuantity(CaseQuantity.THROUGHPUT, rate)
