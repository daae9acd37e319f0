"""Pipelines: time, memory and conservation over stages."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.machine.system import System
from slipstick.cost.memory.fullest import in_flight
from slipstick.cost.step.stages import StageProgram, Staging
from slipstick.driver.estimate import Lowered, estimate_many, evaluate, lower, screen
from slipstick.frontend import load
from slipstick.ir.errors import PlanError
from slipstick.ir.graph import Graph, Run
from slipstick.ir.plan import Family, Plan, PlanTable, make_plan
from slipstick.ir.sizes.points import Points

Traced = Callable[[str], Graph]


@pytest.fixture(scope="module")
def deep(traced: Traced) -> Callable[[str], Graph]:
    """One of the small models with sixteen layers."""

    def made(name: str) -> Graph:
        graph = traced(f"{name}.train")
        runs = tuple(Run(r.regions, 16) if r.count > 1 else r for r in graph.schedule)
        return Graph(graph.name, graph.workload, graph.dtype, graph.regions, runs)

    return made


def plan(pp: int, micro_batches: int = 8, vpp: int = 1, tp: int = 1, **policy: str) -> Plan:
    schedule, layout = policy.get("schedule", "1f1b"), policy.get("layout", "auto")
    family = Family(pp=True, schedule=schedule, pp_layout=layout)
    return make_plan(
        num_gpus=pp * tp, tp=tp, pp=pp, vpp=vpp, seq_len=64, family=family, global_batch=micro_batches
    )  # fmt: skip


def staged(lowered: Lowered, *plans: Plan) -> tuple[PlanTable, Staging]:
    table = PlanTable.of(plans)
    return table, lowered.stages.evaluate(table, Points(table))


def numbers(parts: Mapping[str, object]) -> dict[str, float]:
    return {name: float(np.asarray(value)[0]) for name, value in parts.items()}


@pytest.mark.parametrize(
    ("pp", "m", "vpp", "held"),
    [
        (8, 64, 1, 8.0),
        (8, 4, 1, 4.0),
        # Korthikanti et al.: p (1 + (p - 1) / (p v)).
        (8, 64, 3, 8 * (1 + 7 / 24)),
        (35, 280, 3, 35 * (1 + 34 / 105)),
    ],
)
def test_micro_batches_under_way_on_the_first_stage(traced: Traced, pp: int, m: int, vpp: int, held: float) -> None:
    graph = traced("tiny-llama.train")
    runs = tuple(Run(r.regions, 105 * 8) if r.count > 1 else r for r in graph.schedule)
    many = Graph(graph.name, graph.workload, graph.dtype, graph.regions, runs)
    family = Family(pp=True)
    table = PlanTable.of([make_plan(num_gpus=pp, pp=pp, vpp=vpp, seq_len=64, family=family, global_batch=m)])
    staging = StageProgram.of(many).evaluate(table, Points(table))
    assert float(in_flight(staging, 0, table)[0]) == pytest.approx(held, rel=1e-12)


def test_later_stages_hold_fewer_micro_batches(deep: Callable[[str], Graph]) -> None:
    table, staging = staged(lower(deep("tiny-llama"), Family(pp=True)), plan(4))
    # First, the two in the middle (the earlier of them is stage 1), last.
    assert [float(in_flight(staging, k, table)[0]) for k in range(3)] == [4.0, 3.0, 1.0]


def test_gpipe_holds_all_micro_batches(deep: Callable[[str], Graph]) -> None:
    family = Family(pp=True, schedule="gpipe")
    table, staging = staged(lower(deep("tiny-llama"), family), plan(4, schedule="gpipe"))
    assert [float(in_flight(staging, k, table)[0]) for k in range(3)] == [8.0, 8.0, 8.0]


@pytest.mark.parametrize("model", ["tiny-llama", "tiny-mixtral"])
@pytest.mark.parametrize("pp", [2, 4, 5, 16])
def test_stages_hold_the_whole_model_together(deep: Callable[[str], Graph], model: str, pp: int) -> None:
    graph = deep(model)
    lowered = lower(graph, Family(pp=True))
    _, staging = staged(lowered, plan(pp))
    total = dict.fromkeys(lowered.graph.counts, 0.0)
    for k in range(staging.num_classes):
        for name, runs in staging.runs(k).items():
            total[name] += float(runs[0] * staging.number[staging.which, k][0])
    assert total == {name: float(n) for name, n in lowered.graph.counts.items()}


def test_equal_stages_wait_for_p_minus_one_of_them(deep: Callable[[str], Graph], made_up: System) -> None:
    """Narayanan et al.: bubble = (p - 1)(tF + tB) / v, here with the ends on top."""
    lowered = lower(deep("tiny-llama"), Family(pp=True))
    one, four, chunks = (estimate_many(lowered, made_up, [p]) for p in (plan(1), plan(4), plan(4, vpp=2)))
    assert numbers(one.step.breakdown)["bubble"] == 0.0
    work = numbers({k: v for k, v in one.step.breakdown.items() if k.startswith("compute")})
    all_stages = sum(work.values()) / 8  # of one micro-batch
    found = numbers(four.step.breakdown)
    pace = float(four.step.forward_s[0] + four.step.backward_s[0])
    hops = 4 * found["comm.pp"] / 8
    assert found["bubble"] == pytest.approx(all_stages + hops - pace, rel=1e-9)
    sent = numbers(chunks.step.hidden_comm_s)["comm.pp"] + numbers(chunks.step.breakdown)["comm.pp"]
    assert sent == pytest.approx(2 * found["comm.pp"], rel=1e-9)
    assert numbers(chunks.step.breakdown)["bubble"] < 0.55 * found["bubble"]


def test_a_step_adds_up(deep: Callable[[str], Graph], made_up: System) -> None:
    table = estimate_many(lower(deep("tiny-llama"), Family(pp=True)), made_up, [plan(5), plan(4), plan(16, 32)])
    parts = sum(np.asarray(v) for v in table.step.breakdown.values())
    assert np.allclose(parts, table.metrics["step_time_s"], rtol=1e-12)


def test_both_ends_hold_a_tied_matrix(deep: Callable[[str], Graph], made_up: System) -> None:
    # 160 words of 64 in bf16; 16 layers of 12 h^2 + 13 h, final norm on the last stage, positions on the first.
    lowered = lower(deep("tiny-gpt2"), Family(pp=True))
    layer, words, positions, norm = 12 * 64 * 64 + 13 * 64, 160 * 64, 512 * 64, 2 * 64
    held = [float(evaluate(lowered, made_up, PlanTable.of([plan(p)])).memory_bytes["weights"][0]) for p in (1, 16)]
    assert held[0] == 2 * (16 * layer + words + positions + norm)
    assert held[1] == 2 * (layer + words + positions)


@given(st.sampled_from([1, 2, 4, 8, 16]), st.sampled_from([1, 2]), st.integers(1, 8))
def test_more_stages_never_hold_more_states(
    deep: Callable[[str], Graph], made_up: System, pp: int, tp: int, rounds: int
) -> None:
    lowered = lower(deep("tiny-llama"), Family(pp=True))
    plans = [plan(pp, 16 * rounds, tp=tp), plan(1, 16 * rounds, tp=tp)]
    table = evaluate(lowered, made_up, PlanTable.of(plans))
    for part in ("weights", "gradients", "optimizer"):
        split, whole = table.memory_bytes[part]
        assert split <= whole
    assert table.metrics["bubble_fraction"][1] == 0.0


def test_plans_of_several_depths_are_one_table(deep: Callable[[str], Graph], made_up: System) -> None:
    lowered = lower(deep("tiny-llama"), Family(pp=True))
    plans = [plan(1), plan(2), plan(3), plan(16), plan(4, vpp=2), plan(4, vpp=4)]
    together = evaluate(lowered, made_up, PlanTable.of(plans))
    for i, each in enumerate(plans):
        alone = evaluate(lowered, made_up, PlanTable.of([each]))
        for name, column in alone.metrics.items():
            assert together.metrics[name][i] == column[0], name
        assert [float(v[i]) for v in together.memory_bytes.values()] == [
            float(v[0]) for v in alone.memory_bytes.values()
        ]


def test_layouts_of_several_depths_and_costs_are_those_of_each_plan() -> None:
    """Attention of long sequences makes layers dear beside the head: as many stages share them out otherwise."""
    lowered = lower(load("llama-3.1-8b"), Family(pp=True))
    sizes = [(seq_len, pp, vpp) for seq_len in (8, 8192, 10**6) for pp, vpp in ((3, 1), (1, 1), (5, 2), (2, 3))]
    plans = [
        make_plan(num_gpus=pp, pp=pp, vpp=vpp, seq_len=seq_len, family=Family(pp=True), global_batch=8)
        for seq_len, pp, vpp in sizes
    ]
    _, together = staged(lowered, *plans)
    assert len(together.layouts) > 4
    for each, which in zip(plans, together.which, strict=True):
        assert staged(lowered, each)[1].layouts == (together.layouts[which],)


def test_screening_finds_what_an_estimate_finds(deep: Callable[[str], Graph], made_up: System) -> None:
    lowered = lower(deep("tiny-llama"), Family(pp=True))
    plans = [plan(pp, 48, tp=tp) for pp in (1, 2, 3, 16, 17) for tp in (1, 2, 4, 8)]
    found = screen(lowered, made_up, PlanTable.of(plans))
    for each, legal, needed in zip(plans, found.legal, found.peak_mem_bytes, strict=True):
        # Four heads, of which two ranks may hold the same for keys and values; sixteen layers.
        assert legal == (each.tp <= 4 and each.pp <= 16)
        if legal:
            assert needed == estimate_many(lowered, made_up, [each]).metrics["peak_mem_bytes"][0]
        else:
            assert needed == np.inf
            with pytest.raises(PlanError):
                estimate_many(lowered, made_up, [each])


def test_each_stage_recomputes_its_first_layers(deep: Callable[[str], Graph], made_up: System) -> None:
    """Megatron's block method: of four layers a stage one is recomputed, on all four stages."""
    graph = deep("tiny-llama")
    families = [Family(pp=True, recompute=policy, recompute_layers=n) for policy, n in (("none", 0), ("full", 1))]
    none, one = (lower(graph, f) for f in families)
    _, staging = staged(one, plan(4).under(families[1]))
    first, rest = (f"block0{end}" for end in ("_recomputed", ""))
    assert [float(staging.runs(0)[name][0]) for name in (first, rest)] == [1.0, 3.0]
    assert float(staging.runs_in_all([first])[0]) == 4.0
    kept = [
        float(estimate_many(low, made_up, [plan(4).under(f)]).memory_bytes["activations"][0])
        for low, f in zip((none, one), families, strict=True)
    ]
    layer, entering = (
        float(low.graph.region(name).saved_bytes.evaluate({"mbs": 1.0, "seq": 64.0, "tp": 1.0, "dp": 1.0}))
        for low, name in ((none, "block0"), (one, first))
    )
    # The first stage has four micro-batches in flight.
    assert kept[0] - kept[1] == 4 * (layer - entering)


def test_recomputed_work_counts_on_every_stage(deep: Callable[[str], Graph], made_up: System) -> None:
    families = [Family(pp=True, recompute="full", recompute_layers=n) for n in (1, 4)]
    families.append(Family(pp=True, recompute="full"))
    found = [estimate_many(lower(deep("tiny-llama"), f), made_up, [plan(4).under(f)]).metrics for f in families]
    extra = [float(m["hfu"][0] / m["mfu"][0]) - 1.0 for m in found]
    assert extra[1] == pytest.approx(4 * extra[0], rel=1e-9)
    assert extra[2] == pytest.approx(extra[1], rel=1e-9)
    assert list(found[1]["step_time_s"]) == list(found[2]["step_time_s"])
