"""Diffusion models of diffusers, a few narrow layers of each: a training step, and one step of denoising."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module

import torch
from torch import nn

from ..case import Case, Feed, ids

_STEP = Feed(("batch",), torch.int64)
_HEADS = {"num_attention_heads": 4, "attention_head_dim": 32}
_PLAIN: Mapping[str, object] = {"return_dict": False}


def _built(name: str, settings: Mapping[str, object]) -> nn.Module:
    model: nn.Module = getattr(import_module("diffusers"), name)(**settings)
    return model


def _case(
    name: str, settings: Mapping[str, object], feeds: Mapping[str, Feed], options: Mapping[str, object] = _PLAIN
) -> Case:
    return Case("diffusers", name, partial(_built, name, settings), (), feeds, options)


def _latent(channels: int, *sizes: int) -> Feed:
    return Feed(("batch", channels, *sizes))


def _text(length: int, width: int) -> Feed:
    return Feed(("batch", length, width))


def _mask(length: int) -> Feed:
    return Feed(("batch", length), torch.bool)


def _fixed(*sizes: int) -> Feed:
    return Feed(sizes)


_JOINT = {"joint_attention_dim": 64}
_FLUX = {"num_layers": 2, "num_single_layers": 3, **_HEADS, **_JOINT, "axes_dims_rope": (8, 12, 12)}
_FLUX_FEEDS = {
    "hidden_states": Feed(("batch", 256, 64)), "encoder_hidden_states": _text(32, 64), "timestep": Feed(("batch",)),
    "img_ids": _fixed(256, 3), "txt_ids": _fixed(32, 3),
}  # fmt: skip
_POOLED = {"pooled_projections": Feed(("batch", 64))}
_COGVIEW_SIZES = {name: Feed(("batch", 2)) for name in ("original_size", "target_size", "crop_coords")}
_COGVIEW = {"num_layers": 3, **_HEADS, "text_embed_dim": 64, "time_embed_dim": 64, "condition_dim": 32,
            "sample_size": 32}  # fmt: skip
_COGVIEW_FEEDS = {
    "hidden_states": _latent(16, 32, 32), "encoder_hidden_states": _text(32, 64), "timestep": _STEP, **_COGVIEW_SIZES,
}  # fmt: skip

_IMAGES = (
    _case("DiTTransformer2DModel", {"num_layers": 4, **_HEADS},
          {"hidden_states": _latent(4, 32, 32), "timestep": _STEP, "class_labels": _STEP}),
    _case("PixArtTransformer2DModel",
          {"num_layers": 4, **_HEADS, "cross_attention_dim": 128, "caption_channels": 64, "sample_size": 32,
           "use_additional_conditions": False},
          {"hidden_states": _latent(4, 32, 32), "encoder_hidden_states": _text(32, 64), "timestep": _STEP,
           "encoder_attention_mask": _mask(32)},
          {**_PLAIN, "added_cond_kwargs": {"resolution": None, "aspect_ratio": None}}),
    _case("SD3Transformer2DModel",
          {"num_layers": 4, **_HEADS, **_JOINT, "caption_projection_dim": 128, "pooled_projection_dim": 64,
           "sample_size": 32, "qk_norm": "rms_norm"},
          {"hidden_states": _latent(16, 32, 32), "encoder_hidden_states": _text(32, 64), **_POOLED,
           "timestep": _STEP}),
    _case("FluxTransformer2DModel", {**_FLUX, "pooled_projection_dim": 64, "guidance_embeds": True},
          {**_FLUX_FEEDS, **_POOLED, "guidance": Feed(("batch",))}),
    _case("Flux2Transformer2DModel", {**_FLUX, "axes_dims_rope": (8, 8, 8, 8), "in_channels": 64},
          {**_FLUX_FEEDS, "img_ids": _fixed(256, 4), "txt_ids": _fixed(32, 4), "guidance": Feed(("batch",))}),
    _case("ChromaTransformer2DModel", {**_FLUX, "approximator_hidden_dim": 64, "approximator_layers": 2},
          _FLUX_FEEDS),
    _case("BriaTransformer2DModel", _FLUX, _FLUX_FEEDS),
    _case("QwenImageTransformer2DModel",
          {"num_layers": 3, **_HEADS, **_JOINT, "axes_dims_rope": (8, 12, 12)},
          {"hidden_states": Feed(("batch", 256, 64)), "encoder_hidden_states": _text(32, 64),
           "timestep": Feed(("batch",))},
          {**_PLAIN, "img_shapes": [[(1, 16, 16)]] }),
    _case("SanaTransformer2DModel",
          {"num_layers": 4, **_HEADS, "num_cross_attention_heads": 4, "cross_attention_head_dim": 32,
           "cross_attention_dim": 128, "caption_channels": 64, "sample_size": 32},
          {"hidden_states": _latent(32, 32, 32), "encoder_hidden_states": _text(32, 64), "timestep": _STEP}),
    _case("AuraFlowTransformer2DModel",
          {"num_mmdit_layers": 2, "num_single_dit_layers": 3, **_HEADS, **_JOINT, "caption_projection_dim": 128,
           "sample_size": 32},
          {"hidden_states": _latent(4, 32, 32), "encoder_hidden_states": _text(32, 64), "timestep": Feed(("batch",))}),
    _case("LuminaNextDiT2DModel",
          {"num_layers": 3, "hidden_size": 128, "num_attention_heads": 4, "num_kv_heads": 4, "cross_attention_dim": 64,
           "sample_size": 32},
          {"hidden_states": _latent(4, 32, 32), "timestep": Feed(("batch",)), "encoder_hidden_states": _text(32, 64),
           "encoder_mask": _mask(32), "image_rotary_emb": Feed((384, 384, 16), torch.complex64)},
          {**_PLAIN, "cross_attention_kwargs": {}}),
    _case("CogView4Transformer2DModel", {**_COGVIEW, "rope_axes_dim": (16, 16)}, _COGVIEW_FEEDS),
    _case("CogView3PlusTransformer2DModel", {**_COGVIEW, "pos_embed_max_size": 32}, _COGVIEW_FEEDS),
    _case("HunyuanDiT2DModel",
          {"num_layers": 4, **_HEADS, "in_channels": 4, "patch_size": 2, "hidden_size": 128,
           "cross_attention_dim": 64, "cross_attention_dim_t5": 64, "pooled_projection_dim": 64, "text_len": 16,
           "text_len_t5": 16, "use_style_cond_and_image_meta_size": False},
          {"hidden_states": _latent(4, 32, 32), "timestep": Feed(("batch",)),
           "encoder_hidden_states": _text(16, 64), "text_embedding_mask": _mask(16),
           "encoder_hidden_states_t5": _text(16, 64), "text_embedding_mask_t5": _mask(16)}),
    _case("PriorTransformer", {"num_layers": 4, **_HEADS, "embedding_dim": 64},
          {"hidden_states": Feed(("batch", 64)), "timestep": Feed(("batch",)), "proj_embedding": Feed(("batch", 64)),
           "encoder_hidden_states": _text(77, 64), "attention_mask": _mask(77)}),
    _case("OmniGenTransformer2DModel",
          {"num_layers": 3, "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 4,
           "intermediate_size": 256, "vocab_size": 512, "pad_token_id": 0,
           "rope_scaling": {"long_factor": [1.0] * 16, "short_factor": [1.0] * 16}},
          {"hidden_states": _latent(4, 32, 32), "timestep": Feed(("batch",)), "input_ids": ids("batch", 32),
           "attention_mask": _mask(32 + 1 + 256), "position_ids": ids("batch", 32 + 1 + 256)},
          {**_PLAIN, "input_img_latents": [], "input_image_sizes": {}}),
)  # fmt: skip

_TEXT = {"encoder_hidden_states": _text(32, 64)}
_VIDEOS = (
    _case("WanTransformer3DModel",
          {"num_layers": 4, **_HEADS, "text_dim": 64, "freq_dim": 64, "ffn_dim": 256},
          {"hidden_states": _latent(16, 5, 16, 16), "timestep": _STEP, **_TEXT}),
    _case("CogVideoXTransformer3DModel",
          {"num_layers": 4, **_HEADS, "time_embed_dim": 64, "text_embed_dim": 64, "sample_width": 16,
           "sample_height": 16, "sample_frames": 17, "max_text_seq_length": 32},
          {"hidden_states": Feed(("batch", 5, 16, 16, 16)), **_TEXT, "timestep": _STEP}),
    _case("HunyuanVideoTransformer3DModel",
          {"num_layers": 2, "num_single_layers": 3, **_HEADS, "text_embed_dim": 64, "pooled_projection_dim": 64,
           "rope_axes_dim": (8, 12, 12)},
          {"hidden_states": _latent(16, 5, 16, 16), "timestep": _STEP, **_TEXT, "encoder_attention_mask": _mask(32),
           **_POOLED, "guidance": Feed(("batch",))}),
    _case("MochiTransformer3DModel",
          {"num_layers": 3, **_HEADS, "pooled_projection_dim": 64, "text_embed_dim": 64, "time_embed_dim": 64},
          {"hidden_states": _latent(12, 5, 16, 16), **_TEXT, "timestep": _STEP, "encoder_attention_mask": _mask(32)}),
    _case("LTXVideoTransformer3DModel",
          {"num_layers": 4, **_HEADS, "cross_attention_dim": 128, "caption_channels": 64},
          {"hidden_states": Feed(("batch", 5 * 64, 128)), **_TEXT, "timestep": Feed(("batch", 1)),
           "encoder_attention_mask": _mask(32)},
          {**_PLAIN, "num_frames": 5, "height": 8, "width": 8}),
    _case("AllegroTransformer3DModel",
          {"num_layers": 4, **_HEADS, "cross_attention_dim": 128, "caption_channels": 64, "sample_height": 16,
           "sample_width": 16, "sample_frames": 8},
          {"hidden_states": _latent(4, 8, 16, 16), "encoder_hidden_states": Feed(("batch", 1, 32, 64)),
           "timestep": _STEP, "attention_mask": Feed(("batch", 8, 16, 16)),
           "encoder_attention_mask": Feed(("batch", 1, 32))}),
    _case("LatteTransformer3DModel",
          {"num_layers": 2, **_HEADS, "in_channels": 4, "out_channels": 8, "cross_attention_dim": 128,
           "caption_channels": 64, "sample_size": 16, "patch_size": 2, "video_length": 8,
           "attention_bias": True, "norm_type": "ada_norm_single", "norm_elementwise_affine": False},
          {"hidden_states": _latent(4, 8, 16, 16), "timestep": _STEP, **_TEXT}),
    _case("CosmosTransformer3DModel",
          {"num_layers": 3, **_HEADS, "text_embed_dim": 64, "adaln_lora_dim": 32, "max_size": (8, 16, 16)},
          {"hidden_states": _latent(16, 4, 16, 16), "timestep": Feed(("batch",)), **_TEXT,
           "padding_mask": Feed((1, 1, 128, 128))}),
    _case("StableAudioDiTModel",
          {"num_layers": 4, **_HEADS, "num_key_value_attention_heads": 2, "cross_attention_dim": 64,
           "cross_attention_input_dim": 64, "global_states_input_dim": 64},
          {"hidden_states": Feed(("batch", 64, 128)), "timestep": Feed(("batch",)), **_TEXT,
           "global_hidden_states": Feed(("batch", 1, 64)),
           "encoder_attention_mask": replace(_mask(32), dtype=torch.bool)}),
)  # fmt: skip

_UNET = {"sample_size": 32, "block_out_channels": (32, 64), "layers_per_block": 2, "cross_attention_dim": 64,
         "attention_head_dim": 8, "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
         "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D")}  # fmt: skip
_VAE = {"block_out_channels": (32, 64), "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2, "layers_per_block": 2, "sample_size": 64}  # fmt: skip
_CONVOLVING = (
    _case("UNet2DConditionModel", _UNET,
          {"sample": _latent(4, 32, 32), "timestep": _STEP, "encoder_hidden_states": _text(77, 64)}),
    _case("UNet2DModel",
          {"sample_size": 32, "block_out_channels": (32, 64), "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
           "up_block_types": ("AttnUpBlock2D", "UpBlock2D")},
          {"sample": _latent(3, 32, 32), "timestep": _STEP}),
    _case("AutoencoderKL", _VAE, {"sample": _latent(3, 64, 64)}),
)  # fmt: skip

CASES: tuple[Case, ...] = (*_IMAGES, *_VIDEOS, *_CONVOLVING)
