"""Tables of plans: a plan's answer is the same to the last bit alone, among any others, and screened before or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.system import System
from slipstick.driver.estimate import Estimates, Lowered, evaluate, lower, screen
from slipstick.ir.graph import Graph, Run
from slipstick.ir.plan import Family, PlanTable

Array = NDArray[np.float64]
NUM = 400
DENSE = [
    Family(sp=True),
    Family(sp=True, pp=True, zero=1, recompute="selective", cp="ring"),
    Family(sp=True, pp=True, zero=1, precision="fp8-delayed", recompute="full", recompute_layers=1),
    Family(pp=True, zero=3, cp="allgather", schedule="gpipe"),
    Family(sp=True, pp=True, zero=1, schedule="zb-h1"),
    Family(sp=True, pp=True, zero=2, schedule="zb-v"),
    Family(sp=True, pp=True, zero=1, pp_layout="balanced", hsdp=True, offload=("optimizer",)),
]
MOE = [
    Family(sp=True, pp=True, zero=1, ep=True),
    Family(sp=True, pp=True, zero=2, ep=True, schedule="dualpipe", precision="fp8-block", dispatch_dtype="fp8"),
    Family(sp=True, pp=True, zero=1, ep=True, cp="ring", imbalance=True),
]
CASES = [("tiny-llama.train", f) for f in DENSE] + [("tiny-mixtral.train", f) for f in MOE]


@pytest.fixture(scope="module")
def machine() -> System:
    return load_system("dgx-h100")


@pytest.fixture(scope="module")
def deep(traced: Callable[[str], Graph]) -> Callable[[str], Graph]:
    """A small model with 24 layers."""

    def found(name: str) -> Graph:
        graph = traced(name)
        return replace(graph, schedule=tuple(Run(r.regions, 24 if r.count > 1 else 1) for r in graph.schedule))

    return found


def random_table(family: Family, seed: int) -> PlanTable:
    """Degrees that go together as a plan's must; whether they divide the model is left open."""
    draw = np.random.default_rng(seed)

    def power(most: int) -> Array:
        return np.exp2(draw.integers(0, most + 1, NUM).astype(np.float64))

    ones, runs_weights_apart = np.ones(NUM), family.schedule in ("zb-h1", "zb-v", "dualpipe")
    tp, cp = power(2), power(2) if family.cp != "none" else ones
    pp = draw.choice([2.0, 4.0, 6.0] if runs_weights_apart else [1.0, 2.0, 3.0, 5.0, 8.0], NUM) if family.pp else ones
    ep, shard = power(2) if family.ep else ones, power(1) if family.hsdp else ones
    vpp = np.where(
        (pp > 1.0) & (family.schedule == "1f1b"), draw.integers(1, 5, NUM), 1.0 + (family.schedule == "zb-v")
    )
    micro = np.where(vpp > 1.0, pp * draw.integers(1, 9, NUM), 2.0 * pp + 2.0 * draw.integers(0, 20, NUM))
    micro = np.where(
        (draw.random(NUM) < 0.3) & (vpp == 1.0) & (not runs_weights_apart), draw.integers(1, 9, NUM), micro
    )
    dp = ep * shard * power(3)
    imbalance = 1.0 + draw.random(NUM) if family.imbalance else None
    return PlanTable(
        family, tp * cp * pp * dp, tp, dp, power(2), micro, draw.choice([64.0, 256.0], NUM), np.zeros(NUM), cp=cp,
        ep=ep, pp=pp, vpp=vpp, cp_ulysses=ones, dp_shard=shard, expert_imbalance=imbalance,
    )  # fmt: skip


def columns(table: Estimates) -> Mapping[str, Array]:
    groups = {"": table.metrics, "time ": table.step.breakdown, "hidden ": table.step.hidden_comm_s,
              "bytes ": table.memory_bytes}  # fmt: skip
    return {f"{group}{name}": column for group, found in groups.items() for name, column in found.items()}


@pytest.mark.parametrize(("model", "family"), CASES, ids=[f"{m.split('.')[0]}-{k}" for k, (m, _) in enumerate(CASES)])
def test_a_plan_is_answered_as_if_it_were_alone(
    deep: Callable[[str], Graph], machine: System, model: str, family: Family
) -> None:
    lowered = lower(deep(model), family)
    plans = random_table(family, len(model))
    screened = screen(lowered, machine, plans)
    ready = screened.fitting()
    assert ready is not None
    rows = np.flatnonzero(screened.fits)
    assert len(rows) > 60
    together = columns(evaluate(lowered, machine, ready.plans, prepared=ready))
    assert_equal(together, columns(evaluate(lowered, machine, plans.part(rows))), np.arange(len(rows)))
    for k in range(0, len(rows), 8):
        alone = columns(evaluate(lowered, machine, plans.part(rows[k : k + 1])))
        assert_equal(alone, together, np.array([k]))


def assert_equal(some: Mapping[str, Array], table: Mapping[str, Array], rows: NDArray[np.intp]) -> None:
    """Parts that only other plans of the table have are zero."""
    for name, column in table.items():
        assert np.array_equal(some.get(name, np.zeros(len(rows))), column[rows]), name


def test_screened_plans_keep_their_order_and_leave_out_what_does_not_fit(
    deep: Callable[[str], Graph], machine: System
) -> None:
    small = replace(machine, chip=replace(machine.chip, hbm_bytes=machine.stack.memory_reserve_bytes * 1.001))
    lowered = lower(deep("tiny-llama.train"), DENSE[1])
    plans = random_table(DENSE[1], 5)
    screened = screen(lowered, small, plans)
    ready = screened.fitting()
    assert ready is not None
    assert 0 < len(ready.plans) < screened.legal.sum() < NUM
    assert list(ready.plans.seq_len) == list(plans.seq_len[screened.fits])
    assert list(ready.peak_mem_bytes) == list(screened.peak_mem_bytes[screened.fits])


def test_nothing_is_ready_where_nothing_is_legal_or_fits(deep: Callable[[str], Graph], machine: System) -> None:
    lowered: Lowered = lower(deep("tiny-llama.train"), DENSE[1])
    plans = random_table(DENSE[1], 5)
    none = replace(machine, chip=replace(machine.chip, hbm_bytes=1.0))
    assert screen(lowered, none, plans).fitting() is None
    illegal = replace(plans, tp=np.full(NUM, 7.0))
    assert screen(lowered, machine, illegal).fitting() is None
