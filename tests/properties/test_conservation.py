"""Laws that hold for every plan of every family: nothing is lost, what is repeated is said, parts add up."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.machine.system import System
from slipstick.driver.estimate import Estimates, Lowered, estimate_many
from slipstick.explore.plans.lowerings import with_stages
from slipstick.ir.graph import Graph, Node, Phase, Region, Role, Value
from slipstick.ir.ops import op_def, work_of
from slipstick.ir.ops.base import OpClass
from slipstick.ir.placement import REPLICATE
from slipstick.ir.plan import Family, Plan, make_plan
from slipstick.ir.plan.precision import RECIPES, counted_dtype
from slipstick.ir.schedules.registry import USUAL
from slipstick.ir.sizes.expr import Expr
from slipstick.passes.manager import parse_pipeline

PRODUCTS = (OpClass.MATMUL, OpClass.ATTENTION, OpClass.EXPERTS)
HEADS = {"tiny-llama": 2, "tiny-gpt2": 4, "tiny-mixtral": 2}
Case = tuple[str, Plan]
Cases = st.SearchStrategy[Case]
Lowering = Callable[[str, Family], Lowered]


def sizes(plan: Plan) -> dict[str, float]:
    """What each symbol is, with experts as full as the mean."""
    env = {k: float(v) for k, v in plan.mesh.items()} | {"cf": 1.0, "imb": 1.0}
    return env | {"mbs": plan.micro_batch, "seq": plan.seq_len, "batch": float(plan.micro_batch * plan.dp)}


def at(size: Expr, plan: Plan) -> float:
    return float(np.asarray(size.evaluate(sizes(plan))))


def copies(graph: Graph, plan: Plan, values: list[Value]) -> int:
    """Ranks that have the same: those of every axis over which all these values are whole."""
    axes = [a for a in graph.axes if all(v.placement(a) == REPLICATE for v in values)]
    return math.prod(plan.mesh[a] for a in axes)


def head_copies(name: str, model: str, plan: Plan) -> int:
    """Ranks of a group that hold the same key-value head."""
    shared = ".k_proj" in name or ".v_proj" in name
    return max(1, plan.tp // HEADS[model]) if shared else 1


def products(graph: Graph, *phases: Phase) -> list[tuple[Region, Node]]:
    nodes = [(r, n) for r in graph.regions for n in r.nodes if n.phase in phases]
    return [(r, n) for r, n in nodes if op_def(n.op).kind in PRODUCTS]


def total_flops(graph: Graph, found: list[tuple[Region, Node]], plan: Plan) -> float:
    return sum(at(work_of(r, n).tensor_flops, plan) * graph.counts[r.name] for r, n in found)


def priced(lowered: Lowered, system: System, plan: Plan) -> Estimates:
    return estimate_many(lowered, system, [plan])


@settings(max_examples=40)
@given(data=st.data())
def test_all_ranks_together_do_the_work_of_the_model(
    deep: Callable[[str], Graph], lowered: Lowering, cases: Cases, data: st.DataObject
) -> None:
    """Each product as often as its placements say; whole on several ranks are routers and a head nobody split."""
    model, plan = data.draw(cases)
    source, graph = deep(model), lowered(model, plan.family).graph
    source = parse_pipeline("unfuse").run(source)[0] if plan.family.attention == "unfused" else source
    model_phases = (Phase.FORWARD, Phase.BACKWARD)
    found, ranks = 0.0, plan.tp * plan.cp * plan.dp
    for region, node in products(graph, *model_phases):
        same = copies(graph, plan, [region.by_id[i] for i in (*node.inputs, *node.outputs)])
        assert same == 1 or node.scope.endswith((".mlp.gate", "lm_head", "wte")), node.scope
        flops = total_flops(graph, [(region, node)], plan)
        found += flops * ranks / same / head_copies(node.scope, model, plan)
    assert found == pytest.approx(total_flops(source, products(source, *model_phases), plan), rel=1e-9)


@settings(max_examples=40)
@given(data=st.data())
def test_recomputed_flops_are_counted(machine: System, lowered: Lowering, cases: Cases, data: st.DataObject) -> None:
    """HFU x peak x time is the work of the model and what ranks do again, which is forward work."""
    model, plan = data.draw(cases)
    done = lowered(model, plan.family)
    found = priced(done, machine, plan).metrics
    peak = float(machine.chip.matmul_flop_per_s(counted_dtype(plan.family, "bf16"))) * plan.num_gpus
    extra = float((found["hfu"] - found["mfu"])[0]) * peak * float(found["step_time_s"][0])
    again = total_flops(done.graph, products(done.graph, Phase.RECOMPUTE), plan)
    if not plan.family.capacity:
        assert extra == pytest.approx(
            again * plan.num_micro_batches * plan.num_gpus / plan.pp, rel=1e-6, abs=peak * 1e-9
        )
    assert again <= total_flops(done.graph, products(done.graph, Phase.FORWARD), plan)


@settings(max_examples=40)
@given(data=st.data())
def test_all_ranks_together_hold_the_parameters_of_the_model(
    machine: System, deep: Callable[[str], Graph], lowered: Lowering, cases: Cases, data: st.DataObject
) -> None:
    """Each parameter as often as its placements say, and the weights of the answer are just these."""
    model, plan = data.draw(cases)
    graph, ranks = lowered(model, plan.family).graph, plan.tp * plan.cp * plan.dp
    whole = {v.name: at(v.type.num_bytes, plan) for r in deep(model).regions for v in r.of_role(Role.PARAM)}
    held: dict[tuple[str, str], float] = {}
    for region in graph.regions:
        for v in region.of_role(Role.PARAM):
            same = copies(graph, plan, [v]) * head_copies(v.name, model, plan)
            local = at(v.type.num_bytes, plan)
            assert local * ranks == pytest.approx(whole[v.name] * same, rel=1e-9), v.name
            # A layer has its own; a table that both ends read is there once.
            held[v.name, region.name if "*" in v.name else ""] = local * (
                graph.counts[region.name] if "*" in v.name else 1
            )
    assert {name for name, _ in held} == whole.keys()
    if plan.pp == 1 and plan.family.reshard == "layer" and "params" not in plan.family.offload:
        found = priced(lowered(model, plan.family), machine, plan).memory_bytes["weights"]
        assert float(found[0]) == pytest.approx(sum(held.values()), rel=1e-9)


@settings(max_examples=40)
@given(data=st.data())
def test_sharded_states_are_held_once_a_group(
    machine: System, deep: Callable[[str], Graph], lowered: Lowering, cases: Cases, data: st.DataObject
) -> None:
    """With ZeRO all data-parallel ranks of a shard group hold 12 bytes of states a parameter together.

    Tensor-parallel ranks hold what is whole on all of them each, so that only tp = 1 has one copy.
    """
    model, plan = data.draw(cases)
    family = replace(plan.family, zero=max(plan.family.zero, 1), offload=(), pp=False, pp_layout="auto")
    flat = plan.under(
        family, {"pp": 1, "vpp": 1, "tp": 1, "ep": plan.inner_ep, "etp": 1, "num_gpus": plan.cp * plan.dp}
    )
    found = priced(lowered(model, family), machine, flat).memory_bytes["optimizer"]
    source = deep(model)
    params = {v.name: at(v.type.numel, flat) * (source.counts[r.name] if "*" in v.name else 1)
              for r in source.regions for v in r.of_role(Role.PARAM)}  # fmt: skip
    replicas = flat.mesh["dp"] if family.hsdp else 1
    assert float(found[0]) * flat.num_gpus == pytest.approx(12 * sum(params.values()) * replicas, rel=1e-9)


@settings(max_examples=40)
@given(data=st.data())
def test_parts_add_up_and_none_is_negative(
    machine: System, lowered: Lowering, cases: Cases, data: st.DataObject
) -> None:
    model, plan = data.draw(cases)
    found = priced(lowered(model, plan.family), machine, plan)
    parts = [float(v[0]) for v in found.step.breakdown.values()]
    assert sum(parts) == pytest.approx(float(found.metrics["step_time_s"][0]), rel=1e-12)
    held = [float(v[0]) for v in found.memory_bytes.values()]
    assert sum(held) == pytest.approx(float(found.metrics["peak_mem_bytes"][0]), rel=1e-12)
    hidden = [float(v[0]) for v in found.step.hidden_comm_s.values()]
    # A bubble is a difference of sums, and of equal stages a rounding error.
    assert min(parts) >= -1e-12 * sum(parts)
    assert min([*held, *hidden]) >= 0.0


@settings(max_examples=40)
@given(data=st.data())
def test_axes_of_degree_one_change_nothing(
    machine: System, lowered: Lowering, cases: Cases, data: st.DataObject
) -> None:
    """Every structure with all degrees 1 is the plain plan: same time, same memory.

    Temporaries apart: the result of a collective counts as a tensor of its own, also in a group of one. Ulysses keeps
    the result of attention on both sides of such an exchange, and the policy `ops` the results of all messages.
    Behind a gather a copy in low precision is turned by a kernel of its own, and one whose scale needs a maximum
    first reads what was gathered once more. Between a norm that is run again and experts a gather keeps its result;
    beside whole experts DTensor's plan adds gradients of both sides of a gather apart.
    """
    model, plan = data.draw(cases)
    # Experts that are distributed, or hold a fixed number of rows, run as three kernels instead of one.
    own = replace(
        plan.family, ep=False, capacity=False, imbalance=False, dispatch_dtype="same", routing_nodes=0,
        zero=0, hsdp=False, reshard="layer", reduce_dtype=None, offload=(), pp_layout="auto",
    )  # fmt: skip
    own = replace(own, recompute="none") if own.recompute == "ops" else own
    own = replace(own, etp=True) if own.sp and own.tp_plan == "dtensor-naive" else own
    gathered = own.sp and model == "tiny-mixtral" and "layernorm" in own.recompute_modules
    own = replace(own, recompute_modules=()) if gathered else own
    recipe = RECIPES.get(own.precision)
    apart = own.sp and recipe is not None and (recipe.turns or recipe.reads != (1, 1, 1))
    own = replace(own, precision="none", fp8_param_gather=False) if apart else own
    plain = Family(
        recompute=own.recompute, recompute_modules=own.recompute_modules, recompute_layers=own.recompute_layers,
        recompute_every=own.recompute_every, early_stop=own.early_stop, kernels=own.kernels, attention=own.attention,
        grad_dtype=own.grad_dtype, fused=own.fused, precision=own.precision, fp8_param_gather=own.fp8_param_gather,
    )  # fmt: skip
    one = make_plan(num_gpus=1, seq_len=64, micro_batch=plan.micro_batch, family=own)
    structured = priced(lowered(model, own), machine, one)
    simple = priced(lowered(model, plain), machine, one.under(plain))
    usp = own.cp == "ulysses" or own.usp
    for part in ("weights", "gradients", "optimizer", *(() if usp else ("activations",))):
        assert float(structured.memory_bytes[part][0]) == float(simple.memory_bytes[part][0]), part
    for name in ("step_time_s", "mfu", "hfu"):
        assert float(structured.metrics[name][0]) == pytest.approx(float(simple.metrics[name][0]), rel=1e-9), name


@settings(max_examples=40)
@given(data=st.data())
def test_a_plan_of_one_stage_is_the_same_to_the_last_bit_on_a_graph_that_has_stages(
    machine: System, lowered: Lowering, cases: Cases, data: st.DataObject
) -> None:
    """A search prices plans of one stage on graphs with stages (`with_stages`): what stages exchange, none sends."""
    model, plan = data.draw(cases)
    family = replace(plan.family, pp=True, schedule=data.draw(st.sampled_from(["1f1b", "gpipe"])), pp_layout="auto")
    alone = replace(family, pp=False, schedule=USUAL, scatter_p2p=False)
    if with_stages({family, alone}) != {alone: replace(family, schedule=USUAL)}:
        assert isinstance(family.recomputed_layers, tuple)
        return
    one = plan.under(alone, {"pp": 1, "vpp": 1, "num_gpus": plan.num_gpus // plan.pp})
    found, staged = (priced(lowered(model, f), machine, one.under(f)) for f in (alone, replace(family, schedule=USUAL)))
    assert {n: float(v[0]) for n, v in found.metrics.items()} == {n: float(v[0]) for n, v in staged.metrics.items()}
    held = {part: float(v[0]) for part, v in staged.memory_bytes.items()}
    assert held == {**dict.fromkeys(held, 0.0), **{part: float(v[0]) for part, v in found.memory_bytes.items()}}


@settings(max_examples=40)
@given(data=st.data(), more=st.sampled_from(["tp", "dp", "pp"]))
def test_more_ranks_never_hold_more_states(
    machine: System, lowered: Lowering, cases: Cases, data: st.DataObject, more: str
) -> None:
    model, plan = data.draw(cases)
    family = replace(
        plan.family, tp=True, pp=True, pp_layout="auto", recompute_layers=0, recompute_every=1, cp="none", usp=False,
        ep=False, etp=True, imbalance=False, capacity=False, routing_nodes=0, dispatch_dtype="same",
    )  # fmt: skip
    base = {"tp": 1, "pp": 1, "dp": 1}
    plans = [
        make_plan(
            num_gpus=d["tp"] * d["pp"] * d["dp"], tp=d["tp"], pp=d["pp"], seq_len=64, family=family, global_batch=8
        )
        for d in (base, {**base, more: 2})
    ]
    found = estimate_many(lowered(model, family), machine, plans)
    for part in ("weights", "gradients", "optimizer"):
        few, many = found.memory_bytes[part]
        assert many <= few
