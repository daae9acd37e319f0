"""`python -m benchmarks.intervals`: try laws of intervals over all systems, phases and software.

Each interval holds its point, least <= low <= point <= high <= most, and none ends beyond physics: model FLOPs at the
dense peak, weights and cache at the bandwidth, weights and optimizer states at rest. Exit code 1 where one fails.
tests/driver/uncertainty tries some of the systems.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from slipstick.backends.machine.files.catalogue import names
from slipstick.backends.machine.load import load_system
from slipstick.driver.estimate import Estimate, estimate, lower
from slipstick.driver.uncertainty.answers import intervals, step_bands
from slipstick.frontend import load
from slipstick.ir.errors import SlipstickError
from slipstick.ir.graph import Workload
from slipstick.ir.plan import Family, make_plan
from slipstick.ir.plan.precision import counted_dtype

MODEL, DTYPE = "llama-3.1-8b", "bf16"
PREFILL, DECODE = (Family(workload=one) for one in (Workload.PREFILL, Workload.DECODE))
PLANS = {
    Workload.TRAIN: make_plan(num_gpus=8, seq_len=2048, global_batch=8, family=Family(zero=3, recompute="full")),
    Workload.PREFILL: make_plan(num_gpus=1, seq_len=2048, family=PREFILL),
    Workload.DECODE: make_plan(num_gpus=1, seq_len=1, micro_batch=8, kv_len=1024, family=DECODE),
}
OF_SERVERS = ("default", "vllm")
STACKS = {Workload.TRAIN: ("default", "megatron-core"), Workload.PREFILL: OF_SERVERS, Workload.DECODE: OF_SERVERS}
# What rounding may take from a floor.
NEARLY = 1.0 + 1e-9


def answers(workload: Workload, systems: Sequence[str]) -> Iterator[Estimate | str]:
    """Yield an answer for each system and stack, or why there is none."""
    plan = PLANS[workload]
    graph = load(MODEL, str(workload))
    lowered = lower(graph, plan.family)
    for name in systems:
        for stack in STACKS[workload]:
            try:
                yield estimate(graph, load_system(name, stack=stack), plan, lowered=lowered)
            except SlipstickError as error:
                yield f"{name} {stack}: {error}"


def violations(answer: Estimate) -> Iterator[str]:
    """Yield each metric whose interval does not hold it, and each whose interval ends beyond physics."""
    metrics, chip, plan = answer.metrics, answer.table.system.chip, answer.plan
    found = intervals(metrics, step_bands(answer))
    for name, one in found.items():
        if not one.least <= one.low <= metrics[name] <= one.high <= one.most:
            yield f"{name}: {metrics[name]:g} is not inside {one}"
    peak = float(chip.matmul_flop_per_s(counted_dtype(plan.family, DTYPE))) * plan.num_gpus
    floors = {"FLOPs at the peak": ("step_time_s", metrics["model_flops"] / peak)}
    moved = answer.table.lowered.must_move
    if moved is not None:
        num_bytes = float(moved.evaluate(answer.table.plans)[0])
        floors["traffic at the bandwidth"] = "step_time_s", num_bytes / float(chip.hbm_bytes_per_s)
    if "peak_mem_bytes" in found:
        held = answer.memory_bytes["weights"] + answer.memory_bytes["optimizer"]
        floors["weights and states"] = "peak_mem_bytes", held
    for what, (name, floor) in floors.items():
        if found[name].least * NEARLY < floor:
            yield f"{name}: an interval from {found[name].least:g} is below {what}, {floor:g}"


def main() -> int:
    """Try all of them."""
    failed = 0
    for workload in PLANS:
        given = list(answers(workload, names("systems")))
        broken = [f"{a.table.system.name}: {why}" for a in given if isinstance(a, Estimate) for why in violations(a)]
        refused = [why for why in given if isinstance(why, str)]
        print(f"{workload}: {len(given) - len(refused)} answers, {len(broken)} broken laws, {len(refused)} refused")
        print(*(f"  {line}" for line in (*broken, *refused)), sep="\n")
        failed += len(broken)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
