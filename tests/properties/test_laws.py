"""How answers hang together: plans among others and alone, faster machines, more recomputation, what messages carry."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from slipstick.backends.machine.system import System
from slipstick.driver.estimate import Estimates, Lowered, estimate_many, evaluate, pipeline_for, screen
from slipstick.ir.errors import PlanError
from slipstick.ir.graph import Graph, Phase
from slipstick.ir.ops import call_of
from slipstick.ir.ops.collectives import CollectiveAttrs, message_bytes
from slipstick.ir.plan import Family, Plan, PlanTable, make_plan
from slipstick.ir.plan.divisibility import check_divisibility
from slipstick.ir.plan.structure import RULES
from slipstick.ir.types import DType
from slipstick.passes.manager import parse_pipeline

Cases = st.SearchStrategy[tuple[str, Plan]]
Lowering = Callable[[str, Family], Lowered]
Deep = Callable[[str], Graph]
DENSE = st.sampled_from(["tiny-llama", "tiny-gpt2"])


def answers(found: Estimates, row: int) -> dict[str, float]:
    columns = {**found.metrics, **found.step.breakdown, **found.memory_bytes, **found.step.hidden_comm_s}
    return {name: float(column[row]) for name, column in columns.items()}


def more_of(plan: Plan) -> list[Plan]:
    """The plan among others of its family: more replicas, more and longer micro-batches, one rank alone."""
    alone = make_plan(num_gpus=1, seq_len=128, micro_batch=2, family=plan.family, capacity_factor=plan.capacity_factor)
    return [
        alone,
        replace(plan, num_gpus=plan.num_gpus * 2, dp=plan.dp * 2, global_batch=plan.global_batch * 2),
        plan,
        replace(plan, global_batch=plan.global_batch * 3),
        replace(plan, seq_len=256),
        plan,
    ]


@settings(max_examples=50)
@given(data=st.data())
def test_a_plan_among_others_is_the_plan_alone_bit_for_bit(
    machine: System, lowered: Lowering, cases: Cases, data: st.DataObject
) -> None:
    model, plan = data.draw(cases)
    given_layout = plan.family.pp_layout[0].isdigit()
    plans = [p for p in more_of(plan) if p.pp == plan.pp or not given_layout]
    done = lowered(model, plan.family)
    together = estimate_many(done, machine, plans)
    for row, one in enumerate(plans):
        assert answers(together, row) == answers(estimate_many(done, machine, [one]), 0)


@settings(max_examples=50)
@given(data=st.data(), tp=st.sampled_from([1, 2, 3, 4, 8]), cp=st.sampled_from([1, 2, 3]), pp=st.integers(1, 18))
def test_screening_says_what_an_estimate_would(
    machine: System, lowered: Lowering, cases: Cases, data: st.DataObject, tp: int, cp: int, pp: int
) -> None:
    model, plan = data.draw(cases)
    family = plan.family
    dealt = 2 if family.ep and family.etp and plan.dp % 4 == 0 else 1
    assume(cp == 1 or family.cp != "none")
    assume(family.tp or tp == cp == 1)
    cut = {rule.degree for rule in RULES if rule.has(family)} | (set() if family.etp else {"etp"})
    other = replace(
        plan, tp=tp, cp=cp, cp_ulysses=1, pp=pp if family.pp else 1, vpp=1, ep=dealt, expert_imbalance=1.0,
        num_gpus=tp * cp * plan.pp * plan.dp, etp=tp if family.etp else 1, cut=frozenset(cut),
    )  # fmt: skip
    assert other.family == replace(family, tp=other.family.tp)
    done = lowered(model, family)
    for one in (plan, other):
        table = PlanTable.of([one])
        screened = screen(done, machine, table)
        legal = is_legal(done.graph, one)
        assert bool(screened.legal[0]) == legal
        if legal:
            found = evaluate(done, machine, table)
            assert float(screened.peak_mem_bytes[0]) == float(found.metrics["peak_mem_bytes"][0])
            assert bool(screened.fits[0]) == bool(found.fits[0])
        else:
            assert math.isinf(screened.peak_mem_bytes[0])
            assert not screened.fits[0]


def is_legal(graph: Graph, plan: Plan) -> bool:
    try:
        check_divisibility(graph, plan)
    except PlanError:
        return False
    return True


def faster(machine: System, part: str, factor: float) -> System:
    chip, peaks = machine.chip, machine.chip.peak_flop_per_s
    if part == "peak":
        return replace(
            machine,
            chip=replace(chip, peak_flop_per_s=peaks.times(factor), vector_flop_per_s=chip.vector_flop_per_s * factor),
        )
    if part == "memory":
        return replace(machine, chip=replace(chip, hbm_bytes_per_s=chip.hbm_bytes_per_s * factor))
    levels = (replace(v, bytes_per_s=v.bytes_per_s * factor) for v in machine.levels)
    return replace(machine, levels=tuple(levels))


@settings(max_examples=50)
@given(data=st.data(), part=st.sampled_from(["peak", "memory", "network"]), factor=st.floats(1.0, 100.0))
def test_a_faster_machine_is_never_slower(
    machine: System, lowered: Lowering, cases: Cases, data: st.DataObject, part: str, factor: float
) -> None:
    model, plan = data.draw(cases)
    done = lowered(model, plan.family)
    before, after = (
        float(estimate_many(done, m, [plan]).metrics["step_time_s"][0])
        for m in (machine, faster(machine, part, factor))
    )
    assert after <= before * (1 + 1e-12)


ORDERED = (
    (Family(), Family(recompute="selective"), Family(recompute="full")),
    (Family(), Family(recompute="ops"), Family(recompute="full")),
    (Family(recompute="full"), Family(recompute="full", early_stop=False)),
    (Family(), *(Family(recompute="full", recompute_layers=n) for n in (1, 5, 16))),
    (Family(), Family(recompute="selective", recompute_modules=("layernorm",))),
)


@settings(max_examples=50)
@given(data=st.data(), row=st.sampled_from(ORDERED))
def test_more_recomputation_never_keeps_more_nor_runs_shorter(
    machine: System, lowered: Lowering, cases: Cases, data: st.DataObject, row: tuple[Family, ...]
) -> None:
    model, plan = data.draw(cases)
    assume(plan.pp == 1 or not row[-1].recompute_layers)
    kept: list[float] = []
    times: list[float] = []
    for again in row:
        layout = "auto" if plan.family.pp_layout in ("auto", "balanced") else plan.family.pp_layout
        family = replace(
            plan.family, offload=(), pp_layout=layout, recompute=again.recompute, early_stop=again.early_stop,
            recompute_modules=again.recompute_modules, recompute_layers=again.recompute_layers, recompute_every=1,
        )  # fmt: skip
        one = plan.under(family)
        # With stages, another stage may become the fullest, which keeps more and is small otherwise.
        whole = one.under(replace(family, pp_layout="auto"), {"pp": 1, "vpp": 1, "num_gpus": plan.num_gpus // plan.pp})
        kept.append(float(estimate_many(lowered(model, whole.family), machine, [whole]).memory_bytes["activations"][0]))
        times.append(float(estimate_many(lowered(model, family), machine, [one]).metrics["step_time_s"][0]))
    for i in range(len(row) - 1):
        assert kept[i + 1] <= kept[i] * (1 + 1e-12)
        assert times[i] <= times[i + 1] * (1 + 1e-12)


# What messages carry.


def wire_bytes(graph: Graph, plan: Plan, axes: set[str], phases: tuple[Phase, ...], region: str = "") -> float:
    """Bytes that a rank sends over some axes: of a message S, (n - 1)/n S, twice for an all-reduce."""
    env = {**plan.mesh, "mbs": plan.micro_batch, "seq": plan.seq_len}
    found = 0.0
    for r in (r for r in graph.regions if region in ("", r.name)):
        for n in (n for n in r.nodes if isinstance(n.attrs, CollectiveAttrs) and n.phase in phases):
            assert isinstance(n.attrs, CollectiveAttrs)
            if not axes & set(n.attrs.axes):
                continue
            ranks = math.prod(plan.mesh[a] for a in n.attrs.axes)
            size = float(np.asarray(message_bytes(call_of(r, n)).evaluate({k: float(v) for k, v in env.items()})))
            found += size * (ranks - 1) / ranks * (2 if n.op == "all_reduce" else 1) * graph.counts[r.name]
    return found


@given(model=DENSE, tp=st.sampled_from([2, 4]), micro=st.integers(1, 4), plan=st.sampled_from(["megatron", "dtensor"]))
def test_sequence_parallelism_moves_the_bytes_of_tensor_parallelism(
    deep: Deep, model: str, tp: int, micro: int, plan: str
) -> None:
    """A gather and a scatter are an all-reduce; what is gathered again instead of kept comes on top."""
    ways = [Family(sp=sp, tp_plan=plan) for sp in (False, True)]
    at = make_plan(num_gpus=tp, tp=tp, seq_len=64, micro_batch=micro, family=ways[0])
    texts = [str(pipeline_for(f)).replace("regather=true", "regather=false") for f in ways]
    phases = (Phase.FORWARD, Phase.BACKWARD)
    whole, along = (wire_bytes(parse_pipeline(t).run(deep(model))[0], at, {"tp"}, phases) for t in texts)
    assert whole > 0
    assert along == pytest.approx(whole, rel=1e-12)


@given(model=DENSE, dp=st.sampled_from([2, 3, 8]), tp=st.sampled_from([1, 2]))
def test_what_the_stages_of_zero_send(deep: Deep, lowered: Lowering, model: str, dp: int, tp: int) -> None:
    """Scattering gradients and gathering parameters is an all-reduce; gathering them twice is half as much again.

    The backward phase gathers what it reads: no table, and of GPT-2 none of the biases.
    """
    every = tuple(Phase)
    sent = []
    for zero in range(4):
        family = Family(zero=zero, grad_dtype=DType.BF16)
        plan = make_plan(num_gpus=tp * dp, tp=tp, seq_len=64, family=family)
        graph = lowered(model, family).graph
        layer = graph.sequence_once()[1]
        sent.append([wire_bytes(graph, plan, {"dp"}, every, name) for name in (layer, "")])
    layers, all_of_it = zip(*sent, strict=True)
    assert layers[:3] == pytest.approx([layers[0]] * 3, rel=1e-12)
    assert model == "tiny-gpt2" or layers[3] == pytest.approx(layers[0] * 1.5, rel=1e-12)
    assert all_of_it[1] == pytest.approx(all_of_it[0], rel=1e-12)
    assert all_of_it[0] < all_of_it[3] < all_of_it[0] * 1.5


@given(model=DENSE, dp=st.sampled_from([2, 4, 8]), factor=st.floats(0.01, 100.0))
def test_without_latency_zero_1_takes_as_long_as_plain_data_parallelism(
    machine: System, lowered: Lowering, model: str, dp: int, factor: float
) -> None:
    """On a flat network, scatter and gather together: what hides behind the backward phase is another matter."""
    (inner, _), stack = machine.levels, replace(machine.stack, collective_launch_s=0.0)
    level = replace(inner, size=None, latency_s=0.0, bytes_per_s=inner.bytes_per_s * factor)
    flat = replace(machine, levels=(level,), stack=stack)
    times = []
    for zero in (0, 1):
        family = Family(zero=zero, grad_dtype=DType.BF16)
        found = estimate_many(lowered(model, family), flat, [make_plan(num_gpus=dp, seq_len=64, family=family)])
        messages = found.timing.sums(lambda e: "sent" if e.message is not None and e.axis == "dp" else None)
        times.append(float(messages["sent"][0]))
    assert times[1] == pytest.approx(times[0], rel=1e-12)
