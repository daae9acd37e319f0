"""What a timeline is made of: places of messages, tasks of each kind, how much is shown, files, the golden trace."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.machine.system import System
from slipstick.ir.plan import Family
from slipstick.ir.schedules.kind import Kind
from slipstick.report.trace.chrome.emit import Trace, trace_of
from slipstick.report.trace.chrome.writer import print_trace, write_trace
from slipstick.report.trace.levels import DetailLevel, levels_of
from slipstick.report.trace.nodes import keyed, nodes_of
from slipstick.report.trace.shape import Booking, draw, places
from slipstick.report.trace.timeline import timeline_of

from ..traces import answer_of, document, faults, on

FILE = Path(__file__).parents[1] / "golden" / "tiny-llama.pp2.trace.json"
PP2 = Family(pp=True, sp=True, zero=1)


@given(
    st.lists(st.tuples(st.floats(-5, 15), st.floats(0.001, 2.0)), max_size=12),
    st.floats(0.0, 30.0),
)
def test_places_are_in_order_inside_and_apart(things: list[tuple[float, float]], room: float) -> None:
    wanted, sizes = [w for w, _ in things], [s for _, s in things]
    end = sum(sizes) + room
    starts = places(wanted, sizes, end)
    ends = [a + s for a, s in zip(starts, sizes, strict=True)]
    assert all(a >= 0 for a in starts)
    assert all(e <= end + 1e-9 for e in ends)
    assert all(e <= a + 1e-9 for e, a in zip(ends, starts[1:], strict=False))


def test_a_backward_task_is_dealt_out_over_both_halves() -> None:
    timeline = timeline_of(answer_of(Family(sp=True), tp=2))
    block = timeline.answer.table.lowered.graph.region("block0")
    halves = [keyed(block, kind, timeline.late) for kind in (Kind.DGRAD, Kind.WGRAD)]
    # Seven weights, each with a product for its gradient and one for what goes on.
    assert [sum(n.op == "matmul" for n in half) for half in halves] == [7, 7]
    whole = keyed(block, Kind.BACKWARD, timeline.late)
    assert sorted(n.key for half in halves for n in half) == sorted(n.key for n in whole)


def test_both_halves_of_a_backward_task_take_as_long_as_the_whole() -> None:
    timeline = timeline_of(answer_of(Family(sp=True, recompute="selective"), tp=2))
    block = timeline.answer.table.lowered.graph.region("block0")
    booking = Booking({}, {}, {"host": 0.25})
    kinds = (Kind.DGRAD, Kind.WGRAD, Kind.BACKWARD)
    rows = [nodes_of(block, timeline.nodes["block0"], kind, timeline.late) for kind in kinds]
    dgrad, wgrad, whole = (draw([("block0", r)], k, booking).time_s for r, k in zip(rows, kinds, strict=True))
    assert dgrad > 0.0
    assert wgrad > 0.0
    assert dgrad + wgrad == pytest.approx(whole, rel=1e-12)


def test_parts_that_are_no_nodes_take_their_share_of_every_task() -> None:
    timeline = timeline_of(answer_of(Family()))
    block = timeline.answer.table.lowered.graph.region("block0")
    nodes = nodes_of(block, timeline.nodes["block0"], Kind.FORWARD, timeline.late)
    alone = draw([("block0", nodes)], Kind.FORWARD, Booking({}, {}, {}))
    floored = draw([("block0", nodes)], Kind.FORWARD, Booking({}, {}, {"host": 0.5}))
    assert floored.time_s == pytest.approx(1.5 * alone.time_s, rel=1e-12)
    (waiting,) = [p for p in floored.pieces if p.node is None]
    assert (waiting.stream, waiting.name) == ("host", "host")


def _big(batches: int = 512) -> Trace:
    return trace_of(answer_of(Family(pp=True), layers=126, gpus=16, pp=16, batches=batches))


def test_auto_shows_nodes_of_the_first_micro_batches_and_tasks_of_the_rest() -> None:
    timeline = _big().timeline
    shown = timeline.stages.shown(alone=False)
    levels = levels_of(timeline, shown, "auto")
    assert levels.of[0] is DetailLevel.NODE
    assert set(levels.of) == {DetailLevel.NODE, DetailLevel.TASK}
    assert sorted(levels.of, reverse=True) == list(levels.of)
    assert "show their tasks, without layers and nodes" in levels.left_out[0]


@pytest.mark.parametrize(
    ("most", "last"), [(20_000, DetailLevel.TASK), (6_000, DetailLevel.BARE), (600, DetailLevel.BARE)]
)
def test_there_are_no_more_events_than_viewers_hold(most: int, last: DetailLevel) -> None:
    trace = trace_of(answer_of(Family(pp=True), layers=126, gpus=4, pp=4, batches=128))
    levels = levels_of(trace.timeline, trace.shown, "auto", most)
    out = io.StringIO()
    num = print_trace(Trace(trace.timeline, trace.shown, False, levels, trace.memory), out)
    # One micro-batch is always shown, with its layers at least.
    assert num <= max(1.1 * most, 2_000)
    assert levels.of[-1] is last
    assert (DetailLevel.NOTHING in levels.of) is (most == 600)
    done = json.loads(out.getvalue())
    assert list(faults(done)) == []
    assert done["otherData"]["left_out"] == list(levels.left_out)


def test_the_events_of_a_big_plan_are_counted_well() -> None:
    trace = _big(batches=64)
    num = print_trace(trace, io.StringIO())
    assert num <= 220_000
    assert trace.levels.of[0] is DetailLevel.NODE


@pytest.mark.parametrize("name", ["step.json", "step.json.gz"])
def test_a_file_holds_what_was_printed_and_is_the_same_twice(name: str, tmp_path: Path) -> None:
    trace = trace_of(answer_of(PP2, gpus=4, tp=2, pp=2, batches=2), "layer")
    out = io.StringIO()
    printed = print_trace(trace, out)
    told: list[tuple[int, int, int]] = []
    first, second = tmp_path / name, tmp_path / f"again-{name}"
    assert write_trace(trace, first, lambda *now: told.append(now)) == printed
    write_trace(trace, second)
    assert first.read_bytes() == second.read_bytes()
    data = first.read_bytes()
    assert (gzip.decompress(data) if name.endswith(".gz") else data).decode() == out.getvalue()
    assert told[-1] == (3, 3, printed)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([first.name, second.name])


def test_a_file_that_fails_is_not_there(tmp_path: Path) -> None:
    def fail(done: int, whole: int, num: int) -> None:
        raise OSError("disk full")

    trace = trace_of(answer_of(Family(), batches=1), "task")
    (tmp_path / "step.json").write_text("old", encoding="utf-8")
    with pytest.raises(OSError, match="disk full"):
        write_trace(trace, tmp_path / "step.json", fail)
    assert (tmp_path / "step.json").read_text(encoding="utf-8") == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_the_trace_is_the_golden_one(made_up: System, request: pytest.FixtureRequest) -> None:
    """`pytest tests/report --update-golden` writes the file anew; read the difference before it is kept."""
    answer = answer_of(PP2, layers=2, system=made_up, gpus=4, tp=2, pp=2, batches=2)
    out = io.StringIO()
    print_trace(trace_of(answer, "layer"), out)
    if request.config.getoption("--update-golden", default=False):
        FILE.write_text(out.getvalue(), encoding="utf-8")
    golden = json.loads(FILE.read_text(encoding="utf-8"))
    now = json.loads(out.getvalue())
    assert now["otherData"].keys() == golden["otherData"].keys()
    # A nanosecond may round either way on another machine.
    assert len(now["traceEvents"]) == len(golden["traceEvents"])
    for mine, theirs in zip(now["traceEvents"], golden["traceEvents"], strict=True):
        assert {k: v for k, v in mine.items() if k not in ("ts", "dur", "args")} == {
            k: v for k, v in theirs.items() if k not in ("ts", "dur", "args")
        }
        assert mine["args" if "args" in mine else "id"] == theirs["args" if "args" in theirs else "id"]
        for key in ("ts", "dur"):
            assert mine.get(key, 0) == pytest.approx(theirs.get(key, 0), abs=0.002)


def test_the_golden_trace_obeys_the_format() -> None:
    golden = json.loads(FILE.read_text(encoding="utf-8"))
    assert list(faults(golden)) == []
    tasks = [e["name"] for e in golden["traceEvents"] if e.get("cat") == "task"]
    # Stage 0 is one micro-batch ahead; stage 1 turns back at once.
    assert tasks == ["F0", "F1", "B0", "B1", "F0", "B0", "F1", "B1"]


def test_tasks_follow_one_another_as_in_a_pipeline_of_equal_stages() -> None:
    done = document(trace_of(answer_of(Family(pp=True), pp=2, gpus=2, batches=2), "task"))
    tasks = {(e["pid"], e["name"]): e for e in on(done, "tasks")}
    start = {key: e["ts"] for key, e in tasks.items()}
    end = {key: e["ts"] + e["dur"] for key, e in tasks.items()}
    # What a stage makes, the other takes; what a stage has run, it does not run beside the next.
    for first, then in (((1, "F0"), (2, "F0")), ((2, "F0"), (2, "B0")), ((2, "B0"), (1, "B0")), ((1, "F1"), (2, "F1"))):
        assert end[first] <= start[then] + 1e-3
