"""Kinds of inputs by the names that transformers has for them: the layouts that each comes in, and its type.

A dim is a number or a name: `batch`; `seq`, tokens, frames or samples of what the model reads; `src`, the tokens of an
encoder whose decoder reads `seq`. A kind with several layouts has them in the order in which they are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import torch

from .sizes import Sizes

Dims: TypeAlias = tuple[int | str, ...]
Layouts: TypeAlias = "Callable[[Sizes], Sequence[Dims]]"

# Of models that read pictures of any size: what most of them were trained on.
ANY_PICTURE = (224, 224)
# Example lengths of an open `seq` where a step of the model takes many of what is counted: frames, samples.
FRAMES, SAMPLES = 496, 24_016
_TOKENS = 48


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of input: its layouts, its type (None: that of the weights) and an example length of `seq`."""

    layouts: Layouts
    dtype: torch.dtype | None = None
    length: int = _TOKENS


def _pictures(sizes: Sizes) -> Sequence[Dims]:
    """[batch, channels, height, width]; of films [batch, frames, channels, height, width] first."""
    high, wide = sizes.sides("image_size", "img_size", "crop_size", "input_size") or ANY_PICTURE
    picture = (sizes.number("num_channels", "in_channels", "in_chans", "image_channels") or 3, high, wide)
    frames = sizes.number("num_frames", "frames_per_clip")
    film: list[Dims] = [("batch", frames, *picture)] if frames else []
    return [*film, ("batch", *picture), ("batch", 1, *picture), ("batch", 2, *picture)]


def _films(sizes: Sizes) -> Sequence[Dims]:
    frames = sizes.number("num_frames", "frames_per_clip") or 8
    picture = _pictures(sizes)[-3][1:]
    return [("batch", frames, *picture)]


def _features(sizes: Sizes) -> Sequence[Dims]:
    """Frames of a spectrum: [batch, frames, bins] or [batch, bins, frames]; as many frames as the config fixes."""
    bins = sizes.number(
        "num_mel_bins", "feature_projection_input_dim", "input_feat_per_channel", "input_dim", "n_mels", "mel_bins",
        "input_feat_size", "feature_size", "model_in_dim",
    ) or 80  # fmt: skip
    longest = sizes.number("max_source_positions")
    square = sizes.sides("spec_size")
    fixed: list[Dims] = [("batch", bins, 2 * longest)] if longest else []
    patches: list[Dims] = [("batch", 1, square[0] * square[1] // bins, bins)] if square else []
    return [*patches, ("batch", "seq", bins), *fixed, ("batch", bins, "seq"), ("batch", bins, FRAMES * 4)]


def _sound(sizes: Sizes) -> Sequence[Dims]:
    """Samples [batch, samples], with a dim of channels of codecs; patches of a spectrum where a length is fixed."""
    bins, longest = sizes.number("num_mel_bins"), sizes.number("max_length")
    spectrum: list[Dims] = [("batch", longest, bins)] if bins and longest and longest > bins else []
    channels = sizes.number("audio_channels") or 1
    return [*spectrum, ("batch", "seq"), ("batch", channels, "seq")]


def _series(sizes: Sizes) -> Sequence[Dims]:
    """Past values: a context of the length that the config fixes, of one series or several."""
    context = sizes.number("context_length", "prediction_length") or 512
    channels = sizes.number("num_input_channels", "input_size") or 1
    lags = sizes.number("_past_length") or context
    several: Dims = ("batch", context, channels)
    return [several, ("batch", context), ("batch", lags), ("batch", lags, channels)]


def _tokens(sizes: Sizes) -> Sequence[Dims]:
    return [("batch", "seq"), ("batch", "seq", sizes.number("num_codebooks", "num_channels") or 1)]


KINDS: Mapping[str, Kind] = MappingProxyType({
    "input_ids": Kind(_tokens, torch.int64),
    "decoder_input_ids": Kind(_tokens, torch.int64),
    "pixel_values": Kind(_pictures),
    "pixel_values_videos": Kind(_films),
    "input_features": Kind(_features, length=FRAMES),
    "audio_mel": Kind(_features, length=FRAMES),
    "input_features_mask": Kind(lambda sizes: [("batch", "seq")], torch.bool, FRAMES),
    "audio_mel_mask": Kind(lambda sizes: [("batch", "seq")], torch.bool, FRAMES),
    "input_values": Kind(_sound, length=SAMPLES),
    "past_values": Kind(_series),
})  # fmt: skip

__all__ = ["ANY_PICTURE", "KINDS", "Dims", "Kind", "Layouts"]
