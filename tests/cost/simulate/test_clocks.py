"""When requests are sent, by whatever clock: only what lies between them counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.cost.serving.traffic.trace_files import read_trace
from slipstick.ir.errors import UsageError

DAY = datetime(1999, 12, 31, tzinfo=UTC)


def _table(column: str, scale: int, prompt: str = "prompt", output: str = "output") -> Callable[[Decimal], list[str]]:
    """Return what writes a moment as a CSV with its header, in so many parts of a second."""
    return lambda at: [f"{column},{prompt},{output}", f"{at * scale:f},100,10"]


def _date(zone: str) -> Callable[[Decimal], list[str]]:
    def row(at: Decimal) -> list[str]:
        whole, part = int(at), f"{at % 1:.9f}"[1:]
        moment = (DAY + timedelta(seconds=whole)).strftime("%Y-%m-%d %H:%M:%S")
        return ["TIMESTAMP,ContextTokens,GeneratedTokens", f"{moment}{part}{zone},100,10"]

    return row


def _line(column: str, scale: int) -> Callable[[Decimal], list[str]]:
    return lambda at: [f'{{"{column}": {at * scale:f}, "input_length": 100, "output_length": 10}}']


FORMS = {
    "seconds.csv": _table("arrival_s", 1),
    "milliseconds.csv": _table("timestamp_ms", 10**3),
    "microseconds.csv": _table("arrival_us", 10**6),
    "nanoseconds.csv": _table("Timestamp_NS", 10**9),
    "vidur.csv": _table("arrived_at", 1, "num_prefill_tokens", "num_decode_tokens"),
    "burstgpt.csv": _table("Timestamp", 1, "Request tokens", "Response tokens"),
    "azure.csv": _date(""),
    "azure24.csv": _date("+02:00"),
    "mooncake.jsonl": _line("timestamp", 10**3),
    "ours.jsonl": _line("arrival_s", 1),
}
nanoseconds = st.integers(0, 3600 * 10**9).map(lambda n: Decimal(n).scaleb(-9))
starts = st.integers(0, 10**18).map(Decimal) | nanoseconds | st.sampled_from([Decimal(f"1.7e{n}") for n in (9, 12, 15)])


@given(gaps=st.lists(nanoseconds, max_size=6), start=starts)
@pytest.mark.parametrize("form", FORMS)
def test_a_shift_of_the_clock_changes_no_bit(form: str, gaps: Sequence[Decimal], start: Decimal) -> None:
    write, moments = FORMS[form], [sum(gaps[:n], Decimal(0)) for n in range(len(gaps) + 1)]
    if "azure" in form:
        start %= 100 * 366 * 86400  # years of dates have four digits
    for begin in (Decimal(0), start):
        with TemporaryDirectory() as folder:
            path = Path(folder, form)
            texts = [write(begin + moment) for moment in moments]
            path.write_text("\n".join([*texts[0][:-1], *(text[-1] for text in texts)]), encoding="utf-8")
            np.testing.assert_array_equal(read_trace(path).arrival_s, [float(moment) for moment in moments])


@pytest.mark.parametrize(
    ("header", "first", "last", "advice"),
    [
        ("timestamp", "1700000000000000000", "1700000060000000000", "name the column arrival_ns if"),
        ("arrival_s", "1700000000000000", "1700003600000000", "name the column arrival_us if"),
        ("arrival", "0", "400000000", "name the column arrival_ms or arrival_us or arrival_ns if"),
        ("arrival_ns", "0", "1e18", "is one of them of another clock"),
        (
            "timestamp",
            "2001-01-01 00:00:00",
            "2023-01-01 00:00:00",
            "read in dates, and .* over 22.0 years; .* of another clock",
        ),
    ],
)
def test_a_span_that_no_run_has_says_which_unit_is_meant(
    tmp_path: Path, header: str, first: str, last: str, advice: str
) -> None:
    path = tmp_path / "long.csv"
    path.write_text(f"{header},prompt,output\n{first},5,5\n{last},5,5\n", encoding="utf-8")
    with pytest.raises(UsageError, match=advice):
        read_trace(path)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("0", "1e-999999999", "line 3: arrival_s is '1e-999999999', not a number"),
        ("0", "snan", "line 3: arrival_s is 'snan', not a number"),
        ("0", "1e399", "line 3: the request is sent at 'inf' s"),
        ("1e17", "99999999999999999.9", "line 3: the request is sent at -0.1 s, before time 0"),
        ("2024-01-01 00:00:00", "2024-01-01 00:00:01Z", "line 3: arrival_s is '2024-01-01 00:00:01Z', not a date"),
    ],
)
def test_stamps_that_are_none_are_refused_with_their_line(
    tmp_path: Path, first: str, second: str, message: str
) -> None:
    path = tmp_path / "wrong.csv"
    path.write_text(f"arrival_s,prompt,output\n{first},5,5\n{second},5,5\n", encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        read_trace(path)


@pytest.mark.parametrize(
    "header",
    [
        "arrival_s,prompt,output,prompt",
        "arrival_s,prompt,output, Prompt",
        "arrival_s,prompt,output,input_tokens",
        "arrival_s,prompt,output,arrival_ms",
    ],
)
def test_a_column_given_twice_is_refused(tmp_path: Path, header: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(f"{header}\n0,1000,200,5\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"line 1: 2 columns for (prompt|arrival): .*; keep one"):
        read_trace(path)
