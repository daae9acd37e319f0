"""A small config of any model type of transformers: the library's own sizes, few layers, every kind of layer kept.

What the library's own defaults lack (a number of experts that is None, a hybrid without attention) is filled in from
the published models of that type, so that what comes out is a model that somebody could run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, cast

from ....ir.errors import NotUnderstoodError, did_you_mean
from .published_sizes import PUBLISHED_SIZES, Fields

_DEPTHS = (
    "num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers",
    "num_encoder_layers", "num_decoder_layers", "num_blocks", "depth",
)  # fmt: skip
# Layers below the number are of one kind, those from it on of another.
_FIRST = ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index")
# Layers of one kind come again after so many, at this place among them.
_PERIODS = (
    ("attn_layer_period", "attn_layer_offset"), ("expert_layer_period", "expert_layer_offset"),
    ("decoder_sparse_step", ""), ("interleave_moe_layer_step", ""), ("moe_layer_interval", ""),
)  # fmt: skip
_TYPES = ("layer_types", "layers_block_type", "layers_num_experts")
_PATTERN = "block_types"  # layer i is of kind pattern[i % len(pattern)]
_SHARED = "num_kv_shared_layers"
_NOT_BUILT = ("vision", "audio", "image", "video", "vq", "text_encoder", "depth_decoder")
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
_MIN_LAYERS = 2


class _Config(Protocol):
    """What is read of a config object of transformers."""

    model_type: str


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
        return _fitted(config, _reduced(config, given, without=()))
    causal = _causal_class(model_type)
    fields = dict(_reduced(config, PUBLISHED_SIZES.get(model_type, {})))
    if causal:
        fields |= {"architectures": [causal], **_as_decoder(config)}
    return fields


def shallow_fields(fields: Fields) -> tuple[Fields, Fields]:
    """Return the fields of a config with few layers, each kind among them, and all that the config object then says.

    NotUnderstoodError for a type that transformers does not know.
    """
    from transformers import AutoConfig

    model_type = str(fields["model_type"])
    _default(model_type)
    rest = {k: v for k, v in fields.items() if k != "model_type"}
    config = cast("_Config", AutoConfig.for_model(model_type, **rest))
    few = {**_reduced(config, rest), "model_type": model_type}
    made = AutoConfig.for_model(model_type, **{k: v for k, v in few.items() if k != "model_type"})
    return few, cast("Fields", made.to_dict())


def _default(model_type: str) -> _Config:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if model_type not in CONFIG_MAPPING:
        near = did_you_mean(model_type, list(CONFIG_MAPPING))
        raise NotUnderstoodError(f"transformers has no model type '{model_type}'{near}")
    return _made(model_type, PUBLISHED_SIZES.get(model_type, {}))


def _made(model_type: str, given: Fields) -> _Config:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return cast("Callable[..., _Config]", CONFIG_MAPPING[model_type])(**given)


def _towers_left_out(config: _Config) -> Fields:
    """Encoders of pictures and sound that a default config is without, in their own default sizes."""
    parts: Mapping[str, type] = getattr(config, "sub_configs", {})
    lacking = {n: kind for n, kind in parts.items() if getattr(config, n, 0) is None and n in _TOWERS}
    types = {n: getattr(kind, "model_type", "") for n, kind in lacking.items()}
    return {n: {"model_type": model_type} for n, model_type in types.items() if model_type}


def _causal_class(model_type: str) -> str:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    found = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(model_type, "")
    return found if isinstance(found, str) else found[0]


def _as_decoder(config: _Config) -> Fields:
    told = {"is_decoder": True} if hasattr(config, "is_decoder") else {}
    return told | ({"is_encoder_decoder": False} if getattr(config, "is_encoder_decoder", False) else {})


def _reduced(config: _Config, given: Fields, without: Sequence[str] = _NOT_BUILT) -> Fields:
    """The given fields and those that make the config shallow, its parts first."""
    fields: dict[str, object] = dict(given)
    for name, part in _parts(config, without):
        inside = _reduced(part, cast(Fields, given.get(name) or {}), without)
        if inside:
            fields[name] = {"model_type": part.model_type, **inside} if part.model_type else inside
    depth = _depth(config)
    if depth > _MIN_LAYERS and not _hands_over_many(config):
        fields |= _shallow(config, depth)
    return fields


def _hands_over_many(config: _Config) -> bool:
    """Whether others read the output of several layers or stages, by their number: then all of them stay."""
    indices = getattr(config, "_out_indices", None)
    return isinstance(indices, list | tuple) and len(indices) > 1


def _filled_in(config: _Config) -> Fields:
    """What the defaults leave open of a whole model, or leave to another package that has the same backbone."""
    fields: dict[str, object] = {}
    if getattr(config, "prediction_length", 0) is None:
        fields |= {"prediction_length": _PREDICTED, "num_time_features": _OF_TIME}
    backbone = getattr(config, "backbone_config", None)
    if getattr(backbone, "model_type", "") == _FOREIGN_BACKBONE:
        indices = getattr(backbone, "out_indices", None) or [_LAST_STAGE]
        fields["backbone_config"] = {"model_type": "resnet", "out_indices": list(indices)}
    return fields


def _fitted(config: _Config, fields: Fields) -> Fields:
    """The fields with parts that fit together, which the defaults may miss.

    A tower hands over what is as wide as the text; layers that features are taken from are among those that are left;
    the sections of rotary angles fill half a head.
    """
    made: dict[str, object] = {**fields, **_sectioned(config, fields)}
    width = getattr(getattr(config, "text_config", None), "hidden_size", None)
    for name, part in _parts(config, ()):
        given = cast(Fields, made.get(name) or {})
        names = [n for n in (*_HANDED_OVER, *(_OF_TOWERS if name in _TOWERS else ())) if hasattr(part, n)]
        names = names or ["hidden_size"] * (hasattr(part, "hidden_size") and hasattr(part, _OWN_WIDTH))
        fitted = {**given, **_sectioned(part, given), **(dict.fromkeys(names, width) if width is not None else {})}
        if fitted:
            made[name] = fitted
    vocabulary = _number(cast(_Config, getattr(config, "text_config", config)), "vocab_size")
    places = [n for n in _PLACES if vocabulary and getattr(config, n, 0) is None]
    return {**made, **_among_the_left(config, made), **{n: cast(int, vocabulary) - 1 for n in places}}


def _sectioned(config: _Config, fields: Fields) -> Fields:
    """Rotary parameters whose sections, of time, height and width, add up to half a head."""
    rope = getattr(config, "rope_parameters", None)
    sections = rope.get(_SECTIONS) if isinstance(rope, Mapping) else None
    if rope is None or not isinstance(sections, list):
        return {}
    heads, width = _number(config, "num_attention_heads"), _number(config, "hidden_size")
    if not heads or not width:
        return {}
    head = _number(config, "head_dim") or width // heads
    angles = int(head * float(rope.get("partial_rotary_factor", 1.0))) // 2
    scaled = [n * angles // sum(sections) for n in sections]
    scaled[-1] += angles - sum(scaled)
    return {} if scaled == sections else {"rope_parameters": {**rope, _SECTIONS: scaled}}


def _among_the_left(config: _Config, fields: Fields) -> Fields:
    """The layers that features are taken from, none of them beyond those that a tower has left."""
    parts = (
        cast(Fields, fields.get(name) or {}) for name, _ in _parts(config, ()) if "vision" in name or "image" in name
    )
    left = next((n for part in parts for d in _DEPTHS if isinstance(n := part.get(d), int)), 0)
    found = _within_all(config, left) if left else {}
    for name, part in _parts(config, ()) if left else ():
        if inside := _within_all(part, left):
            found[name] = {**cast(Fields, fields.get(name) or {}), **inside}
    return found


def _within_all(config: _Config, depth: int) -> dict[str, object]:
    taken = {n: v for n, v in vars(config).items() if any(w in n for w in _FEATURE_LAYERS) and v is not None}
    return {n: _within(v, depth) for n, v in taken.items() if _within(v, depth) != v}


def _within(layer: object, depth: int) -> object:
    if isinstance(layer, list | tuple):
        return [_within(one, depth) for one in layer]
    return max(min(layer, depth - 1), -depth) if isinstance(layer, int) else layer


def _parts(config: _Config, without: Sequence[str]) -> Iterator[tuple[str, _Config]]:
    """Configs inside a config; those left out, by words in their names, are not built."""
    for name in getattr(config, "sub_configs", {}):
        part = getattr(config, name, None)
        if hasattr(part, "model_type") and not any(word in name for word in without):
            yield name, cast(_Config, part)


def _depth(config: _Config) -> int:
    found = (getattr(config, name, None) for name in _DEPTHS)
    return next((n for n in found if isinstance(n, int)), 0)


def _shallow(config: _Config, depth: int) -> Fields:
    """Depths and lists of the first layers, as many as hold every kind.

    Layers at the end that share the keys and values of earlier ones are kinds of their own: some of them stay too.
    """
    shared = _number(config, _SHARED) or 0
    own = depth - shared if shared < depth else depth
    kinds = [_kind(config, i, depth) for i in range(depth)]
    kept = [*range(_prefix(kinds[:own])), *(range(own, own + _prefix(kinds[own:])) if own < depth else ())]
    fields: dict[str, object] = {}
    for name, value in list(vars(config).items()):
        if name in _DEPTHS and isinstance(value, int):
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


def _kind(config: _Config, i: int, depth: int) -> tuple[object, ...]:
    """What tells layers apart: their entries in lists, and where they stand among numbers that a config counts by."""
    values = {**vars(config), **{name: getattr(config, name, None) for name in _TYPES}}
    indices = {k: v for k, v in values.items() if _is_index_list(k, v)}
    chosen = [i in cast("Sequence[int]", v) for v in indices.values()]
    rest = ((k, v) for k, v in values.items() if k not in indices and not k.startswith("_"))
    lists = [repr(v[i]) for _, v in rest if isinstance(v, list | tuple) and len(v) == depth]
    first = [i < number for name in _FIRST if (number := _number(config, name)) is not None]
    pattern = getattr(config, _PATTERN, None)
    turn = [pattern[i % len(pattern)]] if isinstance(pattern, list | tuple) and pattern else []
    return (*lists, *chosen, *first, *_turns(config, i), *turn)


def _turns(config: _Config, i: int) -> Iterator[bool]:
    for period_name, offset_name in _PERIODS:
        period = _number(config, period_name)
        if period:
            offset = _number(config, offset_name) if offset_name else period - 1
            yield i % period == (offset or 0)


def _is_index_list(name: str, value: object) -> bool:
    """Whether a field lists the layers that are of some kind: `mlp_only_layers`, `cross_attention_layers`."""
    named = name.endswith(
        ("_layers", "_layer_ids", "_layer_indices", "_layer_idxs", "_attn_indexes")
    ) and not name.startswith("_")
    if not named or not isinstance(value, list | tuple) or name == "no_rope_layers":
        return False
    return all(isinstance(v, int) for v in value) and len(set(value)) == len(value)


def _number(config: _Config, name: str) -> int | None:
    found = getattr(config, name, None)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _derived(config: _Config, fields: Fields, total: int) -> Fields:
    """Fields from which a config makes its lists of layers anew, in its own notation."""
    if hasattr(config, "attention_types") and "attention_layers" in fields:
        return {"attention_types": [[fields["attention_layers"], 1]]}
    if hasattr(config, "num_layers_per_stack"):
        return {"num_hidden_layers": total, "num_layers_per_stack": None}
    return {}


__all__ = ["shallow_fields", "small_config"]
