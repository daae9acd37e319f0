"""Model, plan and system to an estimate: what is refused, what limits must hold, what adds up."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.system import System
from slipstick.driver.estimate import Estimate, Lowered, estimate, estimate_many, evaluate, lower, pipeline_for
from slipstick.ir.errors import PlanError, UsageError
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.placement import EP, TP
from slipstick.ir.plan import Family, Plan, PlanTable, make_plan
from slipstick.ir.plan.divisibility import check_divisibility, legal_degrees

Traced = Callable[[str], Graph]

FASTER = (
    "chip.memory.hbm.bandwidth",
    "chip.matmul.bf16",
    "chip.vector.fp32",
    "network.nvlink.bandwidth",
    "network.infiniband.bandwidth",
)


Plain = Callable[[System], System]


def without_waiting(system: System) -> System:
    levels = tuple(replace(level, latency_s=0.0) for level in system.levels)
    return replace(system, levels=levels, stack=replace(system.stack, launch_s=0.0, collective_launch_s=0.0))


@pytest.fixture(scope="module")
def llama(traced: Traced) -> Graph:
    return traced("tiny-llama.train")


def plan(tp: int = 2, gpus: int = 16, family: Family = Family(sp=True), **sizes: int) -> Plan:  # noqa: B008
    train = family.workload is Workload.TRAIN
    given = {"seq_len": 64, "global_batch": 32, **sizes} if train else {"seq_len": 64, **sizes}
    return make_plan(
        num_gpus=gpus,
        tp=tp,
        family=family,
        seq_len=given["seq_len"],
        micro_batch=given.get("micro_batch", 1),
        global_batch=given.get("global_batch"),
        kv_len=given.get("kv_len", 0),
    )


def adds_up(answer: Estimate) -> None:
    assert sum(answer.breakdown_s.values()) == pytest.approx(answer.metrics["step_time_s"], rel=1e-12)
    assert sum(answer.memory_bytes.values()) == pytest.approx(answer.metrics["peak_mem_bytes"], rel=1e-12)


def test_an_answer_beyond_numbers_is_refused(llama: Graph) -> None:
    # No file can say it; a machine made in Python can.
    system = load_system("dgx-h100")
    still = replace(system, chip=replace(system.chip, hbm_bytes_per_s=1e-320))
    with np.errstate(all="ignore"), pytest.raises(UsageError, match="step_time_s is beyond any number"):
        estimate(llama, still, plan())


def test_parts_add_up_to_the_whole(llama: Graph) -> None:
    answer = estimate(llama, load_system("dgx-h100"), plan())
    adds_up(answer)
    comm = sum(v for k, v in answer.breakdown_s.items() if k.startswith("comm."))
    assert answer.metrics["exposed_comm_s"] == pytest.approx(comm, rel=1e-12)
    assert answer.metrics["hidden_comm_s"] == pytest.approx(sum(answer.hidden_comm_s.values()), rel=1e-12)


def test_metrics_follow_from_the_step(llama: Graph) -> None:
    answer = estimate(llama, load_system("dgx-h100"), plan())
    m, time_s = answer.metrics, answer.metrics["step_time_s"]
    assert m["tokens_per_s"] == pytest.approx(32 * 64 / time_s, rel=1e-12)
    assert m["tokens_per_s_per_gpu"] == pytest.approx(32 * 64 / time_s / 16, rel=1e-12)
    assert m["mfu"] == pytest.approx(m["model_flops"] / (16 * 989e12 * time_s), rel=1e-12)
    assert m["hfu"] == m["mfu"]


def test_recomputation_counts_in_hfu_only(llama: Graph) -> None:
    answer = estimate(llama, load_system("dgx-h100"), plan(family=Family(sp=True, recompute="full")))
    assert answer.metrics["mfu"] < answer.metrics["hfu"] < 4 / 3 * answer.metrics["mfu"]


def test_decode_counts_new_tokens_and_knows_its_latency(traced: Traced) -> None:
    family = Family(workload=Workload.DECODE)
    asked = plan(2, 4, family, micro_batch=8, kv_len=64)
    answer = estimate(traced("tiny-llama.decode"), load_system("dgx-h100"), asked)
    adds_up(answer)
    time_s = answer.metrics["step_time_s"]
    # Two replicas of eight sequences, a token each.
    assert answer.metrics["tokens_per_s"] == pytest.approx(16 / time_s, rel=1e-12)
    assert answer.metrics["tpot_s"] == time_s
    assert answer.metrics["tokens_per_s_per_user"] == pytest.approx(1 / time_s, rel=1e-12)
    assert "bubble_fraction" not in answer.metrics


def test_a_degree_that_does_not_divide_names_dim_degree_and_what_is_legal(llama: Graph) -> None:
    lowered = lower(llama, Family())
    with pytest.raises(PlanError) as caught:
        check_divisibility(lowered.graph, plan(tp=3, gpus=3, family=Family()))
    # Two heads for keys and values, the smallest number that breaks; of four ranks two would hold each, and no more
    # than four have a head for queries.
    assert str(caught.value) == (
        "tp=3 is no multiple of the 2 key-value heads of model.layers.*.self_attn; legal tp: 1, 2, 4"
    )


def test_sequence_parallelism_must_divide_the_sequence(llama: Graph) -> None:
    with pytest.raises(PlanError, match=r"tp=2 does not divide 63 \(.*\); legal tp: 1"):
        estimate(llama, load_system("dgx-h100"), plan(seq_len=63))


def test_legal_degrees_divide_every_dim(llama: Graph) -> None:
    graph = lower(llama, Family(sp=True)).graph
    assert legal_degrees(graph, plan(), TP.group) == [1, 2, 4]
    assert legal_degrees(graph, plan(seq_len=63), TP.group) == [1]
    assert legal_degrees(graph, plan(), EP.group) == [1]


def test_an_unsharded_graph_is_no_estimate(llama: Graph) -> None:
    lowered = lower(llama, Family(), stop_after="accumulate")
    with pytest.raises(UsageError, match="not sharded"):
        evaluate(lowered, load_system("dgx-h100"), PlanTable.of([plan(family=Family())]))


@pytest.mark.parametrize(
    ("family", "names"),
    [
        (Family(), ["accumulate", "shard", "bucket", "optimizer", "fuse"]),
        (Family(fused=False, recompute="full"), ["accumulate", "shard", "recompute", "bucket", "optimizer"]),
        (Family(workload=Workload.DECODE), ["absorb", "shard", "window", "fuse"]),
    ],
)
def test_a_family_has_its_pipeline(family: Family, names: list[str]) -> None:
    assert [step.name for step in pipeline_for(family).passes] == names


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_an_infinite_network_costs_nothing(llama: Graph, roofline_only: Plain, zero: int) -> None:
    family = Family(sp=True, zero=zero)
    machine = without_waiting(roofline_only(load_system("dgx-h100")))
    levels = tuple(replace(level, bytes_per_s=1e30) for level in machine.levels)
    answer = estimate(llama, replace(machine, levels=levels), plan(family=family))
    comm = [v for k, v in answer.breakdown_s.items() if k.startswith("comm.")]
    assert comm
    assert max(comm) == pytest.approx(0.0, abs=1e-20)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_a_group_of_one_does_not_talk(llama: Graph, zero: int) -> None:
    answer = estimate(llama, load_system("dgx-h100"), plan(tp=1, gpus=1, family=Family(zero=zero)))
    assert answer.metrics["exposed_comm_s"] == 0.0
    assert answer.metrics["hidden_comm_s"] == 0.0


@settings(max_examples=40)
@given(st.sampled_from(FASTER), st.floats(1.0, 1e4))
def test_a_faster_machine_is_never_slower(traced: Traced, key: str, factor: float) -> None:
    system = load_system("dgx-h100")
    number = next(n for n in system.sources if n.path == key)
    faster = load_system("dgx-h100", [f"{key}={number.value_si * factor!r}"])
    for zero in (0, 1, 3):
        lowered = _lowered(traced, zero)
        table = PlanTable.of([plan(tp, family=Family(zero=zero)) for tp in (1, 2)])
        before, after = (evaluate(lowered, s, table).metrics["step_time_s"] for s in (system, faster))
        assert np.all(after <= before * (1 + 1e-12))


def test_the_machine_s_speed_scales_time(llama: Graph, roofline_only: Plain) -> None:
    """Without waiting, a machine twice as fast in everything takes half the time."""
    numbers = load_system("dgx-h100").sources
    doubled = load_system("dgx-h100", [f"{n.path}={2 * n.value_si!r}" for n in numbers if n.path in FASTER])
    machines = (without_waiting(roofline_only(s)) for s in (load_system("dgx-h100"), doubled))
    before, after = (estimate(llama, s, plan()).metrics["step_time_s"] for s in machines)
    assert after == pytest.approx(before / 2, rel=1e-12)


def test_twice_the_layers_are_the_same_program_with_other_counts(llama: Graph) -> None:
    runs = tuple(replace(r, count=2 * r.count) if r.regions == ("block0",) else r for r in llama.schedule)
    deeper = replace(llama, schedule=runs)
    one, two = (lower(g, Family(sp=True)) for g in (llama, deeper))
    assert [e.name for e in one.program.entries] == [e.name for e in two.program.entries]
    assert one.program.graph.regions == two.program.graph.regions
    times = [dict(_region_times(estimate(g, load_system("dgx-h100"), plan()))) for g in (llama, deeper)]
    assert times[1]["block0"] == pytest.approx(2 * times[0]["block0"], rel=1e-12)
    assert {k: v for k, v in times[1].items() if k != "block0"} == {k: v for k, v in times[0].items() if k != "block0"}


def test_many_plans_are_answered_as_one_by_one(llama: Graph) -> None:
    system, lowered = load_system("dgx-h100"), lower(llama, Family())
    plans = [plan(tp, gpus, Family()) for tp in (1, 2) for gpus in (2, 16)]
    table = estimate_many(lowered, system, plans)
    for i, one in enumerate(plans):
        answer = estimate(llama, system, one, lowered=lowered)
        assert {k: float(v[i]) for k, v in table.metrics.items()} == pytest.approx(dict(answer.metrics), rel=1e-12)


def test_many_plans_are_checked(llama: Graph) -> None:
    with pytest.raises(PlanError, match="tp=8 is more than the 4 heads"):
        estimate_many(lower(llama, Family()), load_system("dgx-h100"), [plan(8, 8, family=Family())])


def test_a_reader_is_warned(llama: Graph) -> None:
    system = replace(load_system("dgx-h100"), node_size=1)
    answer = estimate(llama, system, plan(seq_len=1024))
    assert "1024 tokens are more than the 512 positions tiny-llama was made for" in answer.warnings
    assert any("tp=2 spans nodes of 1 GPUs" in w for w in answer.warnings)


def test_whether_it_fits_is_a_comparison_with_the_memory(llama: Graph, made_up: System) -> None:
    need = estimate(llama, made_up, plan()).metrics["peak_mem_bytes"]
    for capacity, fits in ((need, True), (np.nextafter(need, 0), False)):
        system = replace(made_up, chip=replace(made_up.chip, hbm_bytes=capacity))
        assert estimate(llama, system, plan()).fits is fits


@cache
def _lowered(traced: Traced, zero: int) -> Lowered:
    return lower(traced("tiny-llama.train"), Family(zero=zero))


def _region_times(answer: Estimate) -> list[tuple[str, float]]:
    return [(k, float(v[0])) for k, v in answer.table.timing.sums(lambda e: e.region).items()]
