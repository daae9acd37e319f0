"""Kinds of inputs by the names that transformers has for them: the layouts that each comes in, and its type.

A dim is a number or a name: `batch`; `seq`, tokens, frames or samples of what the model reads; `src`, the tokens of an
encoder whose decoder reads `seq`; `images`, all pictures of a batch. A kind with several layouts has them in the order
in which they are tried. What only says something of another input (its sizes, places or mask) has its dims from that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import torch

from ...ir.records import dataclass
from .sizes import ConfigSizes

Dims: TypeAlias = tuple[int | str, ...]
Layouts: TypeAlias = "Callable[[ConfigSizes], Sequence[Dims]]"

# Of models that read pictures of any size: what most of them were trained on.
ANY_PICTURE = (224, 224)
# What all pictures of a batch are called, as a dim, and their patches side by side in one strip, in pixels; how configs
# call the side of a patch.
IMAGES, COLUMNS, PATCH = "images", "columns", ("patch_size", "model_patch_size")
# Some cut a picture into smaller ones of the size that a config names, or choose so many of its places.
_LARGE = 4
# Patches are merged or pooled two by two, three by three or four by four.
_MERGED = 12
# Example lengths of an open `seq` where a step of the model takes many of what is counted: frames, samples.
FRAMES, SAMPLES = 496, 24_016
# Samples that frames and strides of sound divide, where code needs that.
WHOLE_SAMPLES = 48_000
# Frames of a sound that is cut into chunks of a hundred or two.
LONG = 2000
_TOKENS = 48


@dataclass(frozen=True, slots=True)
class InputKind:
    """A kind of input: its layouts, its type (None: that of the weights) and an example length of `seq`.

    `beside` names the main input whose `seq` it shares; `whole` is a length for code that cuts it into frames.
    """

    layouts: Layouts
    dtype: torch.dtype | None = None
    length: int = _TOKENS
    beside: str = ""
    whole: int = 0


@dataclass(frozen=True, slots=True)
class Aside:
    """What says something of another input: of which, its dims by those of that one, its type, and a row of values.

    The row stands along the last dims, the same at all places; a function of the dims makes all values.
    """

    of: str
    dims: Callable[[Dims, ConfigSizes], Dims]
    dtype: torch.dtype | None = torch.int64
    row: Callable[[Dims, ConfigSizes], Sequence[int]] = lambda dims, sizes: (1,)


def _pictures(sizes: ConfigSizes) -> Sequence[Dims]:
    """[batch, channels, height, width]; of films [batch, frames, channels, height, width] first.

    Pictures cut into tiles of one size are [images, tiles, channels, height, width], those cut into patches [images,
    patches, numbers of a patch]: both are tried last.
    """
    picture = _picture(sizes)
    frames = sizes.number("num_frames", "frames_per_clip")
    film: list[Dims] = [("batch", frames, *picture)] if frames else []
    tiles = _tiles(sizes, picture[1])
    tiled: list[Dims] = [(IMAGES, tiles, *picture)] if tiles else []
    whole: list[Dims] = [("batch", *picture), ("batch", 1, *picture), ("batch", 2, *picture)]
    large: Dims = ("batch", picture[0], *(_LARGE * side for side in picture[1:]))
    # Pictures as rows of patches, all of them or as many as merging divides; or as one strip of patches.
    channels, high, wide = _picture(sizes)
    rows: list[Dims] = []
    for side in _sides(sizes):
        counts = dict.fromkeys((_merged(high, wide, side), (high // side) * (wide // side)))
        rows += [(IMAGES, count, channels * side**2) for count in counts if count]
    patched = [*rows, *((1, channels, side, COLUMNS) for side in _sides(sizes)[:1])]
    return [*film, *tiled, *whole, *patched, large]


def _picture(sizes: ConfigSizes) -> tuple[int, int, int]:
    high, wide = sizes.sides("image_size", "img_size", "crop_size", "input_size", "max_img_size") or ANY_PICTURE
    return sizes.number("num_channels", "in_channels", "in_chans", "image_channels") or 3, high, wide


def _tiles(sizes: ConfigSizes, side: int) -> int:
    """The most tiles that a picture is cut into, and it as a whole; 0 where none is cut. Code takes those it needs."""
    points = sizes.points("image_grid_pinpoints")
    return max((-(-high // side) * -(-wide // side) + 1 for high, wide in points), default=0)


def _sides(sizes: ConfigSizes) -> Sequence[int]:
    """The sides that a patch may have."""
    return [*dict.fromkeys(side for name in PATCH if (side := sizes.number(name)))]


def _merged(high: int, wide: int, side: int) -> int:
    return down(high, side) * down(wide, side)


def columns(sizes: ConfigSizes) -> int:
    """Return the pixels along a strip of the patches of one picture."""
    _, high, wide = _picture(sizes)
    side = next(iter(_sides(sizes)), 1)
    return _merged(high, wide, side) * side


def down(pixels: int, patch: int) -> int:
    """Return how many patches lie along a side, rounded down to what pooling and merging divide.

    >>> down(224, 16)
    12
    """
    return max(pixels // patch // _MERGED, 1) * _MERGED


def _films(sizes: ConfigSizes) -> Sequence[Dims]:
    frames = sizes.number("num_frames", "frames_per_clip") or 8
    return [("batch", frames, *_picture(sizes))]


def _features(sizes: ConfigSizes) -> Sequence[Dims]:
    """Frames of a spectrum: [batch, frames, bins] or [batch, bins, frames]; as many frames as the config fixes."""
    bins = _bins(sizes)
    known, stacked = bins or 80, sizes.number("num_stacked_frames") or 1
    longest = sizes.number("max_source_positions")
    square = sizes.sides("spec_size")
    fixed: list[Dims] = [("batch", known, 2 * longest)] if longest else []
    patches: list[Dims] = [("batch", 1, square[0] * square[1] // known, known)] if square else []
    usual: list[Dims] = [("batch", "seq", known * stacked), *fixed, ("batch", known, "seq")]
    joined: list[Dims] = [("batch", "seq", 4 * known)] if bins else [("batch", "seq", 128)]
    return [*patches, *usual, ("batch", known, LONG), *joined]


def _bins(sizes: ConfigSizes) -> int | None:
    """Numbers of a frame of a spectrum, by the names that configs have for them."""
    return sizes.number(
        "num_mel_bins",
        "feature_projection_input_dim",
        "input_feat_per_channel",
        "input_dim",
        "n_mels",
        "mel_bins",
        "input_feat_size",
        "feature_size",
        "model_in_dim",
        "audio_embed_dim",
    )


def _sound(sizes: ConfigSizes) -> Sequence[Dims]:
    """Samples [batch, samples], with a dim of channels of codecs; patches of a spectrum where a length is fixed."""
    bins, longest = sizes.number("num_mel_bins"), sizes.number("max_length")
    spectrum: list[Dims] = [("batch", longest, bins)] if bins and longest and longest > bins else []
    channels = sizes.number("audio_channels") or 1
    return [*spectrum, ("batch", "seq"), ("batch", channels, "seq")]


def _series(sizes: ConfigSizes) -> Sequence[Dims]:
    """Past values: a context of the length that the config fixes, of one series or several."""
    context = sizes.number("context_length", "prediction_length") or 512
    channels = sizes.number("num_input_channels", "input_size") or 1
    lags = _past(sizes)
    several: Dims = ("batch", context, channels)
    return [several, ("batch", context), ("batch", lags), ("batch", lags, channels)]


def _past(sizes: ConfigSizes) -> int:
    """How far back a series is read: the context, and behind it the longest lag of its values."""
    context = sizes.number("context_length", "prediction_length") or 512
    lags = (getattr(part, "lags_sequence", None) for part in sizes.parts)
    return context + next((max(found) for found in lags if found), 0)


def _rest_of_series(*dims: str) -> Layouts:
    """What stands beside past values: over `past` or `future` places, with the numbers of a field of the config."""

    def layouts(sizes: ConfigSizes) -> Sequence[Dims]:
        places = {"past": _past(sizes), "future": sizes.number("prediction_length") or 1}
        sized = [places[d] if d in places else sizes.number(d) or 1 for d in dims]
        return [("batch", *sized)]

    return layouts


def _of_steps(*fields: str) -> Layouts:
    """As many numbers a step of an episode as one of these fields says, one without any."""
    return lambda sizes: [("batch", "seq", sizes.number(*fields) or 1)]


def _latents(sizes: ConfigSizes) -> Sequence[Dims]:
    """Channels of a sound between the halves of a codec, by frame; samples themselves are of one channel."""
    widths = [sizes.number(name) for name in ("latent_dim", "codebook_dim", "hidden_size")]
    channels = sizes.number("audio_channels", "channels") or 1
    return [("batch", width, "seq") for width in dict.fromkeys((channels, *(w for w in widths if w)))]


def _tokens(sizes: ConfigSizes) -> Sequence[Dims]:
    """Ids a token, or as many as there are codebooks, beside a text or not; channels of pictures are none."""
    rows = sizes.number("num_codebooks") or (None if sizes.has("patch_size") else sizes.number("num_channels"))
    return [("batch", "seq"), *([("batch", "seq", rows), ("batch", "seq", rows + 1)] if rows else [])]


KINDS: Mapping[str, InputKind] = MappingProxyType(
    {
        "input_ids": InputKind(_tokens, torch.int64),
        "decoder_input_ids": InputKind(_tokens, torch.int64),
        "pixel_values": InputKind(_pictures),
        "pixel_values_videos": InputKind(_films),
        "input_features": InputKind(_features, length=FRAMES),
        "audio_mel": InputKind(_features, length=FRAMES),
        "input_values": InputKind(_sound, length=SAMPLES, whole=WHOLE_SAMPLES),
        "past_values": InputKind(_series),
        "past_time_features": InputKind(_rest_of_series("past", "num_time_features")),
        "past_observed_mask": InputKind(_rest_of_series("past")),
        "future_values": InputKind(_rest_of_series("future")),
        "future_time_features": InputKind(_rest_of_series("future", "num_time_features")),
        "states": InputKind(_of_steps("state_dim")),
        "actions": InputKind(_of_steps("act_dim"), beside="states"),
        "returns_to_go": InputKind(_of_steps(), beside="states"),
        "timesteps": InputKind(lambda sizes: [("batch", "seq")], torch.int64, beside="states"),
        "latents": InputKind(_latents),
        "hidden_states": InputKind(_latents, length=SAMPLES),
        "inputs_embeds": InputKind(_of_steps("hidden_size", "d_model")),
    }
)


def _frames(dims: Dims, sizes: ConfigSizes) -> Dims:
    """Frames of a sound: its open dim, or the longest one that is not of the numbers of a frame."""
    rest = dims[1:]
    named = [d for d in rest if isinstance(d, str)]
    numbers = [d for d in rest if isinstance(d, int)]
    return (dims[0], named[0] if named else max([d for d in numbers if d != _bins(sizes)] or numbers))


def _places(dims: Dims, sizes: ConfigSizes) -> Dims:
    """Pixels, or patches where a picture is a row of these."""
    return dims[:2] if len(dims) == 3 else (*dims[:-3], *dims[-2:])


def _two_a_picture(dims: Dims, sizes: ConfigSizes) -> Dims:
    if COLUMNS in dims:
        return (IMAGES, 2)
    return (*dims[:-3], 2) if len(dims) == 4 else (dims[0], 2)


def _height_and_width(dims: Dims, sizes: ConfigSizes) -> Sequence[int]:
    """Pixels of a picture down and across, two tiles each of one that is cut; patches where it is a row of these."""
    channels, high, wide = _picture(sizes)
    if len(dims) == 3 or COLUMNS in dims:
        side = next((n for n in _sides(sizes) if dims[-1] == channels * n**2), next(iter(_sides(sizes)), 1))
        whole = high // side, wide // side
        return whole if dims[1] == whole[0] * whole[1] else (down(high, side), down(wide, side))
    is_cut = len(dims) == 5 and dims[1] == _tiles(sizes, high)
    return (2 * high, 2 * wide) if is_cut else (high, wide)


def _grid_of_places(dims: Dims, sizes: ConfigSizes) -> Sequence[int]:
    """Column and row of every patch, as one list."""
    high, wide = _height_and_width(dims, sizes)
    return [n for y in range(high) for x in range(wide) for n in (x, y)]


def _beside_ids(*rest: int) -> Callable[[Dims, ConfigSizes], Dims]:
    return lambda dims, sizes: (*dims[:2], *rest)


def _zeros(dims: Dims, sizes: ConfigSizes) -> Sequence[int]:
    return (0,)


ASIDE: Mapping[str, Aside] = MappingProxyType(
    {
        "past_values_padding": Aside("past_values", lambda dims, sizes: dims[:2], row=_zeros),
        "freq": Aside("past_values", lambda dims, sizes: (dims[0], 1), row=_zeros),
        "prompt_pixel_values": Aside("pixel_values", lambda dims, sizes: dims, None),
        "prompt_masks": Aside("pixel_values", lambda dims, sizes: dims, None),
        "input_features_mask": Aside("input_features", _frames),
        "feature_attention_mask": Aside("input_features", _frames),
        "chunk_sample_lengths": Aside(
            "input_features",
            lambda dims, sizes: dims[:1],
            row=lambda dims, sizes: [
                (sizes.number("hop_length") or 1) * (FRAMES if n == "seq" else int(n)) for n in _frames(dims, sizes)[1:]
            ],
        ),
        "audio_mel_mask": Aside("audio_mel", _frames, torch.bool),
        "pixel_attention_mask": Aside("pixel_values", _places),
        "pixel_mask": Aside("pixel_values", _places),
        "image_attention_mask": Aside("pixel_values", lambda dims, sizes: (dims[0], "seq", dims[1])),
        "image_sizes": Aside("pixel_values", _two_a_picture, row=_height_and_width),
        "spatial_shapes": Aside("pixel_values", _two_a_picture, row=_height_and_width),
        "target_sizes": Aside("pixel_values", _two_a_picture, row=_height_and_width),
        "pixel_position_ids": Aside("pixel_values", lambda dims, sizes: (*dims[:2], 2), row=_grid_of_places),
        "image_position_ids": Aside("pixel_values", lambda dims, sizes: (*dims[:2], 2), row=_grid_of_places),
        "merge_sizes": Aside("pixel_values", lambda dims, sizes: (IMAGES,)),
        "image_merge_sizes": Aside("pixel_values", lambda dims, sizes: (IMAGES,)),
        "high_res_pixel_values": Aside("pixel_values", lambda dims, sizes: (*dims[:-2], 1024, 1024), None),
        "attention_mask": Aside("input_ids", _beside_ids()),
        "bbox": Aside("input_ids", _beside_ids(4), row=_zeros),
        "visual_feats": Aside(
            "input_ids", lambda dims, sizes: (dims[0], 36, sizes.number("visual_feat_dim") or 1), None
        ),
        "visual_pos": Aside("input_ids", lambda dims, sizes: (dims[0], 36, sizes.number("visual_pos_dim") or 4), None),
        "image_embeds_position_mask": Aside("input_ids", _beside_ids()),
        "qformer_input_ids": Aside("input_ids", _beside_ids()),
        "mm_token_type_ids": Aside("input_ids", _beside_ids(), row=_zeros),
        "query_embeds": Aside("", lambda dims, sizes: ("batch", 32, sizes.number("hidden_size") or 768), None),
        "encoder_hidden_states": Aside(
            "query_embeds", lambda dims, sizes: ("batch", 257, sizes.number("encoder_hidden_size") or 768), None
        ),
    }
)
