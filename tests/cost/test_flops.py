"""Model FLOPs against the closed forms that the literature counts by."""

from collections.abc import Callable

import numpy as np
import pytest

from slipstick.cost.flops import REPEATED, Convention, ModelFlops
from slipstick.driver.estimate import lower
from slipstick.frontend import load
from slipstick.ir.graph import Graph
from slipstick.ir.plan import Family

Traced = Callable[[str], Graph]

LAYERS, HIDDEN, VOCAB = 2, 64, 160
BATCH, SEQ = 3, 128
# Matrices of tiny-llama that tokens are multiplied with: the embedding is looked up, not multiplied.
LLAMA_MATMUL = VOCAB * HIDDEN + LAYERS * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 96 * 64)


def count(graph: Graph, convention: Convention, batch: int = BATCH, seq: int = SEQ, kv: int = 0) -> float:
    env = {name: np.array([float(n)]) for name, n in (("batch", batch), ("seq", seq), ("kv", kv))}
    return float(ModelFlops.of(graph).total(env, convention)[0])


def test_training_takes_six_flops_a_parameter_and_token_and_twelve_a_score(traced: Traced) -> None:
    tokens = BATCH * SEQ
    # Scores and their use: 2 GEMMs forward, 4 backward, 2 FLOPs a multiply-add.
    wanted = 6 * LLAMA_MATMUL * tokens + 12 * LAYERS * HIDDEN * SEQ * tokens
    assert count(traced("tiny-llama.train"), Convention.FULL) == pytest.approx(wanted, rel=1e-12)


def test_the_causal_convention_counts_the_triangle(traced: Traced) -> None:
    tokens = BATCH * SEQ
    triangle = (SEQ + 1) / (2 * SEQ)
    wanted = 6 * LLAMA_MATMUL * tokens + 12 * LAYERS * HIDDEN * SEQ * tokens * triangle
    assert count(traced("tiny-llama.train"), Convention.CAUSAL) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("convention", list(Convention))
def test_a_decode_step_takes_two_flops_a_parameter_and_four_a_cached_score(
    traced: Traced, convention: Convention
) -> None:
    # One query sees the cache and itself; nothing is masked.
    wanted = BATCH * (2 * LLAMA_MATMUL + 4 * LAYERS * HIDDEN * 1001)
    assert count(traced("tiny-llama.decode"), convention, kv=1000) == pytest.approx(wanted, rel=1e-12)


def _megatron(batch: int, seq: int, layers: int, hidden: int, vocab: int) -> float:
    """Return 72 B s L h^2 (1 + s/6h + V/12Lh), of Narayanan et al. 2021 (arXiv 2104.04473), without recomputation."""
    return 72 * batch * seq * layers * hidden**2 * (1 + seq / (6 * hidden) + vocab / (12 * layers * hidden))


def test_gpt2_takes_what_the_megatron_formula_says(traced: Traced) -> None:
    found = count(traced("tiny-gpt2.train"), Convention.FULL)
    assert found == pytest.approx(_megatron(BATCH, SEQ, LAYERS, HIDDEN, VOCAB), rel=1e-12)


@pytest.mark.slow
def test_megatron_22b_takes_what_the_megatron_formula_says() -> None:
    found = count(load("megatron-22b"), Convention.FULL, batch=4, seq=2048)
    assert found == pytest.approx(_megatron(4, 2048, 48, 6144, 51200), rel=1e-12)


def test_recomputing_all_layers_repeats_their_forward_phase(traced: Traced) -> None:
    graph = traced("tiny-llama.train")
    lowered = lower(graph, Family(recompute="full")).graph
    env = {name: np.array([float(n)]) for name, n in (("mbs", BATCH), ("seq", SEQ), ("tp", 1), ("dp", 1), ("kv", 0))}
    found = float(ModelFlops.of(lowered, REPEATED).total(env, Convention.FULL)[0])
    tokens = BATCH * SEQ
    layers = LLAMA_MATMUL - VOCAB * HIDDEN
    assert found <= 2 * layers * tokens + 4 * LAYERS * HIDDEN * SEQ * tokens
    assert found > 0.6 * 2 * layers * tokens


def test_a_graph_without_recomputation_repeats_nothing(traced: Traced) -> None:
    none = ModelFlops.of(lower(traced("tiny-llama.train"), Family()).graph, REPEATED)
    assert (dict(none.dense), dict(none.attention)) == ({}, {})
