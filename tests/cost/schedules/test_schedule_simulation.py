"""Schedules run task by task: order, dependencies, work, memory, and bubbles worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.cost.schedules.simulate import simulate
from slipstick.cost.schedules.tasks import SimulatedStep, StageTimes, schedule_of
from slipstick.ir.errors import PlanError, UnknownNameError
from slipstick.ir.schedules.kind import Kind
from slipstick.ir.schedules.registry import SCHEDULES, can_run


def chunks(name: str, v: int = 1) -> int:
    """Chunks a stage; of two copies of the model, those of both."""
    kind = SCHEDULES[name]
    return v if kind.interleaves else kind.chunks * kind.copies


def equal(
    p: int, name: str = "1f1b", v: int = 1, times: tuple[float, float, float] = (1, 1, 1), send_s: float = 0
) -> StageTimes:
    """Stages alike: forward, dgrad and wgrad seconds of one micro-batch in all chunks it passes."""
    ones = np.ones((p, chunks(name, v))) * SCHEDULES[name].copies / chunks(name, v)
    return StageTimes.of(*(ones * t for t in times), send_s=send_s)


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("p", "m"), [(1, 4), (2, 2), (4, 8), (8, 3), (16, 64)])
def test_filling_and_draining_takes_p_minus_one_micro_batches(name: str, p: int, m: int) -> None:
    """Narayanan et al.: (m + p - 1)(tF + tB)."""
    assert simulate(name, equal(p), m).step_s == pytest.approx((m + p - 1) * 3.0, rel=1e-12)


@pytest.mark.parametrize(("p", "v", "m"), [(2, 2, 4), (4, 3, 4), (8, 3, 64)])
def test_interleaving_divides_the_bubble_by_the_chunks(p: int, v: int, m: int) -> None:
    """Narayanan et al.: (p - 1)(tF + tB) / v on top of m (tF + tB)."""
    assert simulate("1f1b", equal(p, v=v), m).step_s == pytest.approx((m + (p - 1) / v) * 3.0, rel=1e-9)


@pytest.mark.parametrize("times", [(1.0, 1.0, 1.0), (1.0, 1.0, 0.5), (1.0, 1.25, 0.75), (1.0, 2.0, 1.0)])
@pytest.mark.parametrize(("p", "m"), [(4, 8), (8, 24)])
def test_zero_bubble_schedules_leave_what_their_paper_says(p: int, m: int, times: tuple[float, float, float]) -> None:
    """Qi et al., table 1: (p - 1)(tF + tB - tW) for ZB-H1, (p - 1)(tF + tB - 2 tW) for ZB-H2, where tW <= tF."""
    f, b, w = times
    work_s = m * (f + b + w)
    assert simulate("zb-h1", equal(p, times=times), m).step_s - work_s == pytest.approx((p - 1) * (f + b - w))
    assert simulate("zb-h2", equal(p, times=times), m).step_s - work_s == pytest.approx((p - 1) * (f + b - 2 * w))


@pytest.mark.parametrize("times", [(1.0, 1.0, 1.0), (1.0, 1.0, 0.5), (1.0, 1.25, 0.75)])
@pytest.mark.parametrize(("p", "v", "m"), [(4, 2, 8), (4, 3, 12), (8, 2, 24)])
def test_interleaving_divides_what_zb_h1_leaves(p: int, v: int, m: int, times: tuple[float, float, float]) -> None:
    """(p - 1)(tF + tB - tW) / v, with the activations of p micro-batches: v p chunks of 1/v."""
    f, b, w = times
    done = simulate("zb-h1", equal(p, "zb-h1", v, times), m)
    assert done.step_s - m * (f + b + w) == pytest.approx((p - 1) * (f + b - w) / v)
    assert list(done.peak_in_flight) == pytest.approx([p] * p)


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (6, 20)])
def test_half_of_dualpipe_waits_as_dualpipe_of_twice_the_stages(p: int, m: int) -> None:
    """DeepSeek-V3, table 2: (P/2 - 1)(F&B + B - 3 W) of P = 2 p stages, whose chunks are half of those here."""
    f, b, w = 1.0, 1.0, 0.5
    done = simulate("dualpipe-v", equal(p, "dualpipe-v", times=(f, b, w)), m)
    assert done.step_s - m * (f + b + w) == pytest.approx((p - 1) * ((f + b + w) + (b + w) - 3 * w) / 2)
    assert list(done.peak_in_flight) == pytest.approx([p + 0.5] * p)


@pytest.mark.parametrize(("p", "m"), [(2, 3), (4, 7), (8, 32)])
def test_a_v_of_equal_parts_has_no_bubble(p: int, m: int) -> None:
    """Qi et al., arXiv 2405.15362: none where the three parts last alike, with the activations of 1F1B."""
    done = simulate("zb-v", equal(p, "zb-v"), m)
    assert done.step_s == pytest.approx(3.0 * m)
    assert done.peak_in_flight.max() == p


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (8, 16), (8, 40)])
@pytest.mark.parametrize(("dgrad_s", "wgrad_s"), [(1.0, 1.0), (1.0, 0.5)])
def test_dualpipe_leaves_what_its_paper_says(p: int, m: int, dgrad_s: float, wgrad_s: float) -> None:
    """DeepSeek-V3, table 2: (p/2 - 1)(tF&B + tB - 3 tW), a pair lasting as long as its two tasks; p + 1 are held."""
    done = simulate("dualpipe", equal(p, "dualpipe", times=(1.0, dgrad_s, wgrad_s)), m)
    backward_s = dgrad_s + wgrad_s
    bubble_s = (p / 2 - 1) * (1.0 + backward_s + backward_s - 3.0 * wgrad_s)
    assert done.step_s - m * (1.0 + backward_s) == pytest.approx(bubble_s)
    assert list(done.peak_in_flight) == [p + 1] * p


def test_messages_are_waited_for_on_the_way() -> None:
    """Down and up four stages: three messages each way for one micro-batch; none between chunks of one stage."""
    assert simulate("1f1b", equal(4, send_s=0.5), 1).step_s == pytest.approx(4 * 3.0 + 6 * 0.5)
    # Four chunks of half a second forward and back; weights of one on the last stage, and of one at the end.
    assert simulate("zb-v", equal(2, "zb-v", send_s=0.5), 1).makespan_s == pytest.approx(8 * 0.5 + 4 * 0.5 + 2 * 0.5)


def runs_more(name: str, p: int, v: int, m: int) -> int | None:
    """The next number of micro-batches that a schedule can run on so many stages."""
    return next((n for n in range(m + 1, m + 4 * p + 2) if can_run(name, n, p, v // SCHEDULES[name].copies)), None)


@st.composite
def runs(draw: st.DrawFn) -> tuple[str, StageTimes, int]:
    """Any schedule with stages that differ in everything, and a number of micro-batches near one that is drawn."""
    name = draw(st.sampled_from(list(SCHEDULES)))
    v = chunks(name, draw(st.integers(1, 3)))
    p = draw(st.sampled_from([p for p in (2, 3, 4, 5, 6, 8) if runs_more(name, p, v, 0)]))
    m = runs_more(name, p, v, draw(st.integers(0, 11)))
    assert m
    part = st.lists(st.floats(0.5, 1.5), min_size=p * v, max_size=p * v)
    forward, dgrad, wgrad = (np.array(draw(part)).reshape(p, v) for _ in range(3))
    return name, StageTimes.of(forward, dgrad, wgrad, send_s=draw(st.sampled_from([0.0, 0.25]))), m


def when(done: SimulatedStep, *kinds: Kind) -> dict[tuple[int, int, int], tuple[float, float]]:
    """Start and end of tasks of some kinds, by stage, chunk and micro-batch."""
    rows = np.flatnonzero(np.isin(done.kind, kinds))
    keys = zip(done.stage[rows], done.chunk[rows], done.micro_batch[rows], strict=True)
    return {(int(s), int(c), int(m)): (done.start_s[r], done.end_s[r]) for (s, c, m), r in zip(keys, rows, strict=True)}


@given(run=runs())
def test_every_task_runs_once_and_a_stage_does_one_at_a_time(run: tuple[str, StageTimes, int]) -> None:
    name, times, m = run
    done = simulate(name, times, m)
    assert len(when(done, Kind.FORWARD)) == m * times.forward_s.size / SCHEDULES[name].copies
    assert len(when(done, Kind.BACKWARD, Kind.DGRAD)) == len(when(done, Kind.FORWARD))
    assert set(when(done, Kind.WGRAD)) == set(when(done, Kind.DGRAD))
    for stage in range(done.num_stages):
        here = np.flatnonzero(done.stage == stage)
        assert np.all(done.start_s[here][1:] >= done.end_s[here][:-1] - 1e-9)


@given(run=runs())
def test_work_is_conserved_and_the_rest_is_idle(run: tuple[str, StageTimes, int]) -> None:
    name, times, m = run
    done = simulate(name, times, m)
    busy_s = (times.forward_s + times.dgrad_s + times.wgrad_s).sum(axis=1) * m / SCHEDULES[name].copies
    assert done.busy_s == pytest.approx(busy_s)
    assert done.idle_s == pytest.approx(done.step_s - busy_s)
    assert done.idle_s.min() >= -1e-9
    assert done.step_s <= done.makespan_s + 1e-9


@given(run=runs())
def test_nothing_starts_before_what_it_needs(run: tuple[str, StageTimes, int]) -> None:
    name, times, m = run
    done = simulate(name, times, m)
    forward, backward = when(done, Kind.FORWARD), when(done, Kind.BACKWARD, Kind.DGRAD)
    for (stage, chunk, micro), (_, end_s) in forward.items():
        there, its_chunk = done.schedule.behind[:, stage, chunk].tolist()
        behind = there, its_chunk
        if behind[0] < 0:
            assert backward[stage, chunk, micro][0] >= end_s - 1e-9
            continue
        send_s = times.send_forward_s[0, 0] if behind[0] != stage else 0.0
        assert forward[(*behind, micro)][0] >= end_s + send_s - 1e-9
        assert backward[stage, chunk, micro][0] >= backward[(*behind, micro)][1] + send_s - 1e-9
    for key, (start_s, _) in when(done, Kind.WGRAD).items():
        assert start_s >= backward[key][1] - 1e-9


@given(run=runs())
def test_more_micro_batches_never_take_less(run: tuple[str, StageTimes, int]) -> None:
    """Interleaved, by whole rounds of one a stage: rounds of another size are another order."""
    name, times, m = run
    rounds = SCHEDULES[name].interleaves and times.num_chunks > 1
    m = m * times.num_stages if rounds else m
    more = m + times.num_stages if rounds else runs_more(name, times.num_stages, times.num_chunks, m)
    assert more
    assert simulate(name, times, more).step_s >= simulate(name, times, m).step_s - 1e-9


def test_what_a_schedule_cannot_run_is_refused() -> None:
    with pytest.raises(PlanError, match="two micro-batches a stage, 2 x pp=4 = 8"):
        simulate("dualpipe", equal(4, "dualpipe"), 6)
    with pytest.raises(PlanError, match="2 chunks on every stage, not vpp=1; legal vpp: 2"):
        simulate("zb-v", equal(4), 8)
    with pytest.raises(UnknownNameError, match="did you mean 'zb-h1'"):
        schedule_of("zbh1", 4, 8)
