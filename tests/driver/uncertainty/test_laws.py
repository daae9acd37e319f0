"""Laws of intervals over machines, phases and software: each holds its point, and none ends beyond physics."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.machine.files.catalogue import names
from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.software.engine_file import load_engine
from slipstick.benchmarks.intervals import DECODE, MODEL, PLANS, PREFILL, STACKS, answers, violations
from slipstick.cost.flops import Convention
from slipstick.cost.serving.traffic.requests import Lengths
from slipstick.driver.estimate import Estimate, estimate, lower
from slipstick.driver.serve.load import Load
from slipstick.driver.serve.serve import serve
from slipstick.driver.serve.server import Server
from slipstick.driver.serve.tables import ServedModel
from slipstick.driver.uncertainty.answers import intervals, server_bands, server_ratio_bands
from slipstick.driver.uncertainty.physics import memory_floor, step_floor
from slipstick.frontend import load
from slipstick.ir.errors import InfeasibleError
from slipstick.ir.graph import Workload
from slipstick.ir.plan import Family, make_plan

# Every so many systems are tried; all of them in `python -m benchmarks.intervals`.
EVERY = 5
WAYS = {
    "batch": lambda num: Load(batch=num),
    "concurrency": lambda num: Load(concurrency=num),
    "rate": lambda num: Load(requests_per_s=num),
}


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


@settings(max_examples=30)
@given(
    way=st.sampled_from(sorted(WAYS)),
    amount=st.integers(1, 400),
    prompt=st.integers(1, 1500),
    output=st.integers(1, 500),
    engine=st.sampled_from(("ideal", "vllm")),
)
def test_intervals_of_servers_hold_their_points_and_no_end_is_beyond_peaks(
    way: str, amount: int, prompt: int, output: int, engine: str
) -> None:
    try:
        answer = serve(server(engine), Lengths(float(prompt), float(output)), WAYS[way](float(amount)))
    except InfeasibleError:
        return
    bands = server_bands(answer)
    found = intervals(answer.metrics, bands)
    for name, one in found.items():
        assert one.least <= one.low <= answer.metrics[name] <= one.high <= one.most, name
    shares = [found[name].most for name in ("mfu", "mbu") if name in found and answer.metrics[name] < 1.0]
    assert all(share <= 1.0 + 1e-9 for share in shares)
    assert set(bands) == set(server_ratio_bands(answer))


def test_a_batch_in_waves_is_under_load() -> None:
    """A first token alone has a band of its own; one behind those of others that of loads: by the rows they are of."""
    few, many = (serve(server(), Lengths(64.0, 32.0), Load(batch=n)) for n in (1.0, 1e6))
    assert many.metrics["ttft_high_s"] > many.metrics["ttft_low_s"]
    kinds = [server_bands(one)["ttft_s"].kind.split()[0] for one in (few, many)]
    assert kinds == ["ttft", "loaded_ttft"]


@cache
def server(engine: str = "vllm") -> Server:
    graphs = [load(MODEL, str(phase)) for phase in (Workload.PREFILL, Workload.DECODE)]
    served = ServedModel(*(lower(graph, Family(workload=graph.workload)) for graph in graphs))
    plan = make_plan(num_gpus=1, seq_len=2048, family=DECODE)
    system = load_system("dgx-h100")
    return Server.of(served, system, plan, load_engine(engine, system.chip.name), 2048)
