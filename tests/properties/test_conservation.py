"""Laws that hold for every plan of every family: nothing is lost, what is repeated is said, parts add up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.system import System
from slipstick.driver import Estimates, Lowered, estimate_many
from slipstick.ir.graph import Graph, Phase
from slipstick.ir.ops import op_def, work_of
from slipstick.ir.ops.base import OpClass
from slipstick.ir.plan import Family, Plan, make_plan

PRODUCTS = (OpClass.MATMUL, OpClass.ATTENTION, OpClass.EXPERTS)
Lowering = Callable[[str, Family], Lowered]


@dataclass(frozen=True, slots=True)
class Case:
    """A model and a plan."""

    model: str
    plan: Plan


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a legal plan: heads allow tp 2, experts ep 4, sixteen layers any depth."""
    model = draw(st.sampled_from(["tiny-llama", "tiny-gpt2", "tiny-mixtral"]))
    ep = draw(st.sampled_from([1, 2, 4])) if model == "tiny-mixtral" else 1
    cp_method = draw(st.sampled_from(["none", "allgather", "ring", "ulysses"]))
    family = Family(
        sp=draw(st.booleans()), zero=draw(st.integers(0, 3)), ep=ep > 1 or draw(st.booleans()),
        cp=cp_method, pp=draw(st.booleans()), recompute=draw(st.sampled_from(["none", "selective", "full"])),
    )  # fmt: skip
    tp = draw(st.sampled_from([1, 2]))
    cp = draw(st.sampled_from([1, 2])) if cp_method != "none" and tp == 1 else 1
    pp = draw(st.integers(1, 16)) if family.pp else 1
    vpp = draw(st.integers(1, 16 // pp)) if pp > 1 else 1
    dp, micro = ep * draw(st.sampled_from([1, 2, 8])), draw(st.integers(1, 3))
    batch = micro * dp * pp * draw(st.integers(1, 4))
    plan = make_plan(
        num_gpus=tp * cp * pp * dp, tp=tp, cp=cp, pp=pp, vpp=vpp, ep=ep, seq_len=64, micro_batch=micro,
        global_batch=batch, family=family,
    )  # fmt: skip
    return Case(model, plan)


def product_flops(graph: Graph, plan: Plan, every: bool) -> float:
    """FLOPs of matrix units of one pass; routers, which several ranks repeat, only with `every`."""
    env = {k: float(v) for k, v in plan.mesh.items()}
    env |= {"mbs": float(plan.micro_batch), "seq": float(plan.seq_len), "batch": float(plan.micro_batch * plan.dp)}
    found = 0.0
    for region in graph.regions:
        for node in region.nodes:
            repeated = node.phase is Phase.RECOMPUTE or (not every and node.scope.endswith(".mlp.gate"))
            if op_def(node.op).kind in PRODUCTS and not repeated:
                flops = work_of(region, node).tensor_flops.evaluate(env)
                found += float(np.asarray(flops)) * graph.counts[region.name]
    return found


def priced(lowered: Lowered, system: System, plan: Plan) -> Estimates:
    return estimate_many(lowered, system, [plan])


@given(case=cases())
def test_all_ranks_together_do_the_work_of_the_model(
    deep: Callable[[str], Graph], lowered: Lowering, case: Case
) -> None:
    plan = case.plan
    local = product_flops(lowered(case.model, plan.family).graph, plan, every=False)
    whole = product_flops(deep(case.model), plan, every=False)
    assert local * plan.tp * plan.cp * plan.dp == pytest.approx(whole, rel=1e-9)


@given(case=cases())
def test_parts_add_up_and_none_is_negative(made_up: System, lowered: Lowering, case: Case) -> None:
    found = priced(lowered(case.model, case.plan.family), made_up, case.plan)
    parts = [float(v[0]) for v in found.step.breakdown.values()]
    assert sum(parts) == pytest.approx(float(found.metrics["step_time_s"][0]), rel=1e-12)
    assert min(parts) >= 0.0
    held = [float(v[0]) for v in found.memory_bytes.values()]
    assert sum(held) == pytest.approx(float(found.metrics["peak_mem_bytes"][0]), rel=1e-12)
    assert min(held) >= 0.0


@given(case=cases())
def test_axes_of_degree_one_change_nothing(made_up: System, lowered: Lowering, case: Case) -> None:
    """Every structure with all degrees 1 is the plain plan: same time, same memory.

    Temporaries apart: the result of a collective counts as a tensor of its own, also in a group of one. Ulysses keeps
    the result of attention on both sides of such an exchange.
    """
    # Experts that are dealt out run as three kernels instead of one, whatever the degree.
    family = replace(case.plan.family, zero=0, ep=False)
    plain = Family(recompute=family.recompute)
    plan = make_plan(num_gpus=1, seq_len=64, micro_batch=case.plan.micro_batch, family=family)
    structured = priced(lowered(case.model, family), made_up, plan)
    simple = priced(lowered(case.model, plain), made_up, replace(plan, family=plain))
    kept = () if family.cp == "ulysses" else ("activations",)
    for part in ("weights", "gradients", "optimizer", *kept):
        assert float(structured.memory_bytes[part][0]) == float(simple.memory_bytes[part][0]), part
    for name in ("step_time_s", "mfu", "hfu"):
        assert float(structured.metrics[name][0]) == pytest.approx(float(simple.metrics[name][0]), rel=1e-9), name


@given(case=cases(), more=st.sampled_from(["tp", "dp", "pp"]))
def test_more_ranks_never_hold_more_states(made_up: System, lowered: Lowering, case: Case, more: str) -> None:
    family = replace(case.plan.family, pp=True, ep=False, cp="none")
    base = {"tp": 1, "pp": 1, "dp": 1}
    degrees = {**base, more: 2}
    plans = [
        make_plan(
            num_gpus=d["tp"] * d["pp"] * d["dp"], tp=d["tp"], pp=d["pp"], seq_len=64, family=family, global_batch=8
        )
        for d in (base, degrees)
    ]
    found = estimate_many(lowered(case.model, family), made_up, plans)
    for part in ("weights", "gradients", "optimizer"):
        few, many = found.memory_bytes[part]
        assert many <= few
