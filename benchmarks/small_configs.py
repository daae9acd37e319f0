"""A small config of any model type of transformers: the library's own sizes, few layers, every kind of layer kept.

What the library's own defaults lack (a number of experts that is None, a hybrid without attention) is filled in from
the published models of that type, so that what comes out is a model that somebody could run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import cast

from slipstick.frontend.huggingface.configs.shrink import DEPTHS, ConfigFields, Fields, number_of, parts_of, reduced
from slipstick.ir.errors import NotUnderstoodError, did_you_mean

# How wide is what a part hands over to the text; an encoder of sound may say so of its output.
_HANDED_OVER, _OF_TOWERS = ("out_hidden_size", "text_hidden_size"), ("output_dim",)
# A tower with a width of its own under this name hands over what it calls its hidden size (Qwen2-VL).
_OWN_WIDTH = "embed_dim"
_FEATURE_LAYERS, _SECTIONS = ("feature_layer", "hook_ids"), "mrope_section"
# Ids of tokens that stand for what a tower reads, which are the last of the vocabulary where nobody gave them.
_PLACES = ("image_token_id", "video_token_id", "audio_token_id", "image_token_index")
_TOWERS = ("vision_config", "audio_config")
# What the published models of time series predict, with the month and the age of a value (tourism-monthly).
_PREDICTED, _OF_TIME = 24, 2
# Backbones of timm are ResNet-50 by default, which transformers has as well: its stages are numbered alike.
_FOREIGN_BACKBONE, _LAST_STAGE = "timm_backbone", 4

# Gemma 3n has 35 layers, of which 15 share, and long programs for each: here is every kind of them.
_GEMMA3N: Fields = {
    "num_hidden_layers": 8, "num_kv_shared_layers": 2, "layer_types": ["sliding_attention", "full_attention"] * 4,
    "activation_sparsity_pattern": [0.95, 0.95] + [0.0] * 6,
}  # fmt: skip

# GLM-4.1V and its kin turn half of a head, in sections of time, height and width.
_GLM_ROPE: Fields = {
    "rope_parameters": {
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [8, 12, 12],
    }
}  # fmt: skip

_SWIN_TINY: Fields = {"backbone_config": {"model_type": "swin", "out_indices": [2, 3, 4]}}  # grounding-dino-tiny

# What the defaults of a type lack, by model type; the sizes are those of the model named.
PUBLISHED_SIZES: Mapping[str, Fields] = MappingProxyType(
    {
        "aria": {"vision_config": {"image_size": 980, "patch_size": 14}},
        "bamba": {"attn_layer_indices": [2]},  # Bamba-9B: 9, 18, 27
        "chameleon": {"vocabulary_map": {"<image>": 8711, "IMGIMGAZ": 4}},
        "cohere_compass": {
            "text_config": {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}}
        },
        "cohere_compass_text": {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
        "dbrx": {  # dbrx-base
            "d_model": 6144, "n_heads": 48, "attn_config": {"kv_n_heads": 8, "clip_qkv": 8, "rope_theta": 5e5},
            "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
        },
        # DeepSeek-V2-Lite
        "deepseek_v2": {"num_experts_per_tok": 6, "first_k_dense_replace": 1, "moe_intermediate_size": 1408},
        "dots1": {  # dots.llm1.base
            "n_routed_experts": 128, "num_experts_per_tok": 6, "n_shared_experts": 2, "first_k_dense_replace": 1,
        },
        "esm": {  # esm2_t6_8M_UR50D
            "vocab_size": 33, "hidden_size": 320, "num_hidden_layers": 6, "num_attention_heads": 20,
            "intermediate_size": 1280, "mask_token_id": 32, "pad_token_id": 1, "position_embedding_type": "rotary",
            "token_dropout": True,
        },
        "gemma3": {"vision_config": {"image_size": 896, "patch_size": 14}},
        "ovis2": {  # Ovis2-2B
            "hidden_size": 1536, "text_config": {
                "model_type": "qwen2", "hidden_size": 1536, "intermediate_size": 8960, "num_attention_heads": 12,
                "num_key_value_heads": 2,
            },
        },
        "paligemma": {"projection_dim": 3072, "vision_config": {"projection_dim": 3072}},
        "gemma4_assistant": {
            "text_config": {
                "model_type": "gemma4_text", "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0,
            }
        },
        "gemma4_unified_assistant": {"text_config": {"model_type": "gemma4_unified_text"}},
        "gemma3n": {"text_config": {"model_type": "gemma3n_text", **_GEMMA3N}},
        "gemma3n_text": _GEMMA3N,
        "grounding-dino": _SWIN_TINY,
        "mm-grounding-dino": _SWIN_TINY,
        "granitemoehybrid": {  # granite-4.0-h-small: one of ten
            "num_hidden_layers": 3, "layer_types": ["linear_attention", "linear_attention", "full_attention"],
        },
        "glm4_moe": {"head_dim": 128},  # GLM-4.5
        "glm46v": {"text_config": {"model_type": "glm4v_text", **_GLM_ROPE}},
        "glm4v": {"text_config": {"model_type": "glm4v_text", **_GLM_ROPE}},
        "glm4v_text": _GLM_ROPE,
        "glm4v_moe": {"text_config": {"model_type": "glm4v_moe_text", "head_dim": 128, **_GLM_ROPE}},
        "glm4v_moe_text": {"head_dim": 128, **_GLM_ROPE},  # GLM-4.5V
        "glm_image": {"text_config": {"model_type": "glm_image_text", **_GLM_ROPE}},
        "glm_image_text": _GLM_ROPE,
        "glmga": {"text_config": {"model_type": "glm4v_text", **_GLM_ROPE}},
        "granite_speech": {"projector_config": {"model_type": "blip_2_qformer", "encoder_hidden_size": 1024}},
        "granite_speech_plus": {"projector_config": {"model_type": "blip_2_qformer", "encoder_hidden_size": 1024}},
        "hunyuan_v1_dense": {"head_dim": 128, "num_key_value_heads": 8},  # Hunyuan-7B
        "hunyuan_vl": {"text_config": {"head_dim": 128}},  # HunyuanOCR
        "hunyuan_vl_text": {"head_dim": 128},
        "idefics3": {"vision_config": {"image_size": 364, "patch_size": 14}},  # Idefics3-8B
        "llava_onevision": {  # llava-onevision-qwen2-7b
            "vision_config": {"model_type": "siglip_vision_model", "image_size": 384, "patch_size": 14},
        },
        "hunyuan_v1_moe": {"head_dim": 128, "num_key_value_heads": 8, "num_experts": 64, "moe_topk": 8},  # Hunyuan-A13B
        "lfm2": {"num_hidden_layers": 6, "layer_types": ["conv", "conv", "full_attention"] * 2},  # LFM2-1.2B: 10 and 6
        "lfm2_moe": {"num_hidden_layers": 6, "layer_types": ["conv", "conv", "full_attention"] * 2},  # LFM2-8B-A1B
        "llama4": {"vision_config": {"hidden_size": 1408, "num_hidden_layers": 34, "vision_output_dim": 4096}},
        "ministral": {"head_dim": 128},
        "lw_detr": {"projector_scale_factors": [1.0]},  # lwdetr_tiny
        "moonshine_streaming": {"num_key_value_heads": 8},  # moonshine-streaming-tiny: as many as heads
        "mpt": {"attn_config": {"alibi": True}},  # mpt-7b
        "nemotron": {"num_key_value_heads": 8},  # nemotron-4 and minitron use grouped queries
        "nemotron_h": {"layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"] * 2},
        "qwen4_exp": {
            "text_config": {
                "model_type": "qwen4_exp_text", "indexer_n_heads": 8, "indexer_kv_heads": 1, "indexer_head_dim": 256,
                "indexer_budget": 2048, "indexer_compress_ratio": 4,
            }
        },
        "qwen4_exp_text": {
            "indexer_n_heads": 8, "indexer_kv_heads": 1, "indexer_head_dim": 256, "indexer_budget": 2048,
            "indexer_compress_ratio": 4,
        },
        # A head that joins all stages, of which the backbone hands over the last by default.
        "uvdoc": {"backbone_config": {"model_type": "uvdoc_backbone", "out_indices": [1, 2, 3, 4, 5, 6]}},
        "t5gemma2_encoder": {"text_config": {"model_type": "t5gemma2_text", "dropout_rate": 0.0}},
        "xmod": {"default_language": "en_XX"},
        "smolvlm": {"scale_factor": 4, "vision_config": {"image_size": 512, "patch_size": 16}},  # SmolVLM2-500M
        "modernvbert": {"vision_config": {"image_size": 512, "patch_size": 16}},
        "t5gemma2": {"encoder": {"vision_config": {"image_size": 896, "patch_size": 14}}},
        # Two layers that share their attention at least: transformers ties the second to the first.
        "zamba": {"num_hidden_layers": 6, "layers_block_type": ["linear_attention", "linear_attention", "hybrid"] * 2},
        "zamba2": {"num_hidden_layers": 6, "layers_block_type": ["linear_attention", "linear_attention", "hybrid"] * 2},
    }
)  # fmt: skip


def small_config(model_type: str, is_whole: bool = False) -> Fields:
    """Return fields for `transformers.AutoConfig.for_model(model_type, **fields)`: few layers, each kind among them.

    A type with a causal language model gets that: `architectures` names its class, and models that are encoders, or
    have one, are told to be decoders. With `is_whole` it is the model of all parts, encoders of pictures and sound
    shallow as well. NotUnderstoodError for a type that transformers does not know.
    """
    config = _default(model_type)
    if is_whole:
        given = {**PUBLISHED_SIZES.get(model_type, {}), **_towers_left_out(config), **_filled_in(config)}
        config = _made(model_type, given)
        return _fitted(config, reduced(config, given, without=()))
    causal = _causal_class(model_type)
    fields = dict(reduced(config, PUBLISHED_SIZES.get(model_type, {})))
    if causal:
        fields |= {"architectures": [causal], **_as_decoder(config)}
    return fields


def _default(model_type: str) -> ConfigFields:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if model_type not in CONFIG_MAPPING:
        near = did_you_mean(model_type, list(CONFIG_MAPPING))
        raise NotUnderstoodError(f"transformers has no model type '{model_type}'{near}")
    return _made(model_type, PUBLISHED_SIZES.get(model_type, {}))


def _made(model_type: str, given: Fields) -> ConfigFields:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return cast("Callable[..., ConfigFields]", CONFIG_MAPPING[model_type])(**given)


def _towers_left_out(config: ConfigFields) -> Fields:
    """Encoders of pictures and sound that a default config is without, in their own default sizes."""
    parts: Mapping[str, type] = getattr(config, "sub_configs", {})
    lacking = {n: kind for n, kind in parts.items() if getattr(config, n, 0) is None and n in _TOWERS}
    types = {n: getattr(kind, "model_type", "") for n, kind in lacking.items()}
    return {n: {"model_type": model_type} for n, model_type in types.items() if model_type}


def _causal_class(model_type: str) -> str:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    found = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(model_type, "")
    return found if isinstance(found, str) else found[0]


def _as_decoder(config: ConfigFields) -> Fields:
    told = {"is_decoder": True} if hasattr(config, "is_decoder") else {}
    return told | ({"is_encoder_decoder": False} if getattr(config, "is_encoder_decoder", False) else {})


def _filled_in(config: ConfigFields) -> Fields:
    """What the defaults leave open of a whole model, or leave to another package that has the same backbone."""
    fields: dict[str, object] = {}
    if getattr(config, "prediction_length", 0) is None:
        fields |= {"prediction_length": _PREDICTED, "num_time_features": _OF_TIME}
    backbone = getattr(config, "backbone_config", None)
    if getattr(backbone, "model_type", "") == _FOREIGN_BACKBONE:
        indices = getattr(backbone, "out_indices", None) or [_LAST_STAGE]
        fields["backbone_config"] = {"model_type": "resnet", "out_indices": list(indices)}
    return fields


def _fitted(config: ConfigFields, fields: Fields) -> Fields:
    """The fields with parts that fit together, which the defaults may miss.

    A tower hands over what is as wide as the text; layers that features are taken from are among those that are left;
    the sections of rotary angles fill half a head.
    """
    made: dict[str, object] = {**fields, **_sectioned(config, fields)}
    width = getattr(getattr(config, "text_config", None), "hidden_size", None)
    for name, part in parts_of(config, ()):
        given = cast(Fields, made.get(name) or {})
        names = [n for n in (*_HANDED_OVER, *(_OF_TOWERS if name in _TOWERS else ())) if hasattr(part, n)]
        names = names or ["hidden_size"] * (hasattr(part, "hidden_size") and hasattr(part, _OWN_WIDTH))
        fitted = {**given, **_sectioned(part, given), **(dict.fromkeys(names, width) if width is not None else {})}
        if fitted:
            made[name] = fitted
    vocabulary = number_of(cast(ConfigFields, getattr(config, "text_config", config)), "vocab_size")
    places = [n for n in _PLACES if vocabulary and getattr(config, n, 0) is None]
    return {**made, **_among_the_left(config, made), **{n: cast(int, vocabulary) - 1 for n in places}}


def _sectioned(config: ConfigFields, fields: Fields) -> Fields:
    """Rotary parameters whose sections, of time, height and width, add up to half a head."""
    rope = getattr(config, "rope_parameters", None)
    sections = rope.get(_SECTIONS) if isinstance(rope, Mapping) else None
    if rope is None or not isinstance(sections, list):
        return {}
    heads, width = number_of(config, "num_attention_heads"), number_of(config, "hidden_size")
    if not heads or not width:
        return {}
    head = number_of(config, "head_dim") or width // heads
    angles = int(head * float(rope.get("partial_rotary_factor", 1.0))) // 2
    scaled = [n * angles // sum(sections) for n in sections]
    scaled[-1] += angles - sum(scaled)
    return {} if scaled == sections else {"rope_parameters": {**rope, _SECTIONS: scaled}}


def _among_the_left(config: ConfigFields, fields: Fields) -> Fields:
    """The layers that features are taken from, none of them beyond those that a tower has left."""
    parts = (
        cast(Fields, fields.get(name) or {}) for name, _ in parts_of(config, ()) if "vision" in name or "image" in name
    )
    left = next((n for part in parts for d in DEPTHS if isinstance(n := part.get(d), int)), 0)
    found = _within_all(config, left) if left else {}
    for name, part in parts_of(config, ()) if left else ():
        if inside := _within_all(part, left):
            found[name] = {**cast(Fields, fields.get(name) or {}), **inside}
    return found


def _within_all(config: ConfigFields, depth: int) -> dict[str, object]:
    taken = {n: v for n, v in vars(config).items() if any(w in n for w in _FEATURE_LAYERS) and v is not None}
    return {n: _within(v, depth) for n, v in taken.items() if _within(v, depth) != v}


def _within(layer: object, depth: int) -> object:
    if isinstance(layer, list | tuple):
        return [_within(one, depth) for one in layer]
    return max(min(layer, depth - 1), -depth) if isinstance(layer, int) else layer
