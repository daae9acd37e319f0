"""How attention times hang together, under the constants that are shipped, on machines of the catalogue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.kernels.attention.additive import additive_times
from slipstick.backends.kernels.attention.decode import decode_times
from slipstick.backends.kernels.attention.flash import flash_times
from slipstick.backends.kernels.attention.forms import attention_times
from slipstick.backends.kernels.attention.sizes import AttentionSizes
from slipstick.backends.kernels.attention.unfused import unfused_times
from slipstick.backends.kernels.constants import Kinds
from slipstick.backends.kernels.terms import KernelTimes
from slipstick.backends.machine.chip import Chip
from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.system import System

SYSTEM: System = load_system("dgx-h100")
KERNELS, CHIP = SYSTEM.kernels, SYSTEM.chip
Model = Callable[[AttentionSizes, Chip], float]
C = TypeVar("C")


def models(times: Callable[[AttentionSizes, Chip, C], KernelTimes], kinds: Kinds[C]) -> dict[str, Model]:
    def of(constants: C) -> Model:
        return lambda sizes, chip: float(times(sizes, chip, constants).time_s)

    return {kind: of(constants) for kind, constants in kinds.items()}


MODELS = {
    **models(flash_times, KERNELS.attention),
    **models(decode_times, KERNELS.decode),
    **models(unfused_times, KERNELS.unfused_attention),
    **models(additive_times, KERNELS.additive_attention),
}
FUSED = [*KERNELS.attention, *KERNELS.additive_attention]
names = st.sampled_from(sorted(MODELS))
fused = st.sampled_from(sorted(FUSED))


@st.composite
def calls(draw: st.DrawFn, kind: st.SearchStrategy[str] = names) -> tuple[str, AttentionSizes]:
    name = draw(kind)
    decodes = name in KERNELS.decode
    groups, sharing = draw(st.sampled_from([1, 2, 8])), draw(st.sampled_from([1, 2, 8, 16]))
    kv = draw(st.integers(1, 20000))
    q = 1 if decodes else draw(st.integers(1, kv))
    width = draw(st.sampled_from([64, 128, 192]))
    backward = not decodes and draw(st.booleans())
    batch = draw(st.integers(1, 300))
    causal = draw(st.booleans())
    return name, AttentionSizes.of(batch, groups * sharing, groups, q, kv, width, causal=causal, backward=backward)


def more(sizes: AttentionSizes, *grown: str) -> AttentionSizes:
    doubled = {name: 2.0 * getattr(sizes, name) for name in grown}
    return replace(sizes, **doubled)


@given(calls())
def test_a_faster_chip_is_never_slower(call: tuple[str, AttentionSizes]) -> None:
    name, sizes = call
    here = MODELS[name](sizes, CHIP)
    peaks = replace(CHIP.peak_flop_per_s, bf16=2e15)
    faster = (
        replace(CHIP, hbm_bytes_per_s=2 * CHIP.hbm_bytes_per_s),
        replace(CHIP, peak_flop_per_s=peaks),
        replace(CHIP, clock_hz=2 * CHIP.clock_hz),
        replace(CHIP, vector_flop_per_s=2 * CHIP.vector_flop_per_s),
    )
    assert all(MODELS[name](sizes, chip) <= here * (1 + 1e-12) for chip in faster)


@given(calls())
def test_more_work_is_never_faster(call: tuple[str, AttentionSizes]) -> None:
    name, sizes = call
    here = MODELS[name](sizes, CHIP)
    assert MODELS[name](more(sizes, "batch"), CHIP) >= here
    assert MODELS[name](more(sizes, "heads", "kv_heads"), CHIP) >= here
    assert MODELS[name](more(sizes, "kv_len"), CHIP) >= here
    assert MODELS[name](replace(sizes, kv_len=sizes.kv_len + 1.0), CHIP) >= here * (1 - 1e-12)


@given(calls(fused), st.integers(1, 5000))
def test_a_longer_sequence_is_never_faster(call: tuple[str, AttentionSizes], longer: int) -> None:
    name, sizes = call
    square = replace(sizes, q_len=sizes.kv_len)
    grown = replace(sizes, q_len=sizes.kv_len + longer, kv_len=sizes.kv_len + longer)
    assert MODELS[name](grown, CHIP) >= MODELS[name](square, CHIP) * (1 - 1e-12)


@given(calls(fused), st.integers(1, 30000))
def test_masks_only_save(call: tuple[str, AttentionSizes], window: int) -> None:
    name, sizes = call
    full = replace(sizes, causal=np.array(False))
    causal = replace(sizes, causal=np.array(True))
    cut = replace(causal, window=np.array(float(window)))
    times = [MODELS[name](s, CHIP) for s in (cut, causal, full)]
    assert times[0] <= times[1] * (1 + 1e-12)
    assert times[1] <= times[2] * (1 + 1e-12)


@given(calls(st.sampled_from(sorted(set(MODELS) - set(KERNELS.unfused_attention)))))
def test_a_window_as_long_as_the_keys_is_none(call: tuple[str, AttentionSizes]) -> None:
    name, sizes = call
    causal = replace(sizes, causal=np.array(True))
    assert MODELS[name](replace(causal, window=causal.kv_len), CHIP) == MODELS[name](causal, CHIP)


@given(calls())
def test_shared_keys_are_never_slower_than_own(call: tuple[str, AttentionSizes]) -> None:
    name, sizes = call
    assert MODELS[name](sizes, CHIP) <= MODELS[name](replace(sizes, kv_heads=sizes.heads), CHIP) * (1 + 1e-12)


@given(calls())
def test_no_time_is_below_flops_and_bytes_at_full_speed(call: tuple[str, AttentionSizes]) -> None:
    name, sizes = call
    # Scores that were kept leave four of the five products of the backward phase.
    kept = 0.8 if name in KERNELS.unfused_attention else 1.0
    flops_s = kept * float(sizes.pairs() * sizes.flops_a_pair) / CHIP.matmul_flop_per_s("bf16")
    moved = float(sizes.query_bytes + sizes.cache_bytes + sizes.output_bytes)
    here = MODELS[name](sizes, CHIP)
    assert here >= flops_s
    assert here >= moved / CHIP.hbm_bytes_per_s


@given(calls(), st.floats(1e3, 1e9), st.integers(1, 64))
def test_what_is_added_to_a_call_is_never_less_time(
    call: tuple[str, AttentionSizes], extra_bytes: float, keys: int
) -> None:
    name, sizes = call
    here = MODELS[name](sizes, CHIP)
    assert MODELS[name](replace(sizes, extra_bytes=np.array(extra_bytes)), CHIP) >= here
    assert MODELS[name](replace(sizes, softcap=np.array(True)), CHIP) >= here
    limited = replace(sizes, window=np.array(float(keys)), causal=np.array(True))
    # Keys that are chosen lie apart: as many pairs as in a window of as many keys, and no less memory.
    chosen = replace(limited, chosen=np.array(True))
    assert float(chosen.pairs()) == float(limited.pairs())
    assert MODELS[name](chosen, CHIP) >= MODELS[name](limited, CHIP) * (1 - 1e-12)


@given(st.lists(calls(st.just("serving")), min_size=2, max_size=5), st.lists(calls(st.just("grouped")), max_size=3))
def test_calls_among_others_cost_what_they_cost_alone(
    prefills: list[tuple[str, AttentionSizes]], decodes: list[tuple[str, AttentionSizes]]
) -> None:
    calls = [sizes for _, sizes in prefills + decodes]
    arrays = {
        f.name: np.array([getattr(s, f.name) for s in calls]) for f in fields(AttentionSizes) if f.name != "dtype"
    }
    served, decode = KERNELS.attention["serving"], KERNELS.decode["grouped"]
    together = attention_times(AttentionSizes(**arrays, dtype="bf16"), CHIP, served, decode)
    for i, sizes in enumerate(calls):
        alone = attention_times(sizes, CHIP, served, decode)
        assert together.time_s[i] == alone.time_s
        assert {k: v[i] for k, v in together.terms.items()} == {k: v[()] for k, v in alone.terms.items()}


@pytest.mark.parametrize("length", [128, 1000, 4096])
def test_half_the_queries_of_a_balanced_split_take_half_the_pairs(length: int) -> None:
    whole = AttentionSizes.of(1, 8, 8, length, length)
    half = AttentionSizes.of(1, 8, 8, length / 2, length, balanced=True)
    assert float(half.pairs()) * 2 == pytest.approx(float(whole.pairs()))
