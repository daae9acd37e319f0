"""Node times to a step, with times given by hand: what adds up, what hides, what runs once."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.machine.system import System
from slipstick.backends.pricing.program import CompiledProgram, PricedEntry, PricingGroup
from slipstick.backends.pricing.timing import PricedGroup, Timing, annotate
from slipstick.cost.step.policy import StepPolicy
from slipstick.cost.step.rollup import StepSeconds, roll_up
from slipstick.cost.step.stages import StageProgram
from slipstick.driver.estimate import lower
from slipstick.ir.graph import Graph, Phase, Region, Run, Workload
from slipstick.ir.ops import OpClass, Work
from slipstick.ir.ops.host import DOWN, UP, UPDATE
from slipstick.ir.placement import AxisGroup
from slipstick.ir.plan import Family, PlanTable, make_plan
from slipstick.ir.sizes.expr import as_expr
from slipstick.ir.sizes.points import Points
from slipstick.ir.types import DType

FORWARD, BACKWARD, REDUCE, OPTIMIZER = Phase.FORWARD, Phase.BACKWARD, Phase.REDUCE, Phase.OPTIMIZER
PREPARE = Phase.PREPARE
Given = tuple[PricedEntry, float]


def compute(phase: Phase, seconds: float, kind: OpClass = OpClass.MATMUL) -> Given:
    return PricedEntry("last", 1, "matmul", kind, phase, "", 1, DType.BF16, Work()), seconds


def talk(phase: Phase, seconds: float, axis: str = "dp", region: str = "last") -> Given:
    kind = OpClass.COMMUNICATION
    return PricedEntry(
        region, 1, "all_reduce", kind, phase, "", 1, DType.FP32, Work(), AxisGroup(axis), as_expr(1)
    ), seconds


def copy(phase: Phase, seconds: float, op: str, region: str = "last") -> Given:
    return PricedEntry(region, 1, op, OpClass.HOST, phase, "", 1, DType.BF16, Work()), seconds


def step(
    *given: Given,
    micro_batches: int = 1,
    workload: Workload = Workload.TRAIN,
    count: int = 1,
    sm_share: float = 0.0,
) -> StepSeconds:
    regions = (Region("first", (), ()), Region("last", (), ()))
    graph = Graph("by hand", workload, DType.BF16, regions, (Run(("first",)), Run(("last",), count)))
    point = np.zeros(1, dtype=np.intp)
    priced = tuple(
        PricedGroup(PricingGroup((), (entry,), ()), np.array([[seconds]]), point) for entry, seconds in given
    )
    family = Family(workload=workload)
    plan = make_plan(num_gpus=1, seq_len=1, family=family, global_batch=micro_batches)
    table = PlanTable.of([plan])
    staging = StageProgram.of(graph).evaluate(table, Points(table))
    return roll_up(Timing(CompiledProgram(graph, ()), priced, 1), table, staging, StepPolicy(sm_share=sm_share))


def test_what_messages_hold_of_the_sms_is_computed_after_them() -> None:
    # 3 s of gradients hide behind 5 s of the backward phase; an eighth of the SMs moves them.
    parts = (compute(Phase.BACKWARD, 5.0), talk(Phase.BACKWARD, 3.0))
    free, taxed = (step(*parts, sm_share=share) for share in (0.0, 1 / 8))
    assert "compute.lent_sms" not in free.breakdown
    assert numbers(taxed.breakdown)["compute.lent_sms"] == pytest.approx(3.0 / 8, rel=1e-12)
    assert float(taxed.time_s[0]) == pytest.approx(5.0 + 3.0 / 8, rel=1e-12)


def test_exposed_messages_hold_nothing_back() -> None:
    taxed = step(compute(Phase.FORWARD, 5.0), talk(Phase.FORWARD, 3.0, axis="tp"), sm_share=0.5)
    assert float(taxed.time_s[0]) == pytest.approx(8.0, rel=1e-12)


def numbers(parts: Mapping[str, object]) -> dict[str, float]:
    return {name: float(np.asarray(value)[0]) for name, value in parts.items()}


def test_every_micro_batch_runs_forward_and_backward() -> None:
    found = step(compute(FORWARD, 3.0), compute(BACKWARD, 6.0), micro_batches=4)
    assert numbers(found.breakdown) == {"compute.matmul": 36.0, "bubble": 0.0}
    assert (float(found.forward_s[0]), float(found.backward_s[0]), float(found.time_s[0])) == (3.0, 6.0, 36.0)


def test_a_repeated_region_counts_as_often_as_it_runs() -> None:
    assert float(step(compute(FORWARD, 0.5), count=32).time_s[0]) == 16.0


def test_recomputation_belongs_to_the_backward_phase() -> None:
    found = step(compute(FORWARD, 3.0), compute(Phase.RECOMPUTE, 2.0), compute(BACKWARD, 6.0))
    assert float(found.backward_s[0]) == 8.0


def test_the_optimizer_runs_once() -> None:
    found = step(compute(FORWARD, 1.0), compute(OPTIMIZER, 5.0, OpClass.OPTIMIZER), micro_batches=8)
    assert numbers(found.breakdown) == {"compute.matmul": 8.0, "bubble": 0.0, "optimizer": 5.0}


def test_tensor_parallel_messages_are_exposed_in_every_micro_batch() -> None:
    found = step(talk(FORWARD, 0.5, "tp"), compute(FORWARD, 3.0), talk(BACKWARD, 1.0, "tp"), micro_batches=4)
    assert numbers(found.breakdown)["comm.tp"] == 6.0
    assert float(found.exposed_comm_s[0]) == 6.0


@pytest.mark.parametrize(
    ("rest", "last", "exposed"),
    [
        (1.5, 0.5, 0.5),  # 2 s fit behind 6 s of backward, but the last message starts when that ends
        (7.5, 0.5, 2.0),  # 8 s: 6 fit
        (5.8, 0.5, 0.5),  # 6.3 s: 0.3 too long, the last message is longer than that
        (0.0, 1.0, 1.0),  # one message alone has nothing to hide behind
    ],
)
def test_gradients_are_reduced_behind_the_last_backward_phase(rest: float, last: float, exposed: float) -> None:
    reductions = [talk(REDUCE, last, region="first"), *([talk(REDUCE, rest)] if rest else [])]
    found = step(compute(FORWARD, 3.0), compute(BACKWARD, 6.0), *reductions, micro_batches=4)
    assert numbers(found.breakdown)["comm.dp"] == pytest.approx(exposed, rel=1e-12)
    assert numbers(found.hidden_comm_s)["comm.dp"] == pytest.approx(rest + last - exposed, rel=1e-12)
    assert float(found.time_s[0]) == pytest.approx(36.0 + exposed, rel=1e-12)


@pytest.mark.parametrize(
    ("first", "rest", "exposed"),
    [
        (0.5, 1.5, 0.5),  # 2 s fit behind 3 s of forward, but nothing starts without the first message
        (0.5, 4.5, 2.0),  # 5 s: 3 fit
    ],
)
def test_what_is_gathered_once_a_step_hides_behind_the_first_forward_phase(
    first: float, rest: float, exposed: float
) -> None:
    gathers = [talk(PREPARE, first, region="first"), talk(PREPARE, rest)]
    found = step(compute(FORWARD, 3.0), compute(BACKWARD, 6.0), *gathers, micro_batches=4)
    assert numbers(found.breakdown)["comm.dp"] == pytest.approx(exposed, rel=1e-12)
    assert float(found.time_s[0]) == pytest.approx(36.0 + exposed, rel=1e-12)


@pytest.mark.parametrize(
    ("scattered", "summed", "exposed"),
    [
        (2.0, 3.0, (0.0, 0.0)),  # 5 s fit behind 6 s
        (5.0, 3.0, (0.0, 2.0)),  # shards are summed once gradients are scattered: 1 s is left
        (7.0, 3.0, (1.0, 3.0)),
    ],
)
def test_shards_are_summed_over_the_groups_behind_what_the_scattering_leaves(
    scattered: float, summed: float, exposed: tuple[float, float]
) -> None:
    found = step(compute(BACKWARD, 6.0), talk(REDUCE, scattered, "fsdp"), talk(REDUCE, summed, "dp"))
    parts = numbers(found.breakdown)
    assert (parts["comm.fsdp"], parts["comm.dp"]) == exposed
    assert sum(numbers(found.hidden_comm_s).values()) == scattered + summed - sum(exposed)


def test_gathering_updated_weights_is_exposed_and_runs_once() -> None:
    found = step(compute(BACKWARD, 6.0), talk(OPTIMIZER, 2.0), micro_batches=3)
    assert numbers(found.breakdown) == {"compute.matmul": 18.0, "comm.dp": 2.0, "bubble": 0.0}


@pytest.mark.parametrize(("message", "exposed"), [(1.0, 0.0), (5.0, 2.0)])
def test_data_parallel_messages_inside_a_phase_hide_behind_its_computation(message: float, exposed: float) -> None:
    found = step(compute(FORWARD, 3.0), talk(FORWARD, message), micro_batches=4)
    assert numbers(found.breakdown)["comm.dp"] == 4 * exposed
    assert numbers(found.hidden_comm_s)["comm.dp"] == 4 * (message - exposed)


@pytest.mark.parametrize("workload", [Workload.PREFILL, Workload.DECODE])
def test_inference_is_one_pass_without_a_bubble(workload: Workload) -> None:
    found = step(compute(FORWARD, 3.0), talk(FORWARD, 1.0, "tp"), workload=workload)
    assert numbers(found.breakdown) == {"compute.matmul": 3.0, "comm.tp": 1.0}
    assert float(found.time_s[0]) == 4.0


@pytest.mark.parametrize(
    ("down", "up", "exposed"),
    [(2.0, 0.0, 0.0), (5.0, 0.0, 2.0), (5.0, 4.0, 2.0), (5.0, 6.0, 3.0)],  # both directions at once, behind 3 s
)
def test_copies_of_a_phase_hide_behind_its_computation(down: float, up: float, exposed: float) -> None:
    copies = [copy(FORWARD, down, DOWN), *([copy(FORWARD, up, UP)] if up else [])]
    found = step(compute(FORWARD, 3.0), *copies, micro_batches=4)
    assert numbers(found.breakdown)["offload"] == 4 * exposed
    assert numbers(found.hidden_comm_s)["offload"] == 4 * (down + up - exposed)
    assert float(found.total_hidden_comm_s[0]) == 0


@pytest.mark.parametrize(
    ("down", "up", "spent"),
    [
        (5.0, 1.0, 0.25 + 0.25),  # gradients fit behind 6 s of backward, weights behind 4 s of updates; not the last
        (8.0, 1.0, 2.0 + 0.25),
        (5.0, 7.0, 0.25 + 3.0),
    ],
)
def test_copies_of_the_update_hide_behind_backward_and_updates(down: float, up: float, spent: float) -> None:
    last = [copy(OPTIMIZER, 0.25, DOWN, "first"), copy(OPTIMIZER, 0.25, UP, "first")]
    rest = [copy(OPTIMIZER, down - 0.25, DOWN), copy(OPTIMIZER, up - 0.25, UP)]
    update = PricedEntry("last", 2, UPDATE, OpClass.HOST, OPTIMIZER, "", 1, DType.BF16, Work()), 4.0
    found = step(compute(BACKWARD, 6.0), *last, *rest, update, micro_batches=3)
    assert numbers(found.breakdown)["offload"] == pytest.approx(spent, rel=1e-12)
    assert numbers(found.breakdown)["optimizer"] == 4.0
    assert float(found.time_s[0]) == pytest.approx(18.0 + 4.0 + spent, rel=1e-12)


@pytest.mark.parametrize(
    ("message", "copies", "step_s"), [(2.0, 1.0, 3.0), (5.0, 2.0, 5.0), (5.0, 7.0, 7.0), (2.0, 4.0, 4.0)]
)
def test_copies_run_beside_messages_too(message: float, copies: float, step_s: float) -> None:
    # Three streams at once: 3 s of computation, messages between devices, copies to the host; the longest counts.
    found = step(compute(FORWARD, 3.0), talk(FORWARD, message, "fsdp"), copy(FORWARD, copies, UP))
    assert float(found.time_s[0]) == pytest.approx(step_s, rel=1e-12)


@given(st.floats(0.0, 9.0), st.floats(0.0, 9.0), st.floats(0.0, 9.0), st.floats(0.0, 9.0), st.floats(0.0, 3.0))
def test_more_computation_never_makes_a_step_shorter(
    work: float, message: float, up: float, gradients: float, more: float
) -> None:
    rest = (talk(BACKWARD, message, "fsdp"), copy(BACKWARD, up, UP), copy(OPTIMIZER, gradients, DOWN))
    short, long = (step(compute(BACKWARD, s), *rest) for s in (work, work + more))
    assert float(long.time_s[0]) >= float(short.time_s[0]) - 1e-9


def test_people_read_computation_first() -> None:
    parts = (compute(OPTIMIZER, 1.0, OpClass.OPTIMIZER), talk(FORWARD, 1.0, "tp"), compute(FORWARD, 1.0, OpClass.NORM))
    assert list(step(*parts).breakdown) == ["compute.norm", "comm.tp", "bubble", "optimizer"]


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_a_step_is_all_its_node_times_less_what_hides(
    traced: Callable[[str], Graph], made_up: System, zero: int, recompute: str
) -> None:
    family = Family(sp=True, zero=zero, recompute=recompute)
    plans = [
        make_plan(num_gpus=tp * dp, tp=tp, seq_len=64, family=family, global_batch=16)
        for tp in (1, 2)
        for dp in (1, 2, 16)
    ]
    table = PlanTable.of(plans)
    lowered = lower(traced("tiny-llama.train"), family)
    timing = annotate(lowered.program, made_up, table)
    found = roll_up(timing, table, lowered.stages.evaluate(table, Points(table)))
    for i, plan in enumerate(plans):
        once = {OPTIMIZER, REDUCE}
        spent = sum(t * e.count * (1 if e.phase in once else plan.num_micro_batches) for e, t in timing.rows(i))
        hidden = sum(float(h[i]) for h in found.hidden_comm_s.values())
        assert float(found.time_s[i]) == pytest.approx(spent - hidden, rel=1e-12)
        assert all(float(part[i]) >= 0 for part in (*found.breakdown.values(), *found.hidden_comm_s.values()))
