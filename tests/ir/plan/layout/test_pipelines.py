"""What pipeline schedules ask of a plan, and where chunks stand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slipstick.ir.errors import PlanError
from slipstick.ir.graph import Graph, Run, Workload
from slipstick.ir.plan import Family, Plan, make_plan
from slipstick.ir.plan.layout.pipelines import BIDIRECTIONAL, SCHEDULES, SPLIT_BACKWARD, V_SHAPED, places
from slipstick.ir.plan.layout.stages import lay_stages


def plan(schedule: str, pp: int, micro_batches: int, vpp: int = 1) -> Plan:
    family = Family(pp=True, schedule=schedule)
    return make_plan(num_gpus=pp, pp=pp, vpp=vpp, seq_len=64, global_batch=micro_batches, family=family)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_runs_two_micro_batches_a_stage(schedule: str) -> None:
    assert plan(schedule, 4, 8).vpp == (2 if schedule in V_SHAPED else 1)


@pytest.mark.parametrize(
    ("schedule", "pp", "micro_batches", "vpp", "said"),
    [
        ("dualpipe", 4, 6, 1, "needs two micro-batches a stage, 2 x pp=4 = 8; gbs / (mbs x dp) = 6; nearest: 8"),
        ("dualpipe", 4, 9, 1, "half of the micro-batches each way; gbs / (mbs x dp) = 9 is odd; nearest: 8 or 10"),
        ("dualpipe", 3, 8, 1, "needs an even number of stages, not pp=3; nearest: 2, 4"),
        ("dualpipe", 4, 8, 2, "vpp=2 interleaves the schedules 1f1b and zb-h1, not dualpipe; legal vpp: 1"),
        ("zb-v", 4, 8, 3, "schedule zb-v puts two chunks on every stage, not vpp=3; legal vpp: 2"),
        ("dualpipe-v", 4, 7, 2, "needs a micro-batch a chunk, 2 x pp=4 = 8; gbs / (mbs x dp) = 7; nearest: 8"),
        ("dualpipe-v", 4, 8, 4, "schedule dualpipe-v puts two chunks on every stage, not vpp=4; legal vpp: 2"),
        ("zb-h2", 4, 8, 2, "vpp=2 interleaves the schedules 1f1b and zb-h1, not zb-h2; legal vpp: 1"),
        ("gpipe", 4, 8, 2, "vpp=2 interleaves the schedules 1f1b and zb-h1, not gpipe; legal vpp: 1"),
        *((name, 4, 11, 2, "does not divide by 2 rounds; nearest: 10 or 12 micro") for name in ("1f1b", "zb-h1")),
        *((name, 1, 8, 1, "pp=1 has none; legal pp: 2, 4") for name in SPLIT_BACKWARD),
    ],
)
def test_a_schedule_that_cannot_run_is_refused(schedule: str, pp: int, micro_batches: int, vpp: int, said: str) -> None:
    with pytest.raises(PlanError) as caught:
        plan(schedule, pp, micro_batches, vpp)
    assert said in str(caught.value)
    assert PlanError.exit_code == 2


def test_inference_has_no_backward_phase_to_split() -> None:
    family = Family(workload=Workload.PREFILL, pp=True, schedule="zb-h1")
    with pytest.raises(PlanError, match="schedule=zb-h1: of training only"):
        make_plan(num_gpus=4, pp=4, seq_len=64, family=family)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("pp", [2, 4, 6])
def test_every_stage_holds_as_many_chunks(schedule: str, pp: int) -> None:
    where = places(schedule, pp, 2 if schedule in V_SHAPED else 1)
    held = [sum(stage in stages for stages in where) for stage in range(pp)]
    assert set(held) == {2 if schedule in (*V_SHAPED, *BIDIRECTIONAL) else 1}


@pytest.fixture
def sixteen(traced: Callable[[str], Graph]) -> Graph:
    """The small Llama with sixteen layers: regions are prologue, block0, epilogue."""
    graph = traced("tiny-llama.train")
    runs = tuple(Run(r.regions, 16) if r.count > 1 else r for r in graph.schedule)
    return Graph(graph.name, graph.workload, graph.dtype, graph.regions, runs)


def test_a_v_has_both_ends_of_the_model_on_its_first_stage(sixteen: Graph) -> None:
    layout = lay_stages(sixteen, "1,2,3,2,2,3,2,1", 4, 2, schedule="zb-v")
    assert [c.counts for c in layout.classes] == [(1, 2, 1), (0, 4, 0), (0, 6, 0)]
    assert layout.stages == (0, 1, 2, 1)
    assert str(layout) == "1+1, 2+2, 3+3, 2+2"
    assert layout.copies == 1


def test_two_copies_have_both_ends_on_both_end_stages(sixteen: Graph) -> None:
    layout = lay_stages(sixteen, "even", 4, schedule="dualpipe")
    assert [(c.counts, c.first, c.number) for c in layout.classes] == [((1, 8, 1), 0, 2), ((0, 8, 0), 1, 2)]
    assert layout.stages == (0, 1, 1, 0)
    assert layout.copies == 2


def test_stages_of_a_row_know_their_class(sixteen: Graph) -> None:
    assert lay_stages(sixteen, "even", 4).stages == (0, 1, 1, 2)
    assert lay_stages(sixteen, "4,3,4,5", 4).stages == (0, 1, 2, 3)
