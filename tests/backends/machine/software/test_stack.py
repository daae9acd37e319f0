"""Profiles of software: what a file may say, what one that is like another inherits, what is done with it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slipstick.backends.machine.load import load_stack, load_system, stack_names
from slipstick.backends.machine.software.stack import HostFloor, Slowdown
from slipstick.backends.network.collectives import collective_time
from slipstick.driver.estimate import evaluate, lower
from slipstick.frontend import load
from slipstick.ir.errors import SystemFileError
from slipstick.ir.ops import OpClass
from slipstick.ir.placement import AxisGroup
from slipstick.ir.plan import Family, PlanTable, make_plan

MINE = """
name: mine
like: megatron-core
host:
  layer: {value: 2, unit: ms, source: measured here}
overlap:
  tp: {value: 0.5, source: measured here}
network:
  step_latency: {value: 10, unit: us, source: measured here}
  all_reduce:
    - size: {value: 1, unit: GB, source: nccl-tests}
      ranks: {value: 16, source: nccl-tests}
      bus_bandwidth: {value: 150, unit: GB/s, source: nccl-tests}
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(MINE, encoding="utf-8")
    return path


def test_a_profile_like_another_has_the_rest_from_it(mine: Path) -> None:
    found, base = load_stack(mine), load_stack("megatron-core")
    assert (found.decides, found.memory_packing) == (base.decides, base.memory_packing)
    assert found.host.layer_s == pytest.approx(2e-3)
    assert found.overlap == replace(base.overlap, tp=0.5)


def test_a_profile_may_differ_on_a_chip(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    chips = "chips:\n  h100-sxm-80gb:\n    kernel_slowdown: {matmul: {value: 1.2, source: measured here}}\n"
    path.write_text(MINE + chips, encoding="utf-8")
    on_h100, on_a100 = (load_system(name, stack=str(path)).stack for name in ("dgx-h100", "dgx-a100-80gb"))
    assert (on_h100.kernel_slowdown.matmul, on_a100.kernel_slowdown.matmul) == (1.2, 1.0)
    assert on_h100.host == on_a100.host == load_stack(path).host


def test_a_profile_that_says_nothing_of_graphs_issues_kernels_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "bare.yaml"
    path.write_text(
        """
name: bare
launch_overhead: {value: 3, unit: us, source: measured here}
collective_overhead: {value: 10, unit: us, source: measured here}
memory_reserve: {value: 1, unit: GiB, source: measured here}
issue_overhead: {value: 7, unit: us, source: measured here}
graph_issue_overhead: {value: 1, unit: us, source: measured here}
""",
        encoding="utf-8",
    )
    bare = load_stack(path)
    assert bare.spacing_s == pytest.approx(7e-6)
    assert (bare.gradient_copy, bare.decides.scatter_p2p, bare.tf32) == (False, False, False)


def test_bus_bandwidth_is_read_as_nccl_tests_prints_it(mine: Path) -> None:
    # 2 (n - 1)/n x 1 GB / 150 GB/s over 16 ranks
    (row,) = load_stack(mine).network.all_reduces
    assert (row.num_bytes, row.ranks) == (1e9, 16)
    assert row.time_s == pytest.approx(2 * 15 / 16 / 150)


def test_a_measured_all_reduce_replaces_the_model_for_its_group_alone(mine: Path) -> None:
    system, plain = load_system("dgx-h100", stack=str(mine)), load_system("dgx-h100")
    measured = 2 * 15 / 16 / 150
    assert collective_time("all_reduce", 1e9, 16, 1, system).time_s == pytest.approx(measured)
    assert collective_time("all_gather", 1e9, 16, 1, system).time_s == pytest.approx(measured / 2)
    assert collective_time("all_reduce", 3e9, 16, 1, system).time_s == pytest.approx(3 * measured)
    for group in ((8, 1), (16, 8)):  # a part of the job, and ranks of different nodes
        usual = collective_time("all_reduce", 1e9, *group, plain).time_s
        late = (group[0] - 1) * 10e-6 if group == (16, 8) else 0.0
        assert collective_time("all_reduce", 1e9, *group, system).time_s == pytest.approx(float(usual) + late)


def test_steps_are_late_where_a_group_spans_more_than_two_nodes() -> None:
    late = load_system("dgx-h100", ["stack.network.step_latency=10us"])
    usual = load_system("dgx-h100")
    for ranks, steps in ((8, 0), (16, 0), (32, 31)):
        added = collective_time("all_gather", 1e6, ranks, 1, late).time_s
        assert float(added) - float(collective_time("all_gather", 1e6, ranks, 1, usual).time_s) == pytest.approx(
            steps * 10e-6, abs=1e-12
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a\nlike: a.yaml\n", "no other stack"),
        ("name: a\nlike: default\nhost: {layr: {value: 1, unit: ms, source: s}}\n", "layr"),
        ("name: a\nlike: default\noverlap: {tp: {value: 1.5, source: s}}\n", "at most 1"),
        ("name: a\nlike: default\nslowdown: {dp: {value: 0, source: s}}\n", "more than zero"),
        (
            "name: a\nlike: default\nnetwork: {all_reduce: [{size: {value: 1, unit: GB, source: s}, "
            "ranks: {value: 8, source: s}}]}\n",
            "either time or bus_bandwidth",
        ),
    ],
)
def test_what_a_profile_may_not_say(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SystemFileError, match=message):
        load_stack(path)


def test_every_profile_of_the_catalogue_is_dated() -> None:
    assert all(load_stack(name).as_of for name in stack_names() if name != "default")


def test_slowdown_goes_by_axis() -> None:
    slow = Slowdown(tp=2.0, cp=3.0, ep=4.0, pp=5.0, dp=6.0)
    assert [slow.of(AxisGroup(a)) for a in ("tp", "tp/8", "up", "cp+dp", "ep", "pp", "fsdp", "ep+dp")] == [
        2,
        2,
        3,
        6,
        4,
        5,
        6,
        6,
    ]


def test_an_update_in_several_passes_reads_its_states_as_often() -> None:
    stack = load_system("dgx-h100", ["stack.optimizer_passes=2", "stack.clip_passes=3"]).stack
    # of 30 bytes a parameter 4 are the gradient
    assert stack.factor(OpClass.OPTIMIZER) == pytest.approx(2 + 3 * 4 / 30)
    assert stack.factor(OpClass.MATMUL) == 1.0
    assert HostFloor().layer_s == 0.0
    assert np.isfinite(stack.factor(OpClass.NORM))


def test_a_stack_may_run_fp32_products_in_tf32(tmp_path: Path) -> None:
    text = MINE.replace("name: mine", "name: mine\ntf32: true").replace("like: megatron-core", "like: default")
    fast = tmp_path / "fast.yaml"
    fast.write_text(text, encoding="utf-8")
    done = lower(load("llama-2-7b", "train", "fp32", None, None), Family())
    plans = PlanTable.of([make_plan(num_gpus=1, seq_len=8192, micro_batch=1, global_batch=1, family=Family())])
    slow_s, fast_s = (
        evaluate(done, load_system("dgx-h100", stack=name), plans).step.breakdown["compute.matmul"][0]
        for name in ("default", str(fast))
    )
    # of H100 tf32 runs at 494.7 TFLOP/s of the data sheet, fp32 at 66.9; what is sustained of them is alike
    assert slow_s / fast_s == pytest.approx(494.7 / 66.9, rel=0.35)


def test_limits_of_an_activation_take_passes_of_their_own_where_a_stack_has_no_kernel_for_both(tmp_path: Path) -> None:
    apart = tmp_path / "apart.yaml"
    apart.write_text("name: apart\nlike: default\nlimits_apart: true\n", encoding="utf-8")
    done = lower(load("gpt-oss-20b", "train", "bf16", None, None), Family())
    plans = PlanTable.of([make_plan(num_gpus=1, seq_len=4096, micro_batch=1, global_batch=1, family=Family())])
    systems = [load_system("dgx-h100", stack=name) for name in ("default", str(apart))]
    fused_s, apart_s = (evaluate(done, s, plans).step.breakdown["compute.experts"][0] for s in systems)
    # 24 layers, 4 rows a token, 18 bytes an element of 5760: 8 forward and 10 backward, at the bandwidth of the memory
    moved_s = 24 * 4096 * 4 * 5760 * 18 / systems[0].chip.hbm_bytes_per_s
    assert apart_s - fused_s == pytest.approx(moved_s, rel=0.02)
