"""The measured seconds of a step by hand, from each column that may give them."""

from __future__ import annotations

import pytest

from slipstick.validation.rows.rows import NotJudged, Row
from slipstick.validation.training.cases import hardware_flops, model_flops, step_s

PEAK = 312e12
# Korthikanti's 530B, 8 replicas on 2240 GPUs.
B, S, L, H, V, GPUS = 2240, 2048, 105, 20480, 51200, 2240
CELLS = {
    "id": "one", "dataset": "mine", "family": "gpt", "layers": str(L), "hidden": str(H), "heads": "128",
    "ffn_hidden": str(4 * H), "vocab": str(V), "seq_len": str(S), "global_batch": str(B), "n_gpus": str(GPUS),
}  # fmt: skip


def row(**other: str) -> Row:
    return Row({**CELLS, **other})


def test_the_flops_of_a_gpt_are_those_of_the_papers() -> None:
    # arXiv 2104.04473, section 3.2, and 2205.05198, appendix A.
    assert model_flops(row()) == pytest.approx(72 * B * S * L * H**2 * (1 + S / (6 * H) + V / (12 * L * H)))
    again = row(activation_recompute="full")
    assert hardware_flops(again) == pytest.approx(96 * B * S * L * H**2 * (1 + S / (6 * H) + V / (16 * L * H)))


def test_without_recomputation_both_are_the_same() -> None:
    assert hardware_flops(row()) == pytest.approx(model_flops(row()))


def test_the_step_goes_before_all_else() -> None:
    assert step_s(row(step_time_s="18.13", step_time_s_derived="20", mfu_pct="50"), PEAK) == 18.13
    assert step_s(row(step_time_s_derived="20", tokens_per_s_per_gpu="1"), PEAK) == 20.0


def test_rates_divide_the_batch() -> None:
    # 2240 x 2048 tokens over 2240 GPUs at 100 a second; 2240 sequences at 56 a second.
    assert step_s(row(tokens_per_s_per_gpu="100"), PEAK) == pytest.approx(20.48)
    assert step_s(row(samples_per_s="56"), PEAK) == 40.0


def test_a_utilisation_is_of_the_peak() -> None:
    # The paper recalls 39.15 s at 54.2 % of 312 TFLOP/s; the formula gives 39.1.
    seconds = step_s(row(mfu_pct="54.2"), PEAK)
    assert seconds == pytest.approx(model_flops(row()) / (0.542 * PEAK * GPUS))
    assert seconds == pytest.approx(39.15, rel=0.01)


def test_flops_a_second_are_in_tera() -> None:
    again = row(activation_recompute="full", hw_tflops_per_gpu="163")
    assert step_s(again, PEAK) == pytest.approx(hardware_flops(again) / (163e12 * GPUS))


def test_a_gated_mlp_has_three_matrices() -> None:
    llama = row(family="", kv_heads="8")
    gpt = row(kv_heads="8")
    assert model_flops(llama) - model_flops(gpt) == pytest.approx(6 * B * S * L * 4 * H * H)


def test_a_row_that_measures_nothing_is_refused() -> None:
    with pytest.raises(NotJudged, match="no time"):
        step_s(row(), PEAK)
