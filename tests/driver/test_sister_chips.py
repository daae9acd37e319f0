"""Chips of one design beside one another: the same silicon is as fast, and more of everything is not slower."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import permutations

import numpy as np
import pytest

from slipstick import Family, load, lower, make_plan
from slipstick.backends.machine.chip import Chip
from slipstick.backends.machine.files.catalogue import names
from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.system import System
from slipstick.driver.estimate import Lowered, estimate
from slipstick.ir.graph import Graph, Workload

# Of chips that are alike in all that a data sheet says; one was measured, the other has what carries over.
SAME = 0.05
# What is left where one was measured and the other not.
ROUNDING = 0.01
CASES: Mapping[str, tuple[Workload, str, dict[str, int]]] = {
    "training bf16": (Workload.TRAIN, "none", {"seq_len": 4096, "global_batch": 4}),
    "training fp8": (Workload.TRAIN, "fp8", {"seq_len": 4096, "global_batch": 4}),
    "prefill bf16": (Workload.PREFILL, "none", {"seq_len": 8192}),
    "prefill fp8": (Workload.PREFILL, "fp8", {"seq_len": 8192}),
    "decode of one": (Workload.DECODE, "none", {"seq_len": 4096, "kv_len": 4096}),
    "decode bf16": (Workload.DECODE, "none", {"seq_len": 4096, "kv_len": 4096, "micro_batch": 64}),
    "decode fp8": (Workload.DECODE, "fp8", {"seq_len": 4096, "kv_len": 4096, "micro_batch": 64}),
}
# Work that memory does not bound.
COMPUTE = ("training bf16", "training fp8", "prefill bf16", "prefill fp8")
# Software that ran on some chips of each design and was fitted there; what was learnt must hold on the others.
STACKS = {Workload.TRAIN: ("default", "megatron-core", "torchtitan"), Workload.PREFILL: ("default", "vllm")}
# Systems with the same dies, and the numbers that packages and coolers make different: all get the lesser ones.
DIES = (
    ("dgx-h100", "hgx-h800", "dgx-h200", "gh200-cluster", "gh200-nvl32"),
    ("dgx-b200", "dgx-b300"),
    ("gb200-nvl72", "gb300-nvl72"),
    ("dgx-a100-80gb", "dgx-a100-40gb", "hgx-a800"),
    ("mi300x-platform", "mi325x-platform"),
)
BANDWIDTH = "chip.memory.hbm.bandwidth"


@cache
def systems(stack: str) -> Mapping[str, System]:
    """One system a chip of a known design."""
    read = (load_system(name, stack=stack) for name in names("systems"))
    found = {system.chip.name: system for system in read if system.chip.design}
    return dict(sorted(found.items()))


@cache
def graph(model: str, workload: Workload) -> Graph:
    return load(model, workload)


@cache
def lowered(model: str, workload: Workload, precision: str) -> Lowered:
    return lower(graph(model, workload), Family(workload=workload, precision=precision))


def seconds(model: str, case: str, system: System) -> float:
    workload, precision, sizes = CASES[case]
    plan = make_plan(num_gpus=1, family=Family(workload=workload, precision=precision), **sizes)
    found = estimate(graph(model, workload), system, plan, lowered=lowered(model, workload, precision))
    return found.metrics["step_time_s"]


def multiplies(case: str, system: System) -> bool:
    return CASES[case][1] == "none" or "fp8" in system.chip.peak_flop_per_s.by_dtype()


def abilities(chip: Chip) -> tuple[float, ...]:
    peaks = chip.peak_flop_per_s.by_dtype()
    both = (peaks.get("bf16", 0.0), peaks.get("fp8", 0.0))
    found = (*both, chip.vector_flop_per_s, chip.hbm_bytes_per_s, chip.power_w, chip.clock_hz, chip.num_sms)
    return tuple(float(np.asarray(number)) for number in found)


def under_stacks() -> Iterator[tuple[str, str]]:
    for case, (workload, _, _) in CASES.items():
        yield from ((case, stack) for stack in STACKS.get(workload, STACKS[Workload.PREFILL]))


@pytest.mark.slow
@pytest.mark.parametrize(("case", "stack"), list(under_stacks()))
@pytest.mark.parametrize("model", ["llama-3.1-8b", "mixtral-8x7b"])
def test_the_same_silicon_is_as_fast_and_more_of_everything_is_not_slower(model: str, case: str, stack: str) -> None:
    found = {n: seconds(model, case, s) for n, s in systems(stack).items() if multiplies(case, s)}
    assert len(found) > 8
    wrong = []
    for one, other in permutations(found, 2):
        a, b = systems(stack)[one].chip, systems(stack)[other].chip
        if a.design != b.design:
            continue
        alike = abilities(a) == abilities(b)
        if all(x >= y for x, y in zip(abilities(a), abilities(b), strict=True)):
            limit = SAME if alike else ROUNDING
            if found[one] > found[other] * (1.0 + limit):
                wrong.append(f"{one} {found[one]:.4g} s, {other} {found[other]:.4g} s")
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize("case", COMPUTE)
@pytest.mark.parametrize("dies", DIES, ids=lambda dies: dies[0])
def test_the_same_dies_with_the_same_power_and_bandwidth_are_as_fast(dies: Sequence[str], case: str) -> None:
    stacks = STACKS[CASES[case][0]]
    for stack in stacks:
        chips = [load_system(name).chip for name in dies]
        least_w, least = min(float(c.power_w) for c in chips), min(float(c.hbm_bytes_per_s) for c in chips)
        settings = (f"chip.power_limit={least_w:g} W", f"{BANDWIDTH}={least:g} B/s")
        alike = {name: load_system(name, settings, stack=stack) for name in dies}
        found = {name: seconds("llama-3.1-8b", case, s) for name, s in alike.items() if multiplies(case, s)}
        assert not found or max(found.values()) <= min(found.values()) * (1.0 + SAME), (stack, found)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dgx-h100", "dgx-b200", "gb300-nvl72", "mi325x-platform", "dgx-a100-80gb"])
def test_less_power_never_makes_a_step_faster_and_bounds_training_first(name: str) -> None:
    full_w = float(load_system(name).chip.power_w)
    for case in ("training bf16", "prefill bf16"):
        times = [
            seconds("llama-3.1-8b", case, load_system(name, [f"chip.power_limit={full_w * share:g} W"]))
            for share in (1.0, 0.9, 0.7, 0.5)
        ]
        assert times == sorted(times)
    slower = [
        seconds("llama-3.1-8b", case, load_system(name, [f"chip.power_limit={full_w * 0.7:g} W"]))
        / seconds("llama-3.1-8b", case, load_system(name))
        for case in ("training bf16", "decode bf16")
    ]
    assert slower[0] > 1.02
    assert slower[1] < 1.05
