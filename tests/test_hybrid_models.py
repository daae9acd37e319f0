"""A published hybrid, Bamba-9B (29 layers of Mamba-2, 3 of attention): from its config to answers had by hand."""

from __future__ import annotations

import pytest

from slipstick.backends.machine.load import load_system
from slipstick.driver.estimate import Estimate, estimate
from slipstick.frontend.huggingface.configs.models import config_of
from slipstick.frontend.loading import load_config
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.plan import Family, make_plan

pytest.importorskip("transformers", reason="builds the model; install slipstick[hf]")

# Sizes of the published config.json of ibm-ai-platform/Bamba-9B.
HIDDEN, FFN, VOCAB, HEADS, P, N, CHUNK, KERNEL, GROUPS = 4096, 14336, 128256, 128, 64, 128, 256, 4, 1
SCANS, ATTENTIONS, KV_WIDTH = 29, 3, 8 * 128
INNER = HEADS * P
CHANNELS = INNER + 2 * GROUPS * N
SEQ = 2048
CONFIG = {
    "model_type": "bamba", "hidden_size": HIDDEN, "intermediate_size": FFN, "num_hidden_layers": 32,
    "attn_layer_indices": [9, 18, 27], "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": VOCAB,
    "mamba_n_heads": HEADS, "mamba_d_head": P, "mamba_n_groups": GROUPS, "mamba_d_state": N, "mamba_d_conv": KERNEL,
    "mamba_expand": 2, "mamba_chunk_size": CHUNK, "tie_word_embeddings": False,
}  # fmt: skip


def traced(workload: Workload) -> Graph:
    return load_config(config_of("bamba-9b", CONFIG), workload)


def answer(workload: Workload, *, tp: int = 1, dp: int = 1) -> Estimate:
    train = workload is Workload.TRAIN
    family = Family(workload=workload, zero=3 if train else 0)
    length = {"seq_len": SEQ, "kv_len": SEQ} if workload is Workload.DECODE else {"seq_len": SEQ}
    plan = make_plan(num_gpus=tp * dp, tp=tp, family=family, micro_batch=1, **length)
    found = estimate(traced(workload), load_system("dgx-h100"), plan)
    assert sum(found.breakdown_s.values()) == pytest.approx(found.metrics["step_time_s"], rel=1e-12)
    assert any(part.startswith("compute.scan") and s > 0 for part, s in found.breakdown_s.items()), found.breakdown_s
    return found


def flops_a_token(scans: int = SCANS, attentions: int = ATTENTIONS) -> float:
    """Products of one token: projections and MLP 2 m n each, attention 4 a pair and width, the scan of a layer."""
    mlp = 2 * 3 * HIDDEN * FFN
    scan = 2 * CHUNK * N * GROUPS + HEADS * (2 * CHUNK * P + 4 * N * P)
    mamba = 2 * HIDDEN * (INNER + CHANNELS + HEADS) + 2 * INNER * HIDDEN + scan
    attention = 2 * 2 * HIDDEN * (HIDDEN + KV_WIDTH) + 4 * SEQ * HIDDEN
    return scans * (mamba + mlp) + attentions * (attention + mlp)


def test_a_prompt_takes_the_flops_of_its_products_and_scans() -> None:
    found = answer(Workload.PREFILL)
    head = 2 * HIDDEN * VOCAB  # of the last token alone
    assert found.metrics["model_flops"] == pytest.approx(SEQ * flops_a_token() + head, rel=1e-9)


def test_a_decode_step_holds_states_and_few_keys() -> None:
    """States in fp32, inputs of convolutions and keys and values in bf16; split over tp, but for nothing."""
    found = answer(Workload.DECODE, tp=2)
    states, inputs = 4 * HEADS * N * P, 2 * CHANNELS * KERNEL
    keys = 2 * 2 * (SEQ + 1) * KV_WIDTH
    held = SCANS * (states + inputs) + ATTENTIONS * keys
    assert found.memory_bytes["kv_cache"] == pytest.approx(held / 2, rel=1e-3)


def test_training_runs_thrice_the_forward_pass_and_what_kernels_repeat() -> None:
    """Backward is twice forward, in scans and attention as well: what kernels make again is no model work."""
    found = answer(Workload.TRAIN, dp=8)
    forward = SEQ * (flops_a_token() + 2 * HIDDEN * VOCAB)
    assert found.metrics["model_flops"] == pytest.approx(8 * 3 * forward, rel=1e-9)
    assert found.fits


def test_a_lone_attention_between_scans_is_linked_to_both_its_neighbours() -> None:
    """First and last layers of each class alone do not show what follows the attention."""
    config = CONFIG | {"num_hidden_layers": 8, "attn_layer_indices": [3]}
    graph = load_config(config_of("bamba-9b", config), Workload.TRAIN)
    layers = [name for name in graph.sequence() if name.startswith("block")]
    assert len(layers) == 8
    assert layers.count(layers[3]) == 1
    plan = make_plan(num_gpus=8, tp=1, family=Family(workload=Workload.TRAIN, zero=3), micro_batch=1, seq_len=SEQ)
    found = estimate(graph, load_system("dgx-h100"), plan)
    forward = SEQ * (flops_a_token(7, 1) + 2 * HIDDEN * VOCAB)
    assert found.metrics["model_flops"] == pytest.approx(8 * 3 * forward, rel=1e-9)
