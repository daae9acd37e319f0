"""Reports of Nsight Systems: kernels with the ranges that launched them, steps, and what is no report."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from slipstick.ir.errors import NotUnderstoodError
from slipstick.measured.run import is_trace, read_measured
from slipstick.measured.traces.ran import Stretch
from slipstick.measured.traces.trace import read_trace

PROCESS = 7 << 24
SCHEMA = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, streamId INT, correlationId INT,
    globalPid INT, demangledName INT, shortName INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT, deviceId INT, streamId INT, correlationId INT,
    copyKind INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, correlationId INT, nameId INT);
CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, textId INT, globalTid INT);
"""


def report(path: Path, kernels: Sequence[tuple[object, ...]], ranges: Sequence[tuple[object, ...]]) -> Path:
    """Write a report; kernels are (start, end, device, correlation, process, name), in ns, launched 5 ns before."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(SCHEMA)
        names = sorted({str(kernel[5]) for kernel in kernels})
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(names))
        for start, end, device, link, process, name in kernels:
            row = (start, end, device, 7, link, process, names.index(str(name)), 0)
            db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,?,?,?,?,?)", row)
            launch = (int(str(start)) - 5, int(str(start)) - 4, int(str(process)) + 1, link, 0)
            db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?)", launch)
        rows = [(start, end, 59, text, None, PROCESS + 1) for start, end, text in ranges]
        db.executemany("INSERT INTO NVTX_EVENTS VALUES (?,?,?,?,?,?)", rows)
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (900, 950, 0, 9, 99, 1)")
        db.commit()
    return path


def steps(path: Path) -> Path:
    """Two steps of 1 us: a product of 300 ns, one of its gradient of 200 ns, another device's and process's kernels."""
    kernels, ranges = list[tuple[object, ...]](), list[tuple[object, ...]]()
    for step in range(2):
        at = 1000 * step
        kernels += [(at + 100, at + 400, 0, 1 + 10 * step, PROCESS, "sm90_gemm"),
                    (at + 500, at + 700, 0, 2 + 10 * step, PROCESS, "sm90_gemm"),
                    (at + 100, at + 900, 1, 3 + 10 * step, PROCESS, "other device")]  # fmt: skip
        ranges += [(at, at + 1000, f"iteration {step}"),
                   (at + 90, at + 98, "aten::mm, op_id = 3, sizes = [[2, 3], [3, 4]]"),
                   (at + 480, at + 499, "autograd::engine::evaluate_function: MmBackward0"),
                   (at + 490, at + 498, "aten::mm, op_id = 4, sizes = [[2, 4], [4, 3]]")]  # fmt: skip
    kernels.append((150, 160, 0, 1, 9 << 24, "other process"))
    return report(path, kernels, ranges)


def test_kernels_have_their_ranges_steps_and_phases(tmp_path: Path) -> None:
    path = steps(tmp_path / "r.sqlite")
    assert is_trace(path)
    trace = read_trace(path)
    products = [k for k, name in enumerate(trace.ran.name.tolist()) if trace.name(name) == "sm90_gemm"]
    assert [trace.name(int(trace.ran.op[k])) for k in products] == ["aten::mm"] * 4
    assert [trace.inputs[int(trace.ran.inputs[k])] for k in products] == [" [[2, 3], [3, 4]]", " [[2, 4], [4, 3]]"] * 2
    assert [Stretch(int(trace.ran.stretch[k])) for k in products] == [Stretch.FORWARD, Stretch.BACKWARD] * 2
    assert trace.step_of[products].tolist() == [0, 0, 1, 1]
    assert {trace.name(name) for name in trace.ran.name.tolist()} == {"sm90_gemm", "Memcpy 1"}
    measured = read_measured(path)
    # From the first kernel of one step to that of the next, and the second as long as its mark.
    assert measured.metrics["step_time_s"] == pytest.approx(1e-6)
    assert measured.classes["gemm"] == pytest.approx(500e-9)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("CREATE TABLE a (b INT);", "holds no kernels"),
        ("CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT 1 AS start;", "holds no kernels"),
        ("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT);", "no report of Nsight Systems"),
    ],
)
def test_what_is_no_report_is_refused(script: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(script)
    with pytest.raises(NotUnderstoodError, match=said):
        read_trace(path)


def test_a_broken_database_is_refused(tmp_path: Path) -> None:
    path = steps(tmp_path / "r.sqlite")
    data = path.read_bytes()
    path.write_bytes(data[:5000] + b"\xff" * (len(data) - 5000))
    with pytest.raises(NotUnderstoodError):
        read_trace(path)


def test_a_schema_whose_bytes_are_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL)")
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE", b"CREATE \xaeABLE"))
    with pytest.raises(NotUnderstoodError, match="no report of Nsight Systems"):
        read_trace(path)


@pytest.mark.parametrize("kind", ["VIRTUAL", "STORED"])
def test_a_column_that_is_computed_is_refused_before_it_is_read(tmp_path: Path, kind: str) -> None:
    """Eight rows of 900 MB in a file of some kB."""
    path, value = tmp_path / "r.sqlite", "hex(zeroblob(450000000))" if kind == "VIRTUAL" else "hex(zeroblob(4))"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(SCHEMA.replace("value TEXT NOT NULL", f"value TEXT GENERATED ALWAYS AS ({value}) {kind}"))
        db.executemany("INSERT INTO StringIds(id) VALUES (?)", [(row,) for row in range(8)])
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2, 0, 7, 1, 1, 0, 0)")
        db.commit()
    with pytest.raises(NotUnderstoodError, match="StringIds computes its column 'value'"):
        read_trace(path)


def test_a_default_that_stands_for_every_row_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are shorter than their table have the default, which the file holds once."""
    path = steps(tmp_path / "r.sqlite")
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TABLE StringIds")
        db.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY)")
        db.executemany("INSERT INTO StringIds VALUES (?)", [(row,) for row in range(300)])
        db.execute(f"ALTER TABLE StringIds ADD COLUMN value TEXT DEFAULT '{'x' * 1_000_000}'")
        db.commit()
    with pytest.raises(NotUnderstoodError, match="more than 256,000,000 bytes of texts"):
        read_trace(path)


@pytest.mark.parametrize("start", [0, 10**6, 1_700_000_000 * 10**9])
def test_a_shift_of_the_clock_changes_no_bit(tmp_path: Path, start: int) -> None:
    kernels = [(start + at, start + at + 7, 0, link, PROCESS, "sm90_gemm") for link, at in enumerate((5, 18, 40))]
    path = report(tmp_path / "r.sqlite", kernels, [])
    with closing(sqlite3.connect(path)) as db:
        db.execute("DELETE FROM CUPTI_ACTIVITY_KIND_MEMCPY")
        db.commit()
    ran = read_trace(path).ran
    assert (ran.start_us.tolist(), ran.time_us.tolist()) == ([0.0, 13 * 1e-3, 35 * 1e-3], [7 * 1e-3] * 3)
