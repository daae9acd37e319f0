"""Laws of intervals over machines, phases and software: each holds its point, and none ends beyond physics."""

import numpy as np
import pytest

from slipstick.backends.machine.files.catalogue import names
from slipstick.backends.machine.load import load_system
from slipstick.benchmarks.intervals import PLANS, PREFILL, STACKS, answers, violations
from slipstick.cost.flops import Convention
from slipstick.driver import Estimate, estimate
from slipstick.driver.uncertainty.physics import memory_floor, step_floor
from slipstick.frontend import load
from slipstick.ir.graph import Workload
from slipstick.ir.plan import Family, make_plan

# Every so many systems are tried; all of them in `python -m benchmarks.intervals`.
EVERY = 5


@pytest.mark.parametrize("workload", PLANS)
def test_intervals_hold_their_point_and_end_at_physics(workload: Workload) -> None:
    systems = names("systems")[::EVERY]
    found = [one for one in answers(workload, systems) if isinstance(one, Estimate)]
    assert len(found) == len(systems) * len(STACKS[workload])
    for answer in found:
        assert list(violations(answer)) == [], answer.table.system.name


def test_floors_of_windows_count_what_masks_leave() -> None:
    """Where masked attention in full would need more than the peak, the floor counts the pairs inside the windows."""
    system, plan = load_system("dgx-h100"), make_plan(num_gpus=1, seq_len=1 << 17, family=PREFILL)
    found = estimate(load("gpt-oss-20b", "prefill"), system, plan)
    assert found.metrics["mfu"] > 1.0
    plans = found.table.plans
    env = {"batch": plans.global_batch, "seq": plans.seq_len, "kv": plans.kv_len}
    done = float(np.sum(found.table.lowered.flops.total(env, Convention.CAUSAL)))
    floor_s = done / float(system.chip.matmul_flop_per_s("bf16"))
    assert step_floor(found) * found.metrics["step_time_s"] == pytest.approx(floor_s)
    assert step_floor(found) < 1.0


def test_states_are_read_and_written_once_a_step() -> None:
    """Of a step of few tokens the floor is the traffic of the optimizer; of memory, weights and states at rest."""
    graph, plan = load("gpt2", "train"), make_plan(num_gpus=1, seq_len=16, family=Family())
    found = estimate(graph, load_system("dgx-h100"), plan)
    chip, held = found.table.system.chip, found.memory_bytes
    states_s = 2 * held["optimizer"] / float(chip.hbm_bytes_per_s)
    assert step_floor(found) == pytest.approx(states_s / found.metrics["step_time_s"])
    assert memory_floor(found) == pytest.approx((held["weights"] + held["optimizer"]) / found.metrics["peak_mem_bytes"])
