"""Packages of attention and of towers of text: open_clip, torchscale, local attention, Performer, Nystroem."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module

from torch import nn

from ..case import Case, Feed, ids

_DIM, _TOKENS = 256, 512
_WIDE = Feed(("batch", "seq", _DIM))


def _made(module: str, name: str, **options: object) -> nn.Module:
    make: Callable[..., nn.Module] = getattr(import_module(module), name)
    return make(**options)


def _case(package: str, name: str, module: str, kind: str, feed: Feed, **options: object) -> Case:
    return Case(package, name, partial(_made, module, kind, **options), (feed,))


def _clip_text(name: str) -> nn.Module:
    """The text tower of a model of open_clip, as it stands in the model."""
    package = import_module("open_clip")
    model: nn.Module = package.create_model(name, force_custom_text=True)
    return model.get_submodule("text")


def _torchscale(kind: str, config: str, file: str, **options: object) -> nn.Module:
    configs, models = (import_module(f"torchscale.architecture.{name}") for name in ("config", file))
    args = getattr(configs, config)(vocab_size=_TOKENS, **options)
    tokens = nn.Embedding(_TOKENS, _DIM)
    model: nn.Module = getattr(models, kind)(args, embed_tokens=tokens)
    return model


def _decoder(**options: object) -> nn.Module:
    return _torchscale("Decoder", "DecoderConfig", "decoder", decoder_embed_dim=_DIM, decoder_attention_heads=4,
                       decoder_ffn_embed_dim=1024, decoder_layers=3, **options)  # fmt: skip


def _encoder(**options: object) -> nn.Module:
    return _torchscale("Encoder", "EncoderConfig", "encoder", encoder_embed_dim=_DIM, encoder_attention_heads=4,
                       encoder_ffn_embed_dim=1024, encoder_layers=3, **options)  # fmt: skip


def _retnet() -> nn.Module:
    return _torchscale("RetNetDecoder", "RetNetConfig", "retnet", decoder_embed_dim=_DIM, decoder_value_embed_dim=512,
                       decoder_retention_heads=4, decoder_ffn_embed_dim=512, decoder_layers=3)  # fmt: skip


_CLIP = ("ViT-B-32", "ViT-B-32-quickgelu", "EVA02-B-16")
_SIZES = {"num_tokens": _TOKENS, "max_seq_len": 256, "dim": _DIM, "depth": 3}

CASES: tuple[Case, ...] = (
    *(Case("open_clip", f"{name} text", partial(_clip_text, name), (ids("batch", 77),)) for name in _CLIP),
    Case("torchscale", "decoder", _decoder, named={"prev_output_tokens": ids()}, feeds=()),
    Case("torchscale", "decoder xpos", partial(_decoder, xpos_rel_pos=True), (), {"prev_output_tokens": ids()}),
    Case("torchscale", "decoder deepnorm", partial(_decoder, deepnorm=True), (), {"prev_output_tokens": ids()}),
    Case("torchscale", "encoder", _encoder, (), {"src_tokens": ids()}),
    Case("torchscale", "retnet", _retnet, (), {"prev_output_tokens": ids()}),
    _case("local_attention", "transformer", "local_attention", "LocalTransformer", ids(), **_SIZES,
          local_attn_window_size=32),
    _case("performer_pytorch", "language model", "performer_pytorch", "PerformerLM", ids(), **_SIZES, heads=4,
          causal=False),
    _case("performer_pytorch", "encoder", "performer_pytorch", "Performer", _WIDE, dim=_DIM, depth=3, heads=4,
          dim_head=64),
    _case("nystrom_attention", "attention", "nystrom_attention", "NystromAttention", _WIDE, dim=_DIM, heads=4,
          num_landmarks=16),
    _case("nystrom_attention", "transformer", "nystrom_attention.nystrom_attention", "Nystromformer", _WIDE, dim=_DIM,
          depth=3, heads=4, num_landmarks=16),
)  # fmt: skip
