"""Laws of kernels on every chip of the catalogue and on chips that nobody built: a faster part never hurts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from slipstick.backends.kernels.attention.forms import attention_times
from slipstick.backends.kernels.attention.sizes import AttentionSizes
from slipstick.backends.kernels.constants import KernelConstants
from slipstick.backends.kernels.gemm import GemmMachine, gemm_sizes
from slipstick.backends.kernels.rowwise import RowwiseSizes, rowwise_times
from slipstick.backends.machine.chip import Chip, Peaks, SystolicArray
from slipstick.backends.machine.files.catalogue import names
from slipstick.backends.machine.load import load_system

Array: TypeAlias = NDArray[np.float64]
RANDOM_CHIPS = 1000
# Rounding, and the few thousandths by which powers of sums differ from the greatest of their parts.
NEARLY = 1.0 + 1e-9


@cache
def systems() -> Mapping[str, str]:
    """A system of each chip that multiplies in bf16, by the name of the chip."""
    found: dict[str, str] = {}
    for name in names("systems"):
        chip = load_system(name).chip
        if chip.peak_flop_per_s.bf16 is not None:
            found.setdefault(chip.name, name)
    return found


def random_chip(rng: np.random.Generator, array: SystolicArray | None) -> Chip:
    """A thousand chips in one: peaks, vectors, memory and clocks over three orders of magnitude, each by itself."""

    def some(low: float, high: float) -> Array:
        return np.exp(rng.uniform(np.log(low), np.log(high), RANDOM_CHIPS))

    bf16 = some(2e13, 1e16)
    return Chip(
        name="random", peak_flop_per_s=Peaks(bf16, None, None, bf16 / 8, None, None),
        vector_flop_per_s=some(1e12, 3e14), num_sms=np.floor(some(2, 600)), clock_hz=some(5e8, 3e9),
        hbm_bytes=some(1e10, 1e12), hbm_bytes_per_s=some(2e11, 3e13), l2_bytes=some(1e6, 1e9), power_w=some(100, 3000),
        special_op_per_s=None if array is None else some(1e11, 1e13), array=array,
    )  # fmt: skip


def faster(chip: Chip) -> Iterator[tuple[str, Chip]]:
    """The chip with one part twice as fast."""
    yield "matrix units", replace(chip, peak_flop_per_s=chip.peak_flop_per_s.times(2.0))
    yield "vector units", replace(chip, vector_flop_per_s=chip.vector_flop_per_s * 2.0)
    yield "clock", replace(chip, clock_hz=chip.clock_hz * 2.0)
    yield "memory", replace(chip, hbm_bytes_per_s=chip.hbm_bytes_per_s * 2.0)
    if chip.special_op_per_s is not None:
        yield "special functions", replace(chip, special_op_per_s=chip.special_op_per_s * 2.0)


def twice(chip: Chip) -> Chip:
    """The chip with every part twice as fast."""
    return replace(
        chip,
        peak_flop_per_s=chip.peak_flop_per_s.times(2.0),
        vector_flop_per_s=chip.vector_flop_per_s * 2.0,
        clock_hz=chip.clock_hz * 2.0,
        hbm_bytes_per_s=chip.hbm_bytes_per_s * 2.0,
        special_op_per_s=None if chip.special_op_per_s is None else chip.special_op_per_s * 2.0,
    )


def seconds(chip: Chip, kernels: KernelConstants) -> Mapping[str, Array]:
    """Times of calls of many sizes by class, without launches and other fixed seconds."""
    found: dict[str, list[Array]] = {"products": [], "rows": [], "attention": [], "decode": []}
    constants = replace(kernels.gemm["bf16"], overhead_s=0.0, split_s=0.0, ramp_s=0.0)
    machine = GemmMachine.of(chip, "bf16", constants)
    for m in (1.0, 128.0, 8192.0):
        for n, k in ((1024.0, 4096.0), (14336.0, 4096.0), (4096.0, 16384.0)):
            found["products"].append(machine.times(gemm_sizes(m, n, k)).time_s)
    for kind in ("rmsnorm", "softmax", "default", "layernorm", "add"):
        for rows, cols in ((1.0, 8192.0), (4096.0, 1024.0), (32768.0, 16384.0)):
            sizes = RowwiseSizes(*(np.array(x * rows * cols) for x in (1 / cols, 1 / rows, 4.0, 4.0, 1.0)))
            found["rows"].append(rowwise_times(sizes, chip, replace(kernels.rowwise[kind], overhead_s=0.0)).time_s)
    flash, decode = replace(kernels.attention["flash2"], overhead_s=0.0), kernels.decode["grouped"]
    for length in (512, 32768):
        for backward in (False, True):
            sizes_of = AttentionSizes.of(2, 32, 8, length, length, backward=backward)
            found["attention"].append(attention_times(sizes_of, chip, flash).time_s)
    for batch, length in ((1, 32768), (16, 512), (256, 4096)):
        of_cache = AttentionSizes.of(batch, 32, 8, 1, length)
        found["decode"].append(attention_times(of_cache, chip, flash, replace(decode, overhead_s=0.0)).time_s)
    return {kind: np.stack([np.atleast_1d(t).reshape(-1) for t in times]) for kind, times in found.items()}


def chips() -> Iterator[tuple[str, Chip, KernelConstants]]:
    for name, system in systems().items():
        read = load_system(system)
        yield name, read.chip, read.kernels
    rng = np.random.default_rng(7)
    yield "random", random_chip(rng, None), load_system("dgx-h100").kernels
    yield "random arrays", random_chip(rng, SystolicArray(128, 128)), load_system("tpu-v5p-pod").kernels


@pytest.mark.parametrize(("name", "chip", "kernels"), [pytest.param(*c, id=c[0]) for c in chips()])
def test_a_part_twice_as_fast_takes_between_half_the_time_and_all_of_it(
    name: str, chip: Chip, kernels: KernelConstants
) -> None:
    before = seconds(chip, kernels)
    for part, better in faster(chip):
        for kind, now in seconds(better, kernels).items():
            assert np.all(now <= before[kind] * NEARLY), (part, kind)
            assert np.all(now * 2.0 * NEARLY >= before[kind]), (part, kind)


@pytest.mark.parametrize(("name", "chip", "kernels"), [pytest.param(*c, id=c[0]) for c in chips()])
def test_a_chip_twice_as_fast_in_everything_takes_half_the_time(
    name: str, chip: Chip, kernels: KernelConstants
) -> None:
    before = seconds(chip, kernels)
    for kind, now in seconds(twice(chip), kernels).items():
        np.testing.assert_allclose(2.0 * now, before[kind], rtol=1e-9, err_msg=kind)


@pytest.mark.parametrize("name", sorted(systems()))
def test_passes_over_rows_are_near_what_memory_vectors_and_special_functions_allow(name: str) -> None:
    """A norm, a softmax and a pointwise chain over a large table take at most five times the slowest of the three."""
    system = load_system(systems()[name])
    chip, elements = system.chip, 32768.0 * 8192.0
    sizes = RowwiseSizes(*(np.array(x) for x in (32768.0, 8192.0, 4 * elements, 4 * elements, elements)))
    bound = max(
        4 * elements / chip.hbm_bytes_per_s, 4 * elements / chip.vector_flop_per_s, elements / chip.specials_per_s
    )
    for kind in ("rmsnorm", "softmax", "default", "layernorm"):
        time_s = float(rowwise_times(sizes, chip, system.kernels.rowwise[kind]).time_s)
        assert bound <= time_s <= 5.0 * bound, kind


def test_arrays_do_the_work_of_whole_widths() -> None:
    """Heads of 64 fill half of an array of 128, in scores and in outputs, forward and backward: twice the FLOPs."""
    narrow = AttentionSizes.of(1, 1, 1, 128, 128, qk_dim=64)
    for backward in (False, True):
        sizes = replace(narrow, backward=np.array(backward))
        assert float(sizes.flops_on(SystolicArray(128, 128))) == 2.0 * float(sizes.flops_a_pair)
        assert float(sizes.flops_on(SystolicArray(1, 64))) == float(sizes.flops_on(None))
    # Outputs alone have the width of values as columns; scores sum over that of keys, which streams.
    assert float(narrow.flops_on(SystolicArray(1, 128))) == 2.0 * (64 + 128)
