"""What the library's default configs lack, by model type, in the sizes of published models."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

Fields = Mapping[str, object]

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

__all__ = ["PUBLISHED_SIZES", "Fields"]
