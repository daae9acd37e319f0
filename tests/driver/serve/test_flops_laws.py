"""FLOPs of a prompt against those of the same tokens one by one."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.cost.flops import Convention, ModelFlops
from slipstick.frontend import load
from slipstick.ir.graph import Workload

CONFIGS = Path(__file__).parents[2] / "data" / "configs"
HIDDEN, VOCAB = 64, 160


@cache
def flops_of(config: str, phase: Workload) -> ModelFlops:
    return ModelFlops.of(load(str(CONFIGS / config), phase))


@given(tokens=st.integers(1, 200), batch=st.integers(1, 64))
@settings(max_examples=40, deadline=None)
def test_a_prompt_has_the_flops_of_its_tokens_one_by_one(tokens: int, batch: int) -> None:
    # Under the causal convention a query sees what is before it and itself; only the last token of a prompt has logits.
    prefill, decode = (flops_of("tiny-llama.json", phase) for phase in (Workload.PREFILL, Workload.DECODE))
    sizes = {"batch": np.array([float(batch)]), "seq": np.array([float(tokens)]), "kv": np.array([0.0])}
    whole = float(prefill.total(sizes, Convention.CAUSAL)[0])
    before = np.arange(tokens, dtype=np.float64)
    each = {"batch": np.full(tokens, float(batch)), "seq": before, "kv": before}
    one_by_one = float(np.broadcast_to(decode.total(each, Convention.CAUSAL), (tokens,)).sum())
    logits = 2.0 * HIDDEN * VOCAB * batch
    assert one_by_one - whole == pytest.approx((tokens - 1) * logits)
