"""Copies over the host's link and the update in its memory, in seconds by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from slipstick.backends.machine.chip import HostLink, HostMemory
from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.system import System
from slipstick.backends.pricing.program import compile_graph
from slipstick.backends.pricing.timing import annotate
from slipstick.driver.estimate import Estimate, estimate
from slipstick.ir.graph import Graph
from slipstick.ir.ops.host import DOWN, UP, UPDATE
from slipstick.ir.plan import Family, PlanTable, make_plan
from slipstick.ir.text.parse import parse_graph
from slipstick.report.explain.explain import explain_text


@pytest.fixture
def hosted(made_up: System) -> System:
    """The made-up machine of four chips a node behind links of 20 GB/s, half of it reached, and a host of 160 GB/s."""
    chip = replace(made_up.chip, host_link=HostLink(20e9, 0.5, 1e-5))
    return replace(made_up, chip=chip, host=HostMemory(1e12, 160e9, 0.25))


GRAPH = """slipstick.graph 1
graph "by hand" train bf16
schedule only
region only
  %0 = param "w" : bf16[1000, 1000]
  %1 = input "x" : bf16[1000, 1000]
  %2 = offload(%1) : bf16[1000, 1000]
  %3 = fetch(%2) : bf16[1000, 1000] backward
  %4 = host_optimizer_step(%0, %3) : bf16[1000, 1000] optimizer
end
"""


def test_bytes_over_the_link_and_through_the_memory(hosted: System) -> None:
    plans = PlanTable.of([make_plan(num_gpus=1, seq_len=1, family=Family())])
    timing = annotate(compile_graph(parse_graph(GRAPH)), hosted, plans)
    found = {entry.op: seconds for entry, seconds in timing.rows()}
    # 2 MB at 10 GB/s and 10 us; 28 bytes a parameter (gradient 2, weight 2, twelve read and written) at 10 GB/s a chip.
    assert found[DOWN] == found[UP] == pytest.approx(2e6 / 10e9 + 1e-5, rel=1e-12)
    assert found[UPDATE] == pytest.approx(28e6 / 10e9, rel=1e-12)


def test_machines_of_the_catalogue_have_a_link_and_a_host() -> None:
    a100, h100 = load_system("dgx-a100-80gb"), load_system("dgx-h100")
    links = [s.chip.host_link for s in (a100, h100)]
    assert [link.bytes_per_s for link in links if link] == [32e9, 64e9]
    assert a100.host is not None
    assert a100.host.bytes_per_s == 2 * 8 * 3.2e9 * 8  # sockets, channels, transfers, bytes
    assert h100.host is not None
    assert h100.host.bytes_per_s == 2 * 8 * 4.8e9 * 8


def test_a_link_can_be_set_where_a_system_has_none() -> None:
    names = ("bandwidth=100GB/s", "latency=1us", "efficiency=1")
    system = load_system("dgx-h100", [f"chip.host_link.{name}" for name in names])
    assert system.chip.host_link == HostLink(100e9, 1.0, 1e-6)


@pytest.fixture
def answer(traced: Callable[[str], Graph]) -> Estimate:
    family = Family(offload=("optimizer", "activations"))
    plan = make_plan(num_gpus=2, tp=2, seq_len=64, family=family)
    return estimate(traced("tiny-llama.train"), load_system("dgx-h100"), plan)


def test_copies_and_updates_are_explained(answer: Estimate) -> None:
    copy, update = explain_text(answer, "fetch"), explain_text(answer, "host_optimizer_step")
    assert "time = bytes / (bandwidth x efficiency) + latency" in copy
    assert "PCIe Gen5" in copy
    assert "1/chips of the host's memory" in update
    assert "Xeon" in update


def test_the_parts_add_up(answer: Estimate) -> None:
    assert sum(answer.breakdown_s.values()) == pytest.approx(answer.metrics["step_time_s"], rel=1e-12)
    assert answer.hidden_comm_s["offload"] > 0
    assert answer.metrics["hidden_comm_s"] == sum(v for k, v in answer.hidden_comm_s.items() if k != "offload")
