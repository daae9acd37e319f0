"""Torch's own: its attention, transformer and recurrent layers, its embeddings, and every other layer of `torch.nn`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from ..case import Case, Feed, ids

_WIDTH, _HEADS, _INNER = 256, 8, 1024
_WIDE = Feed(("batch", "seq", _WIDTH))
_SEQUENCE_FIRST = Feed(("seq", "batch", _WIDTH))
_MEMORY = Feed(("batch", 40, _WIDTH))
_PADDING = Feed(("batch", "seq"), torch.bool)


class _Embedded(nn.Module):
    """Tokens to vectors, layers, and back to the vocabulary."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.tokens = nn.Embedding(512, _WIDTH)
        self.layers = layers
        self.head = nn.Linear(_WIDTH, 512)

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.head(self.layers(self.tokens(ids)))
        return out


class _SelfAttention(nn.Module):
    """`nn.MultiheadAttention` of a tensor with itself, with what else it takes."""

    def __init__(self, need_weights: bool = False, **options: object) -> None:
        super().__init__()
        make = cast("Callable[..., nn.MultiheadAttention]", nn.MultiheadAttention)
        self.attention = make(_WIDTH, _HEADS, batch_first=True, **options)
        self.need_weights = need_weights

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        out: Tensor = self.attention(x, x, x, key_padding_mask=padding, need_weights=self.need_weights)[0]
        return out


class _Causal(nn.Module):
    """A layer of an encoder under a causal mask."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        out: Tensor = self.layer(x, mask, is_causal=True)
        return out


class _First(nn.Module):
    """A recurrent layer's outputs alone."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)[0]
        return out


class _Behind(nn.Module):
    """A layer behind a linear one, so that it has a gradient to hand on."""

    def __init__(self, first: nn.Module, layer: nn.Module) -> None:
        super().__init__()
        self.first, self.layer = first, layer

    def forward(self, x: Tensor) -> object:
        return self.layer(self.first(x))


class _Twice(nn.Module):
    """A layer of two tensors, both from a linear one."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.left, self.right, self.layer = nn.Linear(_WIDTH, _WIDTH), nn.Linear(_WIDTH, _WIDTH), layer

    def forward(self, x: Tensor) -> object:
        return self.layer(self.left(x), self.right(x))


def _encoder_layer(**options: object) -> nn.Module:
    make: Callable[..., nn.Module] = nn.TransformerEncoderLayer
    return make(_WIDTH, _HEADS, _INNER, **{"batch_first": True, **options})


def _decoder_layer(**options: object) -> nn.Module:
    make: Callable[..., nn.Module] = nn.TransformerDecoderLayer
    return make(_WIDTH, _HEADS, _INNER, **{"batch_first": True, **options})


def _encoder(**options: object) -> nn.Module:
    layer = _encoder_layer(**options)
    assert isinstance(layer, nn.TransformerEncoderLayer)
    return _Embedded(nn.TransformerEncoder(layer, 4, nn.LayerNorm(_WIDTH), enable_nested_tensor=False))


def _decoder() -> nn.Module:
    layer = _decoder_layer(norm_first=True)
    assert isinstance(layer, nn.TransformerDecoderLayer)
    return nn.TransformerDecoder(layer, 3)


def _transformer() -> nn.Module:
    return nn.Transformer(_WIDTH, _HEADS, 2, 2, _INNER, batch_first=True)


def _attention() -> Iterator[Case]:
    yield Case("torch", "MultiheadAttention", _SelfAttention, (_WIDE,))
    yield Case("torch", "MultiheadAttention weights", partial(_SelfAttention, need_weights=True), (_WIDE,))
    yield Case("torch", "MultiheadAttention padding", _SelfAttention, (_WIDE, _PADDING))
    yield Case("torch", "MultiheadAttention bias_kv", partial(_SelfAttention, add_bias_kv=True), (_WIDE,))
    yield Case("torch", "MultiheadAttention dropout", partial(_SelfAttention, dropout=0.1), (_WIDE,))
    yield Case("torch", "TransformerEncoderLayer", _encoder_layer, (_WIDE,))
    yield Case("torch", "TransformerEncoderLayer norm_first", partial(_encoder_layer, norm_first=True), (_WIDE,))
    first = partial(_encoder_layer, batch_first=False)
    yield Case("torch", "TransformerEncoderLayer seq first", first, (_SEQUENCE_FIRST,))
    yield Case("torch", "TransformerEncoderLayer no dropout", partial(_encoder_layer, dropout=0.0), (_WIDE,))
    yield Case("torch", "TransformerEncoderLayer gelu", partial(_encoder_layer, activation="gelu"), (_WIDE,))
    yield Case("torch", "TransformerEncoderLayer causal", lambda: _Causal(_encoder_layer()), (_WIDE,))
    padded = {"src": _WIDE, "src_key_padding_mask": _PADDING}
    yield Case("torch", "TransformerEncoderLayer padding", _encoder_layer, (), padded)
    yield Case("torch", "TransformerEncoder", _encoder, (ids(),))
    yield Case("torch", "TransformerEncoder norm_first", partial(_encoder, norm_first=True), (ids(),))
    yield Case("torch", "TransformerDecoderLayer", _decoder_layer, (_WIDE, _MEMORY))
    yield Case("torch", "TransformerDecoderLayer norm_first", partial(_decoder_layer, norm_first=True),
               (_WIDE, _MEMORY))  # fmt: skip
    yield Case("torch", "TransformerDecoder", _decoder, (_WIDE, _MEMORY))
    yield Case("torch", "Transformer", _transformer, (_MEMORY, _WIDE))


def _recurrent() -> Iterator[Case]:
    kinds: tuple[Callable[..., nn.Module], ...] = (nn.LSTM, nn.GRU, nn.RNN)
    for kind in kinds:
        name = getattr(kind, "__name__", "")
        plain = {"batch_first": True}
        for what, options in (("", plain), (" two layers", {**plain, "num_layers": 2, "dropout": 0.1}),
                              (" both ways", {**plain, "bidirectional": True}), (" seq first", {}),
                              (" no bias", {**plain, "bias": False})):  # fmt: skip
            feed = _SEQUENCE_FIRST if what == " seq first" else _WIDE
            yield Case("torch", f"{name}{what}", partial(_recurrence, kind, options), (feed,))
    projected = {"batch_first": True, "proj_size": 64}
    yield Case("torch", "LSTM projected", partial(_recurrence, nn.LSTM, projected), (_WIDE,))
    both = {**projected, "num_layers": 2, "bidirectional": True}
    yield Case("torch", "LSTM projected both ways", partial(_recurrence, nn.LSTM, both), (_WIDE,))
    for cell in (nn.GRUCell, nn.RNNCell, nn.LSTMCell):
        yield Case("torch", cell.__name__, partial(cell, _WIDTH, 128), (Feed(("batch", _WIDTH)),))


def _recurrence(kind: Callable[..., nn.Module], options: Mapping[str, object]) -> nn.Module:
    return _First(kind(_WIDTH, 128, **options))


def _behind(place: str, make: Callable[[], nn.Module]) -> nn.Module:
    first = {"row": nn.Linear(_WIDTH, _WIDTH), "line": nn.Conv1d(8, 8, 1), "plane": nn.Conv2d(8, 8, 1),
             "volume": nn.Conv3d(8, 8, 1)}  # fmt: skip
    return _Behind(first[place], make())


_PLACES = {
    "row": _WIDE, "line": Feed(("batch", 8, 32)), "plane": Feed(("batch", 8, 16, 16)),
    "volume": Feed(("batch", 8, 8, 8, 8)),
}  # fmt: skip
# Layers of one tensor, by what it is.
_LAYERS: Mapping[str, tuple[Callable[[], nn.Module], ...]] = {
    "row": (
        nn.CELU, nn.ELU, nn.GELU, partial(nn.GELU, approximate="tanh"), nn.Hardshrink, nn.Hardsigmoid, nn.Hardswish,
        nn.Hardtanh, nn.LeakyReLU, nn.LogSigmoid, nn.Mish, nn.PReLU, nn.RReLU, nn.ReLU, nn.ReLU6, nn.SELU, nn.SiLU,
        nn.Sigmoid, nn.Softplus, nn.Softshrink, nn.Softsign, nn.Tanh, nn.Tanhshrink, partial(nn.Threshold, 0.1, 0.0),
        nn.GLU, partial(nn.Softmax, dim=-1), partial(nn.LogSoftmax, dim=-1), partial(nn.Softmin, dim=-1), nn.Dropout,
        nn.AlphaDropout, nn.FeatureAlphaDropout, nn.Identity, partial(nn.LayerNorm, _WIDTH),
        partial(nn.RMSNorm, _WIDTH), partial(nn.Linear, _WIDTH, 64), nn.Flatten,
        partial(nn.Unflatten, 2, (16, 16)), partial(nn.AdaptiveAvgPool1d, 16), partial(nn.MaxPool1d, 2),
        partial(nn.AvgPool1d, 2, 2),
    ),
    "line": (
        partial(nn.Conv1d, 8, 16, 3), partial(nn.ConvTranspose1d, 8, 16, 3), partial(nn.BatchNorm1d, 8),
        partial(nn.InstanceNorm1d, 8), partial(nn.GroupNorm, 2, 8), partial(nn.MaxPool1d, 2),
        partial(nn.AvgPool1d, 2, 2), partial(nn.LPPool1d, 2, 2), partial(nn.AdaptiveMaxPool1d, 4),
        partial(nn.AdaptiveAvgPool1d, 4),
        partial(nn.ReflectionPad1d, 1), partial(nn.ReplicationPad1d, 1), partial(nn.ZeroPad1d, 1),
        partial(nn.CircularPad1d, 1), partial(nn.ConstantPad1d, 1, 0.5), nn.Dropout1d,
        partial(nn.Upsample, scale_factor=2), partial(nn.Upsample, scale_factor=2, mode="linear"),
    ),
    "plane": (
        partial(nn.Conv2d, 8, 16, 3), partial(nn.Conv2d, 8, 8, 3, groups=8), partial(nn.ConvTranspose2d, 8, 8, 4, 2, 1),
        partial(nn.BatchNorm2d, 8), partial(nn.InstanceNorm2d, 8), partial(nn.GroupNorm, 2, 8),
        partial(nn.MaxPool2d, 2), partial(nn.AvgPool2d, 2), partial(nn.LPPool2d, 2, 2),
        partial(nn.FractionalMaxPool2d, 2, 4),
        partial(nn.AdaptiveMaxPool2d, 4), partial(nn.AdaptiveAvgPool2d, 1), partial(nn.AdaptiveAvgPool2d, 4),
        partial(nn.ReflectionPad2d, 1), partial(nn.ReplicationPad2d, 1), partial(nn.ZeroPad2d, 1),
        partial(nn.CircularPad2d, 1), nn.Dropout2d, partial(nn.PixelShuffle, 2), partial(nn.PixelUnshuffle, 2),
        partial(nn.ChannelShuffle, 2), partial(nn.Unfold, 2), partial(nn.LocalResponseNorm, 2),
        partial(nn.CrossMapLRN2d, 2), partial(nn.UpsamplingNearest2d, scale_factor=2),
        partial(nn.UpsamplingBilinear2d, scale_factor=2), partial(nn.Upsample, scale_factor=2, mode="bicubic"),
        nn.Softmax2d, partial(nn.PReLU, 8),
    ),
    "volume": (
        partial(nn.Conv3d, 8, 16, 3), partial(nn.ConvTranspose3d, 8, 8, 2, 2), partial(nn.BatchNorm3d, 8),
        partial(nn.InstanceNorm3d, 8), partial(nn.MaxPool3d, 2), partial(nn.AvgPool3d, 2), partial(nn.LPPool3d, 2, 2),
        partial(nn.AdaptiveMaxPool3d, 2), partial(nn.AdaptiveAvgPool3d, 2), partial(nn.ReflectionPad3d, 1),
        partial(nn.ReplicationPad3d, 1), partial(nn.ZeroPad3d, 1), nn.Dropout3d,
        partial(nn.Upsample, scale_factor=2, mode="trilinear"),
    ),
}  # fmt: skip


def _name(make: Callable[[], nn.Module]) -> str:
    if not isinstance(make, partial):
        return getattr(make, "__name__", "")
    given = [*map(str, make.args), *(f"{k}={v}" for k, v in make.keywords.items())]
    return f"{make.func.__name__}({', '.join(given)})"


def _layers() -> Iterator[Case]:
    for place, makes in _LAYERS.items():
        for make in makes:
            yield Case("torch", f"{_name(make)} of a {place}", partial(_behind, place, make), (_PLACES[place],))


def _twice(make: Callable[[], nn.Module]) -> nn.Module:
    return _Twice(make())


def _of_two() -> Iterator[Case]:
    makes: tuple[Callable[[], nn.Module], ...] = (
        partial(nn.Bilinear, _WIDTH, _WIDTH, 16), nn.CosineSimilarity, nn.PairwiseDistance, nn.MSELoss, nn.L1Loss,
        nn.SmoothL1Loss, nn.HuberLoss, nn.KLDivLoss, nn.BCEWithLogitsLoss, nn.PoissonNLLLoss, nn.SoftMarginLoss,
        nn.CrossEntropyLoss,
    )  # fmt: skip
    for make in makes:
        yield Case("torch", _name(make), partial(_twice, make), (_WIDE,))


def _embeddings() -> Iterator[Case]:
    yield Case("torch", "Embedding", partial(nn.Embedding, 512, _WIDTH), (ids(),))
    yield Case("torch", "Embedding padded", partial(nn.Embedding, 512, _WIDTH, padding_idx=0), (ids(),))
    for mode in ("mean", "sum", "max"):
        yield Case("torch", f"EmbeddingBag {mode}", partial(nn.EmbeddingBag, 512, _WIDTH, mode=mode), (ids(),))


CASES: tuple[Case, ...] = (*_attention(), *_recurrent(), *_embeddings(), *_of_two(), *_layers())
