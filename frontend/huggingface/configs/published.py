"""The precision in which a model's publisher quantised it, from its config or the catalogue, as one of our recipes.

Patterns are those of `passes.low_patterns`. Sources: transformers `quantizers/quantizers_utils.py`
(`should_convert_module`), compressed-tensors `utils/match.py`, NVIDIA ModelOpt `export/quant_utils.py`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import cast

from ....ir.errors import NotBuiltError, NotUnderstoodError, UsageError
from ....ir.plan.low_inference import INFERENCE
from ....ir.plan.precision import NONE
from ....ir.records import dataclass
from ...forms import has_config
from .models import Config, index, read_config

Fields = Mapping[str, object]
# Lists of modules that stay in the model's type: transformers and AWQ, compressed-tensors and ModelOpt, ModelOpt's
# `hf_quant_config.json`, vLLM.
_LEFT_OUT = ("modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers")
_REGEX = "re:"
_OF_REGEX = frozenset("\\^$|()+")
# What stands for all linear layers, which is what a recipe is of anyway.
_ALL = "Linear"
# Multimodal checkpoints hold the text model in a module, which the text model alone does not have.
_WRAPPERS = ("model.language_model.", "language_model.model.", "language_model.", "model.text_model.")


@dataclass(frozen=True, slots=True)
class QuantizedGroup:
    """A scheme, and the modules that it is of; none for all that no other group names."""

    fields: Fields
    targets: tuple[str, ...] = ()


def groups_of(fields: Fields) -> list[QuantizedGroup]:
    """Return the schemes of a config: its groups, its layers one by one, or the one that it is as a whole.

    NotBuiltError for a group of modules of a class, which paths do not tell.
    """
    groups = [cast(Fields, g) for g in inside(fields, "config_groups").values() if isinstance(g, dict)]
    if groups and str(fields.get("quant_method", "")).lower() == "compressed-tensors":
        return [QuantizedGroup(g, _targets(g)) for g in groups]
    layers = inside(fields, "quantized_layers")
    if layers:
        return list(_by_scheme(fields, layers))
    return [QuantizedGroup(fields)]


def _targets(group: Fields) -> tuple[str, ...]:
    given = list(words(group, "targets"))
    if not given or _ALL in given:
        return ()
    for target in given:
        if target.isidentifier() and target[0].isupper():
            raise NotBuiltError(
                f"quantization_config has a group of modules of class {target}; what is read: Linear, paths, re:..."
            )
    return tuple(given)


def _by_scheme(fields: Fields, layers: Fields) -> Iterator[QuantizedGroup]:
    """ModelOpt's mixed precision: each layer with its own scheme."""
    found: dict[str, list[str]] = {}
    for name, scheme in layers.items():
        if isinstance(scheme, dict):
            found.setdefault(str(scheme.get("quant_algo")), []).append(name)
    for algo, names in found.items():
        yield QuantizedGroup({**fields, "quant_algo": algo}, tuple(names))


def left_out(fields: Fields) -> list[str]:
    """Return what stays in the model's type, as the config has it."""
    return list(dict.fromkeys(name for key in _LEFT_OUT for name in words(fields, key)))


def patterns_of(name: str) -> tuple[str, ...]:
    """Return patterns for one entry: a path from the start, or the last parts of one.

    >>> patterns_of("lm_head"), patterns_of("re:.*mlp.gate$")
    (('lm_head', '*.lm_head'), ('re:.*mlp.gate$',))
    >>> patterns_of("model.language_model.layers.0.mlp")
    ('model.language_model.layers.0.mlp', '*.model.language_model.layers.0.mlp', 'model.layers.0.mlp')
    """
    if name.startswith(_REGEX):
        return (name,)
    if _OF_REGEX.intersection(name):
        return (f"{_REGEX}{name}",)
    wrapper = next((w for w in _WRAPPERS if name.startswith(w)), None)
    inner = () if wrapper is None else (name.replace(wrapper, "model.", 1),)
    return name, *(() if name.startswith("*") else (f"*.{name}",)), *inner


def inside(fields: Fields, key: str) -> Fields:
    """Return a mapping under a key, empty where there is none."""
    found = fields.get(key)
    return cast(Fields, found) if isinstance(found, dict) else {}


def words(fields: Fields, key: str) -> Iterator[str]:
    """Yield the strings of a list under a key; nothing where there is none."""
    found = fields.get(key)
    yield from (text for text in found if isinstance(text, str) and text) if isinstance(found, list) else ()


# What is run instead on a chip without the units of a checkpoint: weights alone stay small (vLLM's Marlin kernels).
_WITHOUT_UNITS: Mapping[str, str] = MappingProxyType(
    {"fp8": "w8a16", "fp8-rowwise": "w8a16", "fp8-block": "w8a16", "mxfp8": "w8a16", "int8": "w8a16", "nvfp4": "w4a16"}
)
# And on one that has more: TensorRT-LLM and SGLang cast activations to MXFP8 where units multiply that with MXFP4.
_WITH_UNITS: Mapping[str, str] = MappingProxyType({"mxfp4": "mxfp4-mxfp8"})
_MODELOPT: Mapping[str, str] = MappingProxyType(
    {"FP8": "fp8", "FP8_PER_CHANNEL_PER_TOKEN": "fp8-rowwise", "NVFP4": "nvfp4", "MXFP8": "mxfp8", "W4A16_AWQ": "w4a16"}
)
_BY_BITS: Mapping[int, str] = MappingProxyType({4: "w4a16", 8: "w8a16"})


@dataclass(frozen=True, slots=True)
class Published:
    """The recipe of a checkpoint's layers, and pairs of a pattern over module paths and its own recipe."""

    recipe: str
    of: tuple[tuple[str, str], ...] = ()


def published_precision(model: str, peaks: Collection[str] = ()) -> str:
    """Return the recipe of a published checkpoint, `none` where it is not quantised.

    On a chip with other units than it was made for, the recipe that engines run it by; `peaks` are the dtypes that the
    chip has, none where it is not known. NotBuiltError for a scheme that no recipe has.

    >>> published_precision("gpt-oss-120b"), published_precision("llama-3.1-8b")
    ('mxfp4', 'none')
    >>> published_precision("deepseek-v3", ("bf16", "int8")), published_precision("gpt-oss-20b", ("bf16", "fp8", "fp4"))
    ('w8a16', 'mxfp4-mxfp8')
    """
    return published_recipes(model, peaks).recipe


def published_recipes(model: str, peaks: Collection[str] = ()) -> Published:
    """Return the same with what a checkpoint leaves out, or has in another recipe."""
    if not has_config(model):
        raise UsageError(f"'{model}' does not say how it was published; name a precision: none, {', '.join(INFERENCE)}")
    found = recipes_of_config(read_config(model))
    run = {name: _run_by(name, peaks) for name in (found.recipe, *(recipe for _, recipe in found.of))}
    return Published(run[found.recipe], tuple((pattern, run[recipe]) for pattern, recipe in found.of))


def _run_by(found: str, peaks: Collection[str]) -> str:
    if found == NONE or not peaks:
        return found
    more = _WITH_UNITS.get(found, found)
    if INFERENCE[more].unit in ("", *peaks):
        return more
    return found if INFERENCE[found].unit in ("", *peaks) else _WITHOUT_UNITS[found]


def recipe_of(config: Config) -> str:
    """Return the recipe that a config names, or the catalogue for one of its own."""
    return recipes_of_config(config).recipe


def recipes_of_config(config: Config) -> Published:
    """Return the recipes that a config names, or the catalogue for one of its own."""
    given = json.loads(config.text).get("quantization_config")
    if not given:
        entry = index().get(config.name) if config.origin.startswith("catalogue/") else None
        return Published(NONE if entry is None else entry.precision)
    if not isinstance(given, dict):
        raise NotUnderstoodError(
            f"'{config.origin}' has a quantization_config of {json.dumps(given)[:40]}; give an object such as "
            '{"quant_method": "fp8"}, or none'
        )
    fields = cast(Fields, given)
    groups = groups_of(fields)
    recipes = [_recipe(group.fields) for group in groups]
    if None in recipes or not recipes:
        raise NotBuiltError(
            f"'{config.origin}' has a quantization_config of {_words(fields)}, which no recipe has; name the nearest: "
            f"none, {', '.join(INFERENCE)}"
        )
    pairs = [(p, str(r)) for g, r in zip(groups, recipes, strict=True) for t in g.targets for p in patterns_of(t)]
    base = next((str(r) for g, r in zip(groups, recipes, strict=True) if not g.targets), NONE)
    out = tuple((pattern, NONE) for name in left_out(fields) for pattern in patterns_of(name))
    return Published(base, (*pairs, *out))


def _words(fields: Fields) -> str:
    named = ("quant_method", "quant_algo", "format", "bits")
    return ", ".join(f"{name} {fields[name]}" for name in named if name in fields) or "no method"


def _recipe(fields: Fields) -> str | None:
    method = str(fields.get("quant_method", fields.get("quant_algo", ""))).lower()
    if method == "fp8":
        return _fp8(bool(fields.get("weight_block_size")), fields.get("activation_scheme") == "static")
    if method in ("awq", "gptq", "auto-round"):
        return _BY_BITS.get(_number(fields, "bits"))
    if method == "modelopt":
        return _MODELOPT.get(str(fields.get("quant_algo")))
    if "weights" in fields:
        return _compressed(fields)
    return {"mxfp4": "mxfp4", "fbgemm_fp8": "fp8-rowwise"}.get(method)


def _fp8(blocks: bool, static: bool) -> str:
    return "fp8-block" if blocks else "fp8" if static else "fp8-rowwise"


def _compressed(group: Fields) -> str | None:
    """One group of a compressed-tensors config: its weights, and its activations where they are quantised."""
    weights, rows = inside(group, "weights"), inside(group, "input_activations")
    kind, bits = weights.get("type"), _number(weights, "num_bits")
    if not rows:
        return _BY_BITS.get(bits) if kind == "int" or bits == 8 else None
    if bits != _number(rows, "num_bits"):
        return None
    if bits == 8:
        return "int8" if kind == "int" else _fp8(weights.get("strategy") == "block", rows.get("dynamic") is False)
    return "nvfp4" if kind == "float" and _number(weights, "group_size") == 16 else None


def _number(fields: Fields, key: str) -> int:
    found = fields.get(key)
    return found if isinstance(found, int) else 0
