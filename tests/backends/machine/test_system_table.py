"""Tables of machines: what may be a column, what a machine of a table is, and what cannot share a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from slipstick.backends.machine.chip import HostLink, HostMemory
from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.system import System
from slipstick.backends.machine.system_table import (
    machine_at,
    machine_numbers,
    num_machines,
    some_machines,
    stacked,
    tabled,
)
from slipstick.backends.network.topology.level import Edge, NetworkLevel
from slipstick.backends.pricing.timing import annotate
from slipstick.driver.estimate import MACHINES, evaluate, evaluate_machines, lower
from slipstick.ir.errors import PlanError, UnknownNameError, UsageError
from slipstick.ir.graph import Graph
from slipstick.ir.plan import Family, PlanTable, make_plan

Traced = Callable[[str], Graph]
PLAN = make_plan(num_gpus=1, seq_len=2048, micro_batch=8, global_batch=32, family=Family())
BANDWIDTH = "chip.memory.hbm.bandwidth"


def test_the_numbers_go_by_the_paths_of_set(made_up: System) -> None:
    chip = replace(made_up.chip, host_link=HostLink(50e9, 0.8, 1e-5))
    found = machine_numbers(replace(made_up, chip=chip, host=HostMemory(2**40, 400e9, 0.9)))
    assert found == {
        "chip.matmul.bf16": 100e12, "chip.matmul.fp16": 100e12, "chip.matmul.fp32": 10e12, "chip.vector.fp32": 8e12,
        "chip.num_sms": 100, "chip.clock": 1e9, "chip.memory.hbm.capacity": 64 * 2**30, BANDWIDTH: 1e12,
        "chip.memory.l2.capacity": 2**25, "chip.memory.l2.partitions": 1, "chip.power": 500.0,
        "chip.host_link.bandwidth": 50e9, "chip.host_link.latency": 1e-5, "chip.host_link.efficiency": 0.8,
        "node.host_memory.bandwidth": 400e9, "node.host_memory.efficiency": 0.9,
        "network.inner.bandwidth": 100e9, "network.inner.latency": 1e-6, "network.inner.efficiency": 0.5,
        "network.inner.oversubscription": 1.0, "network.outer.bandwidth": 10e9, "network.outer.latency": 4e-6,
        "network.outer.efficiency": 0.8, "network.outer.oversubscription": 1.0,
        "network.inner.contention": 1.0, "network.outer.contention": 1.0,
    }  # fmt: skip


def test_a_column_moves_one_number_as_set_does() -> None:
    table = tabled(load_system("dgx-h100"), {BANDWIDTH: [4.8e12, 2e12], "network.nvlink.latency": [1e-6, 2e-6]})
    given = [f"{BANDWIDTH}=4.8TB/s", "network.nvlink.latency=1us"]
    assert replace(machine_at(table, 0), sources=()) == replace(load_system("dgx-h100", given), sources=())
    assert machine_at(table, 1).chip.hbm_bytes_per_s == 2e12


def test_what_is_left_open_may_be_a_column_too() -> None:
    table = tabled(load_system("dgx-h100"), {"chip.power_limit": [500.0, 700.0]})
    assert num_machines(table) == 2
    assert machine_at(table, 0).chip == load_system("dgx-h100", ["chip.power_limit=500 W"]).chip


def test_columns_are_added_to_those_there_are(made_up: System) -> None:
    table = tabled(tabled(made_up, {"chip.clock": [1e9, 2e9]}), {BANDWIDTH: [1e12, 3e12]})
    assert machine_at(table, 1).chip.clock_hz == 2e9
    assert machine_at(table, 1).chip.hbm_bytes_per_s == 3e12


def test_a_part_of_a_table_and_a_single_machine(made_up: System) -> None:
    table = tabled(made_up, {"chip.clock": [1e9, 2e9, 3e9], "network.outer.bandwidth": [1e9, 2e9, 4e9]})
    some = some_machines(table, slice(1, 3))
    assert num_machines(some) == 2
    assert machine_at(some, 1) == machine_at(table, 2)
    assert num_machines(made_up) is None
    assert some_machines(made_up, slice(1, 3)) == made_up
    assert machine_at(made_up, 5) == made_up


def test_a_memory_bound_step_takes_the_inverse_of_the_bandwidth(traced: Traced, made_up: System) -> None:
    """Of what waits for memory alone, T = bytes / (0.8 BW) + launch."""
    done = lower(traced("tiny-llama.train"), PLAN.family)
    table = tabled(made_up, {BANDWIDTH: [1e9, 2e9]})
    found = annotate(done.program, table, PlanTable.of([PLAN, PLAN]))
    for priced in (p for p in found.priced if p.messages is None):
        slow, fast = priced.time_s[:, priced.point].T - 2e-6
        assert slow.all()
        assert fast == pytest.approx(slow / 2, rel=1e-9)


def test_a_machine_is_fast_enough_or_large_enough_by_itself(traced: Traced, made_up: System) -> None:
    done = lower(traced("tiny-llama.train"), PLAN.family)
    need = evaluate(done, made_up, PlanTable.of([PLAN])).metrics["peak_mem_bytes"][0]
    found = evaluate_machines(done, tabled(made_up, {"chip.memory.hbm.capacity": [need, need - 1.0]}), PLAN)
    assert found.fits.tolist() == [True, False]
    assert found.metrics["step_time_s"][0] == found.metrics["step_time_s"][1]
    assert sum(found.memory_bytes.values()) == pytest.approx(np.full(2, need))


def test_a_single_machine_is_a_table_of_one(traced: Traced, made_up: System) -> None:
    done = lower(traced("tiny-llama.train"), PLAN.family)
    alone = evaluate(done, made_up, PlanTable.of([PLAN])).metrics
    for system in (made_up, tabled(made_up, {"chip.clock": [1e9]})):
        assert evaluate_machines(done, system, PLAN).metrics == alone


def test_long_tables_are_worked_on_in_parts(traced: Traced, made_up: System) -> None:
    done, num = lower(traced("tiny-llama.train"), PLAN.family), MACHINES + 3
    table = tabled(made_up, {BANDWIDTH: np.linspace(1e12, 8e12, num)})
    found = evaluate_machines(done, table, PLAN)
    for row in (0, MACHINES - 1, MACHINES, num - 1):
        alone = evaluate(done, machine_at(table, row), PlanTable.of([PLAN]))
        assert found.metrics["step_time_s"][row] == alone.metrics["step_time_s"][0]
        assert found.breakdown_s["compute.elementwise"][row] == alone.step.breakdown["compute.elementwise"][0]


def test_plans_and_machines_go_row_by_row(traced: Traced, made_up: System) -> None:
    family = replace(PLAN.family, tp=True)
    done = lower(traced("tiny-llama.train"), family)
    other = make_plan(num_gpus=4, tp=2, seq_len=1024, micro_batch=4, global_batch=32, family=family)
    table = tabled(made_up, {BANDWIDTH: [1e12, 2e12, 3e12], "network.inner.bandwidth": [1e11, 2e11, 3e11]})
    plans = [PLAN, other, PLAN]
    found = evaluate(done, table, PlanTable.of(plans)).metrics["step_time_s"]
    for row, plan in enumerate(plans):
        assert found[row] == evaluate(done, machine_at(table, row), PlanTable.of([plan])).metrics["step_time_s"][0]
    with pytest.raises(UsageError, match="a table of 3 machines needs as many plans, one a row, not 2"):
        evaluate(done, table, PlanTable.of(plans[:2]))


def test_a_plan_that_is_not_legal_is_refused(traced: Traced, made_up: System) -> None:
    done = lower(traced("tiny-llama.train"), Family())
    bad = make_plan(num_gpus=3, tp=3, seq_len=2048, family=Family())
    with pytest.raises(PlanError, match="tp"):
        evaluate_machines(done, tabled(made_up, {BANDWIDTH: [1e12, 2e12]}), bad)


@pytest.mark.parametrize(
    ("path", "column", "message"),
    [
        (BANDWIDTH, [1e12, -1.0], "machine 1 is not allowed; it must be above 0"),
        (BANDWIDTH, [np.nan], "nan of machine 0"),
        ("chip.clock", [np.inf], "finite"),
        ("network.outer.latency", [0.0, -1e-6], "0 or more"),
        ("network.outer.efficiency", [0.5, 1.5], "at most 1"),
        ("chip.clock", [[1e9]], "one number a machine"),
        ("chip.clock", [], "one number a machine"),
        ("chip.clock", 1e9, "one number a machine"),
    ],
)
def test_numbers_that_no_machine_has_are_refused(made_up: System, path: str, column: list[float], message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        tabled(made_up, {path: column})
    assert path in str(raised.value)


def test_columns_of_several_lengths_are_refused(made_up: System) -> None:
    with pytest.raises(UsageError, match=r"chip\.clock has 2, chip\.memory\.hbm\.bandwidth has 3"):
        tabled(made_up, {"chip.clock": [1e9, 2e9], BANDWIDTH: [1e12, 2e12, 3e12]})


@pytest.mark.parametrize(
    "path", ["chip.clok", "chip.matmul.fp8", "network.inner.reduction_latency", "network.inner.size", "node.size"]
)
def test_a_path_without_a_number_is_refused(made_up: System, path: str) -> None:
    with pytest.raises(UnknownNameError, match=f"'{path}'.*allowed: chip.clock, "):
        tabled(made_up, {path: [1.0]})


def test_links_of_a_graph_are_its_form(made_up: System) -> None:
    square = NetworkLevel("square", 2, 25e9, 1e-6, "graph", edges=(Edge("0", "1", 25e9),))
    with pytest.raises(UnknownNameError, match=r"network\.square\.bandwidth"):
        tabled(replace(made_up, levels=(square, *made_up.levels[1:])), {"network.square.bandwidth": [1e9]})


def test_machines_of_one_form_make_a_table(made_up: System) -> None:
    faster = replace(made_up, name="faster", chip=replace(made_up.chip, name="fast", clock_hz=2e9))
    table = stacked([made_up, faster, made_up])
    assert np.asarray(table.chip.clock_hz).tolist() == [1e9, 2e9, 1e9]
    assert table.chip.hbm_bytes_per_s == 1e12  # what all have in common stays one number
    assert stacked([made_up]) == made_up


def test_machines_of_several_forms_do_not(made_up: System) -> None:
    inner, outer = made_up.levels
    others = {
        "only one has chip.matmul.fp8": replace(
            made_up, chip=replace(made_up.chip, peak_flop_per_s=replace(made_up.chip.peak_flop_per_s, fp8=2e14))
        ),
        "differ in levels": replace(made_up, levels=(replace(inner, size=8), outer)),
        "differ in node_size": replace(made_up, node_size=8),
        "differ in chip": replace(made_up, chip=replace(made_up.chip, power_limit_w=400.0)),
        "only one has network.outer.*network.third": replace(made_up, levels=(inner, replace(outer, name="third"))),
        "calibration='default'": replace(made_up, kernels=load_system("dgx-h100").kernels),
    }
    for message, other in others.items():
        with pytest.raises(UsageError, match=f"'toy' and 'toy' cannot share a table: .*{message}"):
            stacked([made_up, other])
    with pytest.raises(UsageError, match="at least one"):
        stacked([])
