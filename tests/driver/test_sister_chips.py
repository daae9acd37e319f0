"""Chips of one design beside one another: the same silicon is as fast, and more of everything is not slower."""

from collections.abc import Mapping
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


@cache
def systems() -> Mapping[str, System]:
    """One system a chip of a known design."""
    found = {system.chip.name: system for system in map(load_system, names("systems")) if system.chip.design}
    return dict(sorted(found.items()))


@cache
def graph(model: str, workload: Workload) -> Graph:
    return load(model, workload)


@cache
def lowered(model: str, workload: Workload, precision: str) -> Lowered:
    return lower(graph(model, workload), Family(workload=workload, precision=precision))


def abilities(chip: Chip) -> tuple[float, ...]:
    peaks = chip.peak_flop_per_s.by_dtype()
    both = (peaks.get("bf16", 0.0), peaks.get("fp8", 0.0))
    found = (*both, chip.vector_flop_per_s, chip.hbm_bytes_per_s, chip.power_w, chip.clock_hz, chip.num_sms)
    return tuple(float(np.asarray(number)) for number in found)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("model", ["llama-3.1-8b", "mixtral-8x7b"])
def test_the_same_silicon_is_as_fast_and_more_of_everything_is_not_slower(model: str, case: str) -> None:
    workload, precision, sizes = CASES[case]
    family = Family(workload=workload, precision=precision)
    plan = make_plan(num_gpus=1, family=family, **sizes)
    found = {}
    for name, system in systems().items():
        if precision == "none" or "fp8" in system.chip.peak_flop_per_s.by_dtype():
            answer = estimate(graph(model, workload), system, plan, lowered=lowered(model, workload, precision))
            found[name] = answer.metrics["step_time_s"]
    assert len(found) > 8
    wrong = []
    for one, other in permutations(found, 2):
        a, b = systems()[one].chip, systems()[other].chip
        if a.design != b.design:
            continue
        alike = abilities(a) == abilities(b)
        if all(x >= y for x, y in zip(abilities(a), abilities(b), strict=True)):
            limit = SAME if alike else ROUNDING
            if found[one] > found[other] * (1.0 + limit):
                wrong.append(f"{one} {found[one]:.4g} s, {other} {found[other]:.4g} s")
    assert not wrong
