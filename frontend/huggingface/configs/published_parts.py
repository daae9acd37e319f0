"""Parts of a checkpoint that its `quantization_config` leaves out, or has in another scheme, as patterns over paths.

Patterns are those of `passes.low_patterns`. Sources: transformers `quantizers/quantizers_utils.py`
(`should_convert_module`), compressed-tensors `utils/match.py`, NVIDIA ModelOpt `export/quant_utils.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from ....ir.errors import NotBuiltError

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
class Group:
    """A scheme, and the modules that it is of; none for all that no other group names."""

    fields: Fields
    targets: tuple[str, ...] = ()


def groups_of(fields: Fields) -> list[Group]:
    """Return the schemes of a config: its groups, its layers one by one, or the one that it is as a whole.

    NotBuiltError for a group of modules of a class, which paths do not tell.
    """
    groups = [cast(Fields, g) for g in inside(fields, "config_groups").values() if isinstance(g, dict)]
    if groups and str(fields.get("quant_method", "")).lower() == "compressed-tensors":
        return [Group(g, _targets(g)) for g in groups]
    layers = inside(fields, "quantized_layers")
    if layers:
        return list(_by_scheme(fields, layers))
    return [Group(fields)]


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


def _by_scheme(fields: Fields, layers: Fields) -> Iterator[Group]:
    """ModelOpt's mixed precision: each layer with its own scheme."""
    found: dict[str, list[str]] = {}
    for name, scheme in layers.items():
        if isinstance(scheme, dict):
            found.setdefault(str(scheme.get("quant_algo")), []).append(name)
    for algo, names in found.items():
        yield Group({**fields, "quant_algo": algo}, tuple(names))


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
