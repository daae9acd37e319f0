from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from slipstick.driver.estimate import Lowered, lower
from slipstick.explore.plans.degrees import NUMBERS, Degrees, candidates, plan_table
from slipstick.explore.plans.space import Choices, PlanSpace
from slipstick.explore.plans.tables import plan_of
from slipstick.ir.errors import NotBuiltError, PlanError
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.layers import num_layers
from slipstick.ir.plan import Family, Plan, make_plan
from slipstick.ir.plan.case import Above
from slipstick.ir.plan.divisibility import check_divisibility
from slipstick.ir.schedules.registry import SCHEDULES, check_schedule
from slipstick.ir.sizes.points import Points
from slipstick.ir.text.files import load_graph

GPUS, BATCH, SEQ = 8, 16, 64
DENSE, MOE = "tests/golden/tiny-llama.train.graph", "tests/golden/tiny-mixtral.train.graph"
# Schedules of every kind of rule, and little else: each combination is tried by hand below.
CHOICES = Choices(zero=(1,), recompute=("none",), schedule=("1f1b", "zb-v", "dualpipe"), cp=("allgather",))


@pytest.fixture(scope="module", params=[DENSE, MOE])
def graph(request: pytest.FixtureRequest) -> Graph:
    return load_graph(Path(request.param))


def found(graph: Graph, space: PlanSpace) -> list[Plan]:
    """Every plan of a space that is legal for a graph, as the search finds it."""
    plans: list[Plan] = []
    for family, above in space.families(Family(workload=graph.workload), bool(graph_experts(graph))):
        numbers = candidates(space.degrees, family, above, num_layers(graph), space.load(family))
        if not numbers.shape[1]:
            continue
        lowered = lower(graph, family)
        table = plan_table(family, numbers, space.seq_len, space.kv_len, space.load(family))
        legal = lowered.constraints.hold(table, Points(table))
        plans += [plan_of(space, family, numbers[:, k].tolist()) for k in legal.nonzero()[0]]
    return plans


def graph_experts(graph: Graph) -> bool:
    return "mixtral" in graph.name


def by_hand(graph: Graph, space: PlanSpace) -> list[Plan]:
    """Every combination that `make_plan` and the graph take, one by one."""
    lowered: dict[Family, Lowered] = {}
    plans: list[Plan] = []
    degrees = [1, 2, 4, 8]
    for tp, pp, cp, ep, sp, cp_method, schedule, etp in product(
        degrees, degrees, degrees, degrees, (True, False), CHOICES.cp, CHOICES.schedule, (True, False)
    ):
        if (
            tp * pp * cp > GPUS
            or (ep > 1 and not graph_experts(graph))
            or _idle(tp, pp, cp, sp, cp_method, schedule, etp)
        ):
            continue
        family = Family(
            sp=sp, zero=1, cp=cp_method if cp > 1 else "none", pp=pp > 1, schedule=schedule, ep=ep > 1, etp=etp
        )
        for mbs, vpp in product((1, 2, 4, 8, 16), (1, 2, 3)):
            try:
                plan = make_plan(
                    num_gpus=GPUS, seq_len=SEQ, family=family, tp=tp, pp=pp, cp=cp, ep=ep, vpp=vpp,
                    etp=tp if etp else 1, micro_batch=mbs, global_batch=BATCH,
                )  # fmt: skip
                if family not in lowered:
                    lowered[family] = lower(graph, family)
                check_divisibility(lowered[family].graph, plan)
            except (PlanError, NotBuiltError):
                continue
            plans.append(plan)
    return plans


def _idle(tp: int, pp: int, cp: int, sp: bool, method: str, schedule: str, etp: bool) -> bool:
    """Whether a choice stands for nothing at these degrees."""
    return (sp and tp == 1) or (schedule != "1f1b" and pp == 1) or (method != "allgather" and cp == 1) or (
        not etp and tp == 1
    )  # fmt: skip


def test_every_plan_that_is_legal_by_itself_is_found_once(graph: Graph) -> None:
    choices = CHOICES if graph_experts(graph) else Choices(
        zero=CHOICES.zero, recompute=CHOICES.recompute, schedule=CHOICES.schedule, cp=CHOICES.cp, etp=(True,)
    )  # fmt: skip
    space = PlanSpace(degrees=Degrees(num_gpus=(GPUS,), global_batch=(BATCH,)), choices=choices, seq_len=SEQ)
    plans = found(graph, space)
    # A V has two chunks whether they are asked for or not.
    wanted = {p for p in by_hand(graph, space) if graph_experts(graph) or p.family.etp}
    assert len(plans) == len(set(plans))
    assert set(plans) == wanted


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("stages", [2, 3, 4, 5, 6])
def test_stages_chunks_and_micro_batches_are_those_that_the_schedule_can_run(schedule: str, stages: int) -> None:
    """Odd numbers of stages and micro-batches too, which powers of two do not have."""
    blocks, batches = 12, (1, 5, 6, 7, 8, 9, 10, 11, 12, 13, 24)
    family = Family(pp=True, schedule=schedule)
    degrees = Degrees(num_gpus=(stages,), global_batch=batches, tp=(1,), pp=(stages,), micro_batch=(1,))
    numbers = candidates(degrees, family, Above(False, True, False, False), blocks)
    given = dict(zip(NUMBERS, numbers.tolist(), strict=True))
    wanted: set[tuple[int, int]] = set()
    for batch, vpp in product(batches, range(1, blocks // stages + 1)):
        try:
            check_schedule(schedule, batch, stages, vpp)
        except PlanError:
            continue
        wanted.add((batch, vpp))
    assert set(zip(given["gbs"], given["vpp"], strict=True)) == wanted


def test_an_axis_keeps_to_what_it_is_given() -> None:
    graph = load_graph(Path(DENSE))
    degrees = Degrees(num_gpus=(8, 16), global_batch=(16,), tp=(2,), pp=(2,), cp=(1,), micro_batch=(1, 2), vpp=(1,))
    space = PlanSpace(degrees=degrees, choices=Choices(sp=(True,), schedule=("1f1b",)), seq_len=SEQ)
    plans = found(graph, space)
    assert {(p.num_gpus, p.tp, p.pp, p.cp, p.dp) for p in plans} == {(8, 2, 2, 1, 2), (16, 2, 2, 1, 4)}
    assert {(p.micro_batch, p.vpp, p.family.sp) for p in plans} == {(1, 1, True), (2, 1, True)}


def test_a_replica_of_inference_runs_one_batch() -> None:
    degrees = Degrees(num_gpus=(8,), tp=(2,), pp=(1,), cp=(1,))
    numbers = candidates(degrees, Family(workload=Workload.DECODE), Above(True, False, False, False), 4)
    given = dict(zip(NUMBERS, numbers.tolist(), strict=True))
    assert given["mbs"] == [2**k for k in range(11)]
    assert given["gbs"] == [4 * 2**k for k in range(11)]


@pytest.mark.parametrize("wrong", [{"tp": (0,)}, {"num_gpus": ()}, {"global_batch": (-1,)}, {"tp": (2**63,)}])
def test_numbers_below_one_or_beyond_a_column_are_refused(wrong: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(PlanError):
        Degrees(**({"num_gpus": (8,)} | wrong))


def test_a_busiest_rank_has_at_most_the_rows_of_all_ranks() -> None:
    """Of four experts at a load of 3 over the mean ep 4 can have a plan; ep 2 cannot, as `make_plan` says."""
    graph = load_graph(Path(MOE))
    degrees = Degrees(num_gpus=(GPUS,), global_batch=(BATCH,), tp=(1,), pp=(1,), cp=(1,), micro_batch=(1,))
    space = PlanSpace(degrees=degrees, choices=Choices(zero=(1,), recompute=("none",)), seq_len=SEQ, expert_imbalance=3)
    assert {(plan.ep, plan.expert_imbalance) for plan in found(graph, space)} == {(1, 1.0), (4, 3.0)}
    with pytest.raises(PlanError, match="the busiest of ep=2 ranks gets 1 to 2 times the mean rows"):
        make_plan(
            num_gpus=GPUS, seq_len=SEQ, ep=2, expert_imbalance=3.0, family=Family(ep=True, imbalance=True, zero=1)
        )


@pytest.mark.parametrize("load", [{"expert_imbalance": 0.5}, {"capacity_factor": 1e6}])
def test_a_load_that_no_plan_takes_leaves_none_with_experts_dealt_out(load: dict[str, float]) -> None:
    graph = load_graph(Path(MOE))
    degrees = Degrees(num_gpus=(GPUS,), global_batch=(BATCH,), ep=(2,), micro_batch=(1,))
    space = PlanSpace(degrees=degrees, choices=CHOICES, seq_len=SEQ, **load)  # type: ignore[arg-type]
    family = Family(ep=True, capacity="capacity_factor" in load, imbalance="expert_imbalance" in load)
    above = Above(False, False, False, True)
    assert not candidates(degrees, family, above, num_layers(graph), space.load(family)).size
