"""Tests of the catalogue's sizes and shapes: by hand from the matrices, and as transformers builds them."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import pytest

from slipstick.frontend.huggingface.configs.models import Config, index, names, read_config


@dataclass(frozen=True, slots=True)
class Card:
    """One row of a published card: layers, query heads, key-value heads, head dim, rope base."""

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope_theta: float | None = None
    rope_type: str | None = None


# GPT-2: Radford et al. 2019, table 2, head dim 64. GPT-3: arXiv 2005.14165 table 2.1. Megatron: arXiv
# 2205.05198 table 3. Llama 2: arXiv 2307.09288. Llama 3.1: arXiv 2407.21783 table 3. Qwen3: arXiv 2505.09388
# tables 1 and 2. Mixtral: arXiv 2401.04088 table 1 and the 8x22B config. DeepSeek-V3: arXiv 2412.19437
# section 4.2 (query-key dim 128 + 64 a head). gpt-oss: arXiv 2508.10925 section 2. Rope: the published
# config.json.
CARDS = {
    "gpt2": Card(12, 12, 12, 64),
    "gpt2-medium": Card(24, 16, 16, 64),
    "gpt2-large": Card(36, 20, 20, 64),
    "gpt2-xl": Card(48, 25, 25, 64),
    "gpt3-175b": Card(96, 96, 96, 128),
    "megatron-22b": Card(48, 64, 64, 96),
    "megatron-175b": Card(96, 96, 96, 128),
    "megatron-530b": Card(105, 128, 128, 160),
    "megatron-1t": Card(128, 160, 160, 160),
    "llama-2-7b": Card(32, 32, 32, 128, 1e4, "default"),
    "llama-2-13b": Card(40, 40, 40, 128, 1e4, "default"),
    "llama-2-70b": Card(80, 64, 8, 128, 1e4, "default"),
    "llama-3.1-8b": Card(32, 32, 8, 128, 5e5, "llama3"),
    "llama-3.1-70b": Card(80, 64, 8, 128, 5e5, "llama3"),
    "llama-3.1-405b": Card(126, 128, 8, 128, 5e5, "llama3"),
    "qwen3-8b": Card(36, 32, 8, 128, 1e6, "default"),
    "qwen3-32b": Card(64, 64, 8, 128, 1e6, "default"),
    "qwen3-30b-a3b": Card(48, 32, 4, 128, 1e6, "default"),
    "qwen3-235b-a22b": Card(94, 64, 4, 128, 1e6, "default"),
    "mixtral-8x7b": Card(32, 32, 8, 128, 1e6, "default"),
    "mixtral-8x22b": Card(56, 48, 8, 128, 1e6, "default"),
    "deepseek-v3": Card(61, 128, 128, 192, 1e4, "yarn"),
    "gpt-oss-20b": Card(24, 64, 8, 64, 1.5e5, "yarn"),
    "gpt-oss-120b": Card(36, 64, 8, 64, 1.5e5, "yarn"),
}


class Fields:
    """The integers of one config, by key."""

    def __init__(self, config: Config) -> None:
        self._fields = cast("dict[str, object]", json.loads(config.text))

    def __contains__(self, key: str) -> bool:
        return self._fields.get(key) is not None

    def __getitem__(self, key: str) -> int:
        value = self._fields[key]
        assert isinstance(value, int), key
        return value


def test_every_catalogue_model_has_a_card() -> None:
    assert names() == tuple(CARDS)


# Symbols: V vocabulary, h hidden, L layers, a heads, k key-value heads, d head dim, f FFN inner, E experts.


def gpt2_size(c: Fields) -> int:
    """Tied embedding, learned positions, a bias on every matrix and every norm."""
    h = c["n_embd"]
    f = c["n_inner"] if "n_inner" in c else 4 * h
    attention = (h * 3 * h + 3 * h) + (h * h + h)
    mlp = (h * f + f) + (f * h + h)
    norm = 2 * h
    return (c["vocab_size"] + c["n_positions"]) * h + c["n_layer"] * (attention + mlp + 2 * norm) + norm


def gqa_size(c: Fields) -> int:
    """q, k, v and o projections without bias."""
    h, a = c["hidden_size"], c["num_attention_heads"]
    d = c["head_dim"] if "head_dim" in c else h // a
    return h * a * d + 2 * h * c["num_key_value_heads"] * d + a * d * h


def untied_size(c: Fields, layers: int) -> int:
    """Embedding and head, the layers, two norms a layer and one at the end."""
    h = c["hidden_size"]
    return 2 * c["vocab_size"] * h + layers + (2 * c["num_hidden_layers"] + 1) * h


def llama_size(c: Fields) -> int:
    return untied_size(c, c["num_hidden_layers"] * (gqa_size(c) + 3 * c["hidden_size"] * c["intermediate_size"]))


def qwen3_size(c: Fields) -> int:
    """Llama plus one norm of head dim for queries and one for keys."""
    return llama_size(c) + c["num_hidden_layers"] * 2 * c["head_dim"]


def experts_size(h: int, f: int, num_experts: int) -> int:
    """Router and gated experts."""
    return num_experts * (h + 3 * h * f)


def qwen3_moe_size(c: Fields) -> int:
    experts = experts_size(c["hidden_size"], c["moe_intermediate_size"], c["num_experts"])
    return untied_size(c, c["num_hidden_layers"] * (gqa_size(c) + 2 * c["head_dim"] + experts))


def mixtral_size(c: Fields) -> int:
    experts = experts_size(c["hidden_size"], c["intermediate_size"], c["num_local_experts"])
    return untied_size(c, c["num_hidden_layers"] * (gqa_size(c) + experts))


def mla_size(c: Fields) -> int:
    """Low-rank queries and keys-values with norms, output projection (arXiv 2412.19437, section 2.1.1)."""
    h, a, q_rank, kv_rank = c["hidden_size"], c["num_attention_heads"], c["q_lora_rank"], c["kv_lora_rank"]
    nope, rope, v = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    query = h * q_rank + q_rank + q_rank * a * (nope + rope)
    key_value = h * (kv_rank + rope) + kv_rank + kv_rank * a * (nope + v)
    return query + key_value + a * v * h


def deepseek_v3_size(c: Fields) -> int:
    """Dense layers first, then one shared and many routed experts; the routing bias is a buffer."""
    h, dense = c["hidden_size"], c["first_k_dense_replace"]
    moe = experts_size(h, c["moe_intermediate_size"], c["n_routed_experts"])
    moe += c["n_shared_experts"] * 3 * h * c["moe_intermediate_size"]
    mlp = dense * 3 * h * c["intermediate_size"] + (c["num_hidden_layers"] - dense) * moe
    return untied_size(c, c["num_hidden_layers"] * mla_size(c) + mlp)


def gpt_oss_size(c: Fields) -> int:
    """Biases everywhere, and one attention sink a head."""
    h, f, num_experts = c["hidden_size"], c["intermediate_size"], c["num_local_experts"]
    a, k, d = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    attention = gqa_size(c) + (a * d + 2 * k * d + h) + a
    experts = experts_size(h, f, num_experts) + num_experts * (1 + 2 * f + h)
    return untied_size(c, c["num_hidden_layers"] * (attention + experts))


SIZES: dict[str, Callable[[Fields], int]] = {
    "gpt2": gpt2_size,
    "llama": llama_size,
    "qwen3": qwen3_size,
    "qwen3_moe": qwen3_moe_size,
    "mixtral": mixtral_size,
    "deepseek_v3": deepseek_v3_size,
    "gpt_oss": gpt_oss_size,
}


@pytest.mark.parametrize("name", CARDS)
def test_the_stated_size_is_the_sum_of_the_matrices(name: str) -> None:
    config = read_config(name)
    assert SIZES[config.model_type](Fields(config)) == index()[name].num_parameters


@pytest.mark.parametrize("name", CARDS)
def test_the_stated_size_is_near_the_published_one(name: str) -> None:
    entry = index()[name]
    match = re.match(r"(\d+(?:\.\d+)?)([MB])\b", entry.published_parameters)
    assert match is not None
    published = float(match[1]) * {"M": 1e6, "B": 1e9}[match[2]]
    assert entry.num_parameters == pytest.approx(published, rel=0.015)


@pytest.mark.oracle
@pytest.mark.parametrize("name", CARDS)
def test_transformers_builds_the_model_the_card_describes(name: str, caplog: pytest.LogCaptureFixture) -> None:
    transformers = pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")
    import torch

    fields = cast("dict[str, object]", json.loads(read_config(name).text))
    logger = logging.getLogger("transformers")
    caplog.set_level(logging.WARNING, logger.name)
    logger.addHandler(caplog.handler)
    try:
        config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(config)
    finally:
        logger.removeHandler(caplog.handler)
    assert [type(model).__name__] == fields["architectures"]
    assert sum(weight.numel() for weight in model.parameters()) == index()[name].num_parameters
    assert card_of(config) == CARDS[name]
    assert [record.message for record in caplog.records] == []


def card_of(config: object) -> Card:
    """Read back what transformers understood, after its own renaming and defaults."""
    num_heads = cast("int", getattr(config, "num_attention_heads"))  # noqa: B009
    hidden = cast("int", getattr(config, "hidden_size"))  # noqa: B009
    rope = cast("dict[str, object]", getattr(config, "rope_parameters", None) or {})
    # MLA: transformers calls the rotary part alone head_dim
    stated = getattr(config, "qk_head_dim", None) or getattr(config, "head_dim", None)
    return Card(
        num_layers=cast("int", getattr(config, "num_hidden_layers")),  # noqa: B009
        num_heads=num_heads,
        num_kv_heads=cast("int", getattr(config, "num_key_value_heads", num_heads)),
        head_dim=cast("int", stated or hidden // num_heads),
        rope_theta=cast("float | None", rope.get("rope_theta")),
        rope_type=cast("str | None", rope.get("rope_type")),
    )
