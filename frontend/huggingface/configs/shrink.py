"""A config made small enough to run on simulated ranks: every kind of layer kept, sizes that degrees up to 8 divide.

What a model is (its kinds of layers, how many query heads share a key, what is tied) stays; widths, lengths and counts
become small, and different from one another, so that no two dims are taken for the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias, cast

from ....ir.errors import NotUnderstoodError, did_you_mean
from .models import Config, config_of

Fields: TypeAlias = Mapping[str, object]
DEPTHS = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "encoder_layers",
    "decoder_layers",
    "num_encoder_layers",
    "num_decoder_layers",
    "num_blocks",
    "depth",
)
# Layers below the number are of one kind, those from it on of another.
_FIRST = ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index")
# Layers of one kind come again after so many, at this place among them.
_PERIODS = (
    ("attn_layer_period", "attn_layer_offset"),
    ("expert_layer_period", "expert_layer_offset"),
    ("decoder_sparse_step", ""),
    ("interleave_moe_layer_step", ""),
    ("moe_layer_interval", ""),
)
_TYPES = ("layer_types", "layers_block_type", "layers_num_experts")
_PATTERN = "block_types"  # layer i is of kind pattern[i % len(pattern)]
_SHARED = "num_kv_shared_layers"
NOT_BUILT = ("vision", "audio", "image", "video", "vq", "text_encoder", "depth_decoder")
_MIN_LAYERS = 2
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
_MAX_CHOSEN = 2


class ConfigFields(Protocol):
    """What is read of a config object of transformers."""

    model_type: str


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
        # One head stays one, as many as queries stay as many; fewer become a quarter of them, which high degrees
        # copy.
        heads = next(
            (
                h
                for n in ("num_attention_heads", "n_head", "n_heads", "num_heads")
                if isinstance(h := all_fields.get(n), int)
            ),
            value,
        )
        return _HEADS if value == heads else 1 if value == 1 else _HEADS // 4
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


def shallow_fields(fields: Fields) -> tuple[Fields, Fields]:
    """Return the fields of a config with few layers, each kind among them, and all that the config object then says.

    NotUnderstoodError for a type that transformers does not know.
    """
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    from .building import config_object

    model_type = str(fields["model_type"])
    if model_type not in CONFIG_MAPPING:
        near = did_you_mean(model_type, list(CONFIG_MAPPING))
        raise NotUnderstoodError(f"transformers has no model type '{model_type}'{near}")
    rest = {k: v for k, v in fields.items() if k != "model_type"}
    config = cast("ConfigFields", config_object(model_type, rest))
    few = {**reduced(config, rest), "model_type": model_type}
    made = config_object(model_type, {k: v for k, v in few.items() if k != "model_type"})
    return few, cast("Fields", made.to_dict())


def reduced(config: ConfigFields, given: Fields, without: Sequence[str] = NOT_BUILT) -> Fields:
    """The given fields and those that make the config shallow, its parts first."""
    fields: dict[str, object] = dict(given)
    for name, part in parts_of(config, without):
        inside = reduced(part, cast(Fields, given.get(name) or {}), without)
        if inside:
            fields[name] = {"model_type": part.model_type, **inside} if part.model_type else inside
    found = (getattr(config, name, None) for name in DEPTHS)
    depth = next((n for n in found if isinstance(n, int)), 0)
    if depth > _MIN_LAYERS and not _hands_over_many(config):
        fields |= _shallow(config, depth)
    return fields


def _hands_over_many(config: ConfigFields) -> bool:
    """Whether others read the output of several layers or stages, by their number: then all of them stay."""
    indices = getattr(config, "_out_indices", None)
    return isinstance(indices, list | tuple) and len(indices) > 1


def parts_of(config: ConfigFields, without: Sequence[str]) -> Iterator[tuple[str, ConfigFields]]:
    """Configs inside a config; those left out, by words in their names, are not built."""
    for name in getattr(config, "sub_configs", {}):
        part = getattr(config, name, None)
        if hasattr(part, "model_type") and not any(word in name for word in without):
            yield name, cast(ConfigFields, part)


def _shallow(config: ConfigFields, depth: int) -> Fields:
    """Depths and lists of the first layers, as many as hold every kind.

    Layers at the end that share the keys and values of earlier ones are kinds of their own: some of them stay too.
    """
    shared = number_of(config, _SHARED) or 0
    own = depth - shared if shared < depth else depth
    kinds = [_kind(config, i, depth) for i in range(depth)]
    kept = [*range(_prefix(kinds[:own])), *(range(own, own + _prefix(kinds[own:])) if own < depth else ())]
    fields: dict[str, object] = {}
    for name, value in list(vars(config).items()):
        if name in DEPTHS and isinstance(value, int):
            fields[name] = len(kept)
        elif _is_index_list(name, value):
            fields[name] = [place for place, i in enumerate(kept) if i in cast("Sequence[int]", value)]
        elif isinstance(value, list | tuple) and len(value) == depth and not name.startswith("_"):
            fields[name] = [value[i] for i in kept]
    if shared:
        fields[_SHARED] = sum(i >= own for i in kept) if own < depth else len(kept)
    return {**fields, **_derived(config, fields, len(kept))}


def _prefix(kinds: Sequence[object]) -> int:
    """How many layers to keep: all kinds are among them, and they are at least twice as many as there are kinds."""
    names = set(kinds)
    needed = max(kinds.index(kind) for kind in names) + 1
    return min(len(kinds), max(needed, 2 * len(names), _MIN_LAYERS))


def _kind(config: ConfigFields, i: int, depth: int) -> tuple[object, ...]:
    """What tells layers apart: their entries in lists, and where they stand among numbers that a config counts by."""
    values = {**vars(config), **{name: getattr(config, name, None) for name in _TYPES}}
    indices = {k: v for k, v in values.items() if _is_index_list(k, v)}
    chosen = [i in cast("Sequence[int]", v) for v in indices.values()]
    rest = ((k, v) for k, v in values.items() if k not in indices and not k.startswith("_"))
    lists = [repr(v[i]) for _, v in rest if isinstance(v, list | tuple) and len(v) == depth]
    first = [i < number for name in _FIRST if (number := number_of(config, name)) is not None]
    pattern = getattr(config, _PATTERN, None)
    turn = [pattern[i % len(pattern)]] if isinstance(pattern, list | tuple) and pattern else []
    return (*lists, *chosen, *first, *_turns(config, i), *turn)


def _turns(config: ConfigFields, i: int) -> Iterator[bool]:
    for period_name, offset_name in _PERIODS:
        period = number_of(config, period_name)
        if period:
            offset = number_of(config, offset_name) if offset_name else period - 1
            yield i % period == (offset or 0)


def _is_index_list(name: str, value: object) -> bool:
    """Whether a field lists the layers that are of some kind: `mlp_only_layers`, `cross_attention_layers`."""
    named = name.endswith(
        ("_layers", "_layer_ids", "_layer_indices", "_layer_idxs", "_attn_indexes")
    ) and not name.startswith("_")
    if not named or not isinstance(value, list | tuple) or name == "no_rope_layers":
        return False
    return all(isinstance(v, int) for v in value) and len(set(value)) == len(value)


def number_of(config: ConfigFields, name: str) -> int | None:
    """Return a field that is a whole number, None where it is none."""
    found = getattr(config, name, None)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _derived(config: ConfigFields, fields: Fields, total: int) -> Fields:
    """Fields from which a config makes its lists of layers anew, in its own notation."""
    if hasattr(config, "attention_types") and "attention_layers" in fields:
        return {"attention_types": [[fields["attention_layers"], 1]]}
    if hasattr(config, "num_layers_per_stack"):
        return {"num_hidden_layers": total, "num_layers_per_stack": None}
    return {}
