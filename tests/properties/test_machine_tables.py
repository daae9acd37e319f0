"""A machine of a table is the machine alone: any plan, any numbers of chip, host and network as columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.system import System
from slipstick.backends.machine.system_table import machine_at, machine_numbers, stacked, tabled
from slipstick.backends.network.topology.level import Dragonfly, Edge, NetworkLevel
from slipstick.driver.estimate import Estimate, Lowered, MachineEstimates, estimate, evaluate_machines, lower
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.plan import Family, Plan, make_plan

Traced = Callable[[str], Graph]
Lowering = Callable[[str, Family], Lowered]
Cases = st.SearchStrategy[tuple[str, Plan]]
NEAR = 1e-12
NUM = 3
CATALOGUE = ("dgx-h100", "mi300x-platform", "tpu-v5p-pod", "trn2-ultraserver", "xeon-server")
SQUARE = tuple(Edge(str(k), str((k + 1) % 4), 25e9) for k in range(4))
FAT = NetworkLevel("fat", None, 25e9, 5e-6, "fat_tree", 0.7, oversubscription=2.0)
RAILS = NetworkLevel("rails", None, 50e9, 5e-6, "rail_optimised", algorithm="best")
NETWORKS: tuple[tuple[NetworkLevel, ...], ...] = (
    (NetworkLevel("square", 4, 50e9, 1e-6, "graph", 0.9, edges=SQUARE), RAILS),
    (
        NetworkLevel("switch", 4, 450e9, 1e-6, "switch", 0.8, reduction_latency_s=2e-6, algorithm="best"),
        NetworkLevel("groups", 64, 25e9, 2e-6, "dragonfly", 0.9, dragonfly=Dragonfly(2, 2, 4, 3, 10e9)),
        FAT,
    ),
    (NetworkLevel("cube", 8, 1e11, 1e-6, "hypercube", 0.9, hop_latency_s=2e-7, algorithm="concurrent_dimensions"), FAT),
    (NetworkLevel("mesh", 4, 100e9, 1e-6, "mesh", dims=(2, 2), algorithm="pipelined_hierarchical"), RAILS),
)  # fmt: skip
SERVING = (
    make_plan(num_gpus=2, tp=2, seq_len=1, kv_len=64, micro_batch=3, family=Family(workload=Workload.DECODE)),
    make_plan(num_gpus=1, seq_len=1, kv_len=64, family=Family(workload=Workload.DECODE)),
    make_plan(num_gpus=4, tp=2, pp=2, seq_len=1, kv_len=64, family=Family(workload=Workload.DECODE, pp=True)),
)  # fmt: skip


def answers(found: Estimate) -> dict[str, float]:
    return {**found.metrics, **found.breakdown_s, **found.memory_bytes, "fits": float(found.fits)}


def row_of(found: MachineEstimates, row: int) -> dict[str, float]:
    columns = {**found.metrics, **found.breakdown_s, **found.memory_bytes, "fits": found.fits}
    return {name: float(column[row]) for name, column in columns.items()}


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a table is made of: a machine of the catalogue or a network, its power limit, and the columns."""

    name: str
    network: int | None
    limit: float | None
    columns: Mapping[str, Sequence[float]]

    def one(self, machine: System) -> System:
        found = machine if self.network is None else replace(machine, levels=NETWORKS[self.network])
        found = load_system(self.name) if self.name else found
        limit_w = None if self.limit is None else self.limit * float(found.chip.power_w)
        return replace(found, chip=replace(found.chip, power_limit_w=limit_w))

    def table(self, machine: System) -> System:
        one = self.one(machine)
        numbers = machine_numbers(one)
        return tabled(one, {path: np.asarray(c) * numbers[path] for path, c in self.columns.items()})


@st.composite
def drawn(draw: st.DrawFn, machine: System) -> Drawn:
    name = draw(st.sampled_from(["", *CATALOGUE]))
    network = draw(st.sampled_from([None, *range(len(NETWORKS))]))
    one = Drawn(name, network, draw(st.sampled_from([None, 0.8])), {})
    paths = draw(st.lists(st.sampled_from(sorted(machine_numbers(one.one(machine)))), min_size=1, unique=True))
    return replace(one, columns={path: draw(factors(path)) for path in paths})


def factors(path: str) -> st.SearchStrategy[list[float]]:
    return st.lists(
        st.floats(0.3, 1.0 if path.endswith(("efficiency", "contention")) else 3.0), min_size=NUM, max_size=NUM
    )


def possible(family: Family, table: System) -> Family:
    """The family without what the machines have no units or no host for."""
    has = table.chip.peak_flop_per_s
    if table.host is None or table.chip.host_link is None:
        family = replace(family, offload=())
    if has.fp8 is None or has.fp4 is None:
        family = replace(family, precision="none", fp8_param_gather=False)
    return family


def check(graph: Graph, done: Lowered, plan: Plan, table: System) -> None:
    found = evaluate_machines(done, table, plan)
    for row in range(NUM):
        alone = estimate(graph, machine_at(table, row), plan, lowered=done)
        got = row_of(found, row)
        wrong = {k: (got[k], v) for k, v in answers(alone).items() if got[k] != pytest.approx(v, rel=NEAR, abs=0.0)}
        assert not wrong


@settings(max_examples=60, phases=[Phase.explicit, Phase.generate])
@given(data=st.data())
def test_a_machine_of_a_table_is_the_machine_alone(
    machine: System, lowered: Lowering, cases: Cases, data: st.DataObject
) -> None:
    model, plan = data.draw(cases)
    table = data.draw(drawn(machine)).table(machine)
    family = possible(plan.family, table)
    done = lowered(model, family)
    check(done.source, done, plan.under(family), table)


@settings(max_examples=30, phases=[Phase.explicit, Phase.generate])
@given(plan=st.sampled_from(SERVING), data=st.data())
def test_it_is_so_of_a_decode_step(machine: System, traced: Traced, plan: Plan, data: st.DataObject) -> None:
    graph = traced("tiny-llama.decode")
    check(graph, lower(graph, plan.family), plan, data.draw(drawn(machine)).table(machine))


@settings(max_examples=20)
@given(data=st.data())
def test_machines_put_together_are_the_table_they_came_from(machine: System, data: st.DataObject) -> None:
    table = data.draw(drawn(machine)).table(machine)
    alone = [machine_at(table, row) for row in range(NUM)]
    again = stacked(alone)
    assert [machine_at(again, row) for row in range(NUM)] == alone
