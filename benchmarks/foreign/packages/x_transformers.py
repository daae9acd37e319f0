"""x-transformers: the feature flags of its README, one configuration each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib import import_module

from torch import nn

from ..case import Case, Feed, ids, image

_DIM, _DEPTH, _HEADS, _TOKENS, _LENGTH = 256, 3, 8, 512, 128


def _language_model(kind: str, layers: Mapping[str, object], wrapper: Mapping[str, object]) -> nn.Module:
    package = import_module("x_transformers")
    sizes: dict[str, object] = {"dim": _DIM, "depth": _DEPTH, "heads": _HEADS, **layers}
    model: nn.Module = package.TransformerWrapper(
        num_tokens=_TOKENS, max_seq_len=_LENGTH, attn_layers=getattr(package, kind)(**sizes), **wrapper
    )
    return model


def _case(name: str, kind: str = "Decoder", wrapper: Mapping[str, object] | None = None, **layers: object) -> Case:
    return Case("x-transformers", name, partial(_language_model, kind, layers, wrapper or {}))


def _encoder_decoder() -> nn.Module:
    model: nn.Module = import_module("x_transformers").XTransformer(
        dim=_DIM, enc_num_tokens=_TOKENS, enc_depth=3, enc_heads=_HEADS, enc_max_seq_len=_LENGTH,
        dec_num_tokens=_TOKENS, dec_depth=3, dec_heads=_HEADS, dec_max_seq_len=_LENGTH,
    )  # fmt: skip
    return model


def _vision() -> nn.Module:
    package = import_module("x_transformers")
    layers = package.Encoder(dim=_DIM, depth=_DEPTH, heads=_HEADS)
    model: nn.Module = package.ViTransformerWrapper(image_size=256, patch_size=32, num_classes=1000, attn_layers=layers)
    return model


def _continuous() -> nn.Module:
    package = import_module("x_transformers")
    layers = package.Encoder(dim=_DIM, depth=_DEPTH, heads=_HEADS)
    model: nn.Module = package.ContinuousTransformerWrapper(
        dim_in=32, dim_out=100, max_seq_len=_LENGTH, attn_layers=layers
    )
    return model


def _cross_attender() -> nn.Module:
    model: nn.Module = import_module("x_transformers").CrossAttender(dim=_DIM, depth=_DEPTH, heads=_HEADS)
    return model


def _layers(kind: str) -> nn.Module:
    model: nn.Module = getattr(import_module("x_transformers"), kind)(dim=_DIM, depth=_DEPTH, heads=_HEADS)
    return model


_WIDE = Feed(("batch", "seq", _DIM))

CASES: tuple[Case, ...] = (
    _case("decoder"),
    _case("encoder", "Encoder"),
    _case("rotary", rotary_pos_emb=True),
    _case("rotary_xpos", rotary_xpos=True),
    _case("alibi", alibi_pos_bias=True, alibi_num_heads=4),
    _case("t5_rel_pos", rel_pos_bias=True),
    _case("dynamic_pos_bias", dynamic_pos_bias=True),
    _case("flash", attn_flash=True),
    _case("flash_alibi", attn_flash=True, alibi_pos_bias=True),
    _case("glu", ff_glu=True),
    _case("swish_glu", ff_swish=True, ff_glu=True),
    _case("relu_squared", ff_relu_squared=True),
    _case("no_bias_rmsnorm", ff_no_bias=True, use_rmsnorm=True),
    _case("simple_rmsnorm", use_simple_rmsnorm=True),
    _case("scalenorm", use_scalenorm=True),
    _case("sandwich_norm", sandwich_norm=True),
    _case("post_norm", pre_norm=False),
    _case("sandwich_coef", sandwich_coef=2),
    _case("macaron", macaron=True),
    _case("gate_residual", gate_residual=True),
    _case("residual_attn", residual_attn=True),
    _case("memory_tokens", "Encoder", {"num_memory_tokens": 20}),
    _case("mem_kv", "Encoder", attn_num_mem_kv=16),
    _case("qk_norm", attn_qk_norm=True),
    _case("qk_norm_dim_scale", attn_qk_norm=True, attn_qk_norm_dim_scale=True),
    _case("talking_heads", attn_pre_talking_heads=True, attn_post_talking_heads=True),
    _case("sparse_topk", attn_sparse_topk=8),
    _case("shift_tokens", shift_tokens=1),
    _case("one_kv_head", attn_one_kv_head=True),
    _case("kv_heads", attn_kv_heads=2),
    _case("gate_values", attn_gate_values=True),
    _case("hyper_connections", num_residual_streams=4),
    _case("value_residual", add_value_residual=True),
    _case("cosine_sim_gumbel", attn_gumbel_softmax=True),
    _case("l2_distance", attn_l2_distance=True),
    _case("sigmoid_attention", attn_sigmoid=True),
    _case("data_dependent_alibi", attn_data_dependent_alibi=True),
    _case("selective", attn_selective=True),
    _case("layer_scale", use_layerscale=True),
    _case("unet_skips", unet_skips=True),
    _case("latent_qkv", attn_use_latent_q=True, attn_dim_latent_q=128, attn_use_latent_kv=True, attn_dim_latent_kv=128),
    _case("tied_embedding", wrapper={"tie_embedding": True}),
    _case("cls_token", "Encoder", {"use_cls_token": True, "use_abs_pos_emb": False}),
    _case("mixture_of_softmax", wrapper={"mixture_of_softmax": True}),
    Case("x-transformers", "encoder_decoder", _encoder_decoder, named={"src": ids(), "tgt": ids()}),
    Case("x-transformers", "vision", _vision, (image(256),)),
    Case("x-transformers", "continuous", _continuous, (Feed(("batch", "seq", 32)),)),
    Case("x-transformers", "cross_attender", _cross_attender, (_WIDE,), {"context": Feed(("batch", 40, _DIM))}),
    Case("x-transformers", "encoder_layers", partial(_layers, "Encoder"), (_WIDE,)),
    Case("x-transformers", "decoder_layers", partial(_layers, "Decoder"), (_WIDE,)),
)
