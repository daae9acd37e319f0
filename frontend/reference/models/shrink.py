"""A config made small enough to run on simulated ranks: every kind of layer kept, sizes that degrees up to 8 divide.

What a model is (its kinds of layers, how many query heads share a key, what is tied) stays; widths, lengths and counts
become small, and different from one another, so that no two dims are taken for the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

from ...huggingface.configs.models import Config, config_of
from ...huggingface.configs.small_configs import shallow_fields

# Sizes by the names that configs give them. Heads are 8, of 16: what a hidden size is made of where nothing else says.
_HIDDEN, _HEADS, _HEAD_DIM = 128, 8, 16
_SIZES: Mapping[str, int] = {
    "hidden_size": _HIDDEN, "n_embd": _HIDDEN, "d_model": _HIDDEN, "dim": _HIDDEN, "embedding_size": _HIDDEN,
    "word_embed_proj_dim": _HIDDEN, "intermediate_size": 176, "ffn_dim": 176, "n_inner": 176, "d_ff": 176,
    "ffn_hidden_size": 176, "decoder_ffn_dim": 176, "encoder_ffn_dim": 176, "expert_ffn_hidden_size": 56,
    "moe_intermediate_size": 56, "expert_intermediate_size": 56, "shared_expert_intermediate_size": 80,
    "moe_shared_expert_intermediate_size": 80, "shared_intermediate_size": 80, "intermediate_size_mlp": 176,
    "num_attention_heads": _HEADS, "n_head": _HEADS, "n_heads": _HEADS, "num_heads": _HEADS,
    "decoder_attention_heads": _HEADS, "encoder_attention_heads": _HEADS, "head_dim": _HEAD_DIM, "d_kv": _HEAD_DIM,
    "attention_head_dim": 2 * _HEAD_DIM, "vocab_size": 288, "q_lora_rank": 40, "kv_lora_rank": 56,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8, "qk_head_dim": 24, "v_head_dim": 20, "rotary_dim": 8, "global_head_dim": 32,
    "linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_key_head_dim": 12, "linear_value_head_dim": 20,
    "mamba_d_state": 12, "mamba_n_heads": 16, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_num_heads": 16,
    "mamba_head_dim": 16, "ssm_state_size": 12, "state_size": 12, "mamba_dt_rank": 8, "time_step_rank": 8,
    "lru_width": _HIDDEN, "mamba_chunk_size": 8, "chunk_size": 8, "max_window_layers": 1, "ffn_config": 0,
    "num_local_experts": 8, "num_experts": 8, "n_routed_experts": 8, "moe_num_experts": 8, "n_group": 2,
    "topk_group": 1, "sliding_window": 6, "attention_window_size": 6, "window_size": 6, "attention_chunk_size": 8,
    "max_position_embeddings": 64, "n_positions": 64, "n_ctx": 64, "max_seq_len": 64,
    "original_max_position_embeddings": 32,
    "index_topk": 8, "index_n_heads": 4, "index_head_dim": 16, "conv_L_cache": 3, "block_dim": _HIDDEN,
    "block_ff_dim": 176, "attention_hidden_size": 2 * _HIDDEN, "mamba_intermediate_size": 256, "pad_token_id": 0,
    "hidden_size_per_layer_input": 24, "vocab_size_per_layer_input": 288, "dt_rank": 8, "time_step_limit": 0,
}  # fmt: skip
_KEPT = ("ffn_config", "time_step_limit", "pad_token_id", "sliding_window", "max_window_layers")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "num_key_value_groups_")
_CHOSEN = ("num_experts_per_tok", "num_experts_per_token", "moe_top_k", "moe_topk", "top_k_experts", "moe_k")
_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "cls_token_id", "decoder_start_token_id")
_GROUPED = {"kv_n_heads": 4}
_MAX_CHOSEN = 2


def shrunken(config: Config) -> Config:
    """Return the config with few layers and small sizes; dropout and losses of auxiliary heads are off."""
    fields = json.loads(config.text)
    fields.pop("quantization_config", None)
    few, said = shallow_fields(fields)
    return config_of(config.name, _small(few, said))


def _small(given: Mapping[str, object], said: Mapping[str, object]) -> dict[str, object]:
    """Fields that were given and those of which the config object has a size, small."""
    made: dict[str, object] = {}
    for name, value in {**said, **given}.items():
        if isinstance(value, dict):
            if name.endswith("_config") and (name in given or "model_type" in value):
                inside = said.get(name)
                parts = cast("Mapping[str, object]", inside if isinstance(inside, dict) else {})
                made[name] = _small(cast("Mapping[str, object]", value), parts)
            elif name in given:
                made[name] = value
        elif name in given or _is_size(name):
            made[name] = _field(name, value, {**said, **given})
    return made


def _is_size(name: str) -> bool:
    return name in _SIZES or name in _KV_HEADS or name in _CHOSEN or name in _TOKENS or _is_off(name)


def _is_off(name: str) -> bool:
    """Whether a field is the share of something random, or the weight of a loss beside the loss."""
    return "dropout" in name or name.endswith(("_pdrop", "aux_loss_coef", "jitter_noise", "z_loss_coef"))


def _field(name: str, value: object, all_fields: Mapping[str, object]) -> object:
    if isinstance(value, bool) or value is None:
        return value
    if _is_off(name):
        return type(value)(0) if isinstance(value, int | float) else value
    if name in _KV_HEADS and isinstance(value, int):
        return _kv_heads(value, all_fields)
    if name in _CHOSEN and isinstance(value, int):
        return min(value, _MAX_CHOSEN)
    if name in _TOKENS and isinstance(value, int):
        return min(value, 2)
    if name == "head_dim" and "qk_rope_head_dim" in all_fields:
        return _SIZES["qk_rope_head_dim"]  # what latent attention calls so
    if name in _SIZES and isinstance(value, int) and value > 0 and name not in _KEPT:
        return min(value, _SIZES[name]) if name in ("mamba_n_groups", "sliding_window") else _SIZES[name]
    if name == "sliding_window" and isinstance(value, int):
        return _SIZES[name]
    return value


def _kv_heads(value: int, fields: Mapping[str, object]) -> int:
    """One head stays one, as many as queries stay as many; fewer become a quarter of them, which high degrees copy."""
    heads = next((h for n in ("num_attention_heads", "n_head", "n_heads", "num_heads")
                  if isinstance(h := fields.get(n), int)), value)  # fmt: skip
    return _HEADS if value == heads else 1 if value == 1 else _HEADS // 4


__all__ = ["shrunken"]
