"""`--set` assignments laid onto a tree before it is checked, and the schema at a path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args, get_origin

from pydantic import BaseModel

from ..ir.errors import UnknownNameError, UsageError
from ..ir.units import split_quantity
from .system_numbers import Number, Section
from .system_schema import SystemSection
from .system_tree import Tree, assign, split_override


def of_calibration(text: str) -> bool:
    """Whether an assignment is to a constant of kernels."""
    return split_override(text)[0][0] == "calibration"


def as_layer(text: str) -> dict[str, Tree]:
    """Turn `calibration.gemm.bf16.sustained=0.9` into a calibration of one constant."""
    keys, value = split_override(text)
    if len(keys) != 4:
        raise UsageError(f"cannot set '{text}': write calibration.CLASS.KIND.CONSTANT=value")
    _, cls, kind, key = keys
    block: Tree = {key: value, "source": "--set", "confidence": "estimated"}
    return {"kernels": {cls: {kind: block}}}


def override(
    tree: dict[str, Tree], text: str, top: type[Section] = SystemSection, called: str = "a system"
) -> dict[str, Tree]:
    """Return the tree with one assignment made; UnknownNameError for a key that a `top` has not."""
    keys, value = split_override(text)
    kind = kind_at(keys, level_names(tree), top, called)
    path = ".".join(keys)
    if kind is not None and not issubclass(kind, Number):
        raise UnknownNameError(f"'{path}' is a section; set one of its keys: {', '.join(kind.model_fields)}")
    return assign(tree, keys, value if kind is None else _leaf(kind, value, path))


def _leaf(kind: type[Number], text: str, path: str) -> Tree:
    try:
        number, unit = split_quantity(text)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    return {
        "value": number,
        "unit": unit or kind.dimension,
        "source": "--set",
        "confidence": "estimated",
    }


def kind_at(
    keys: Sequence[str], levels: Sequence[str], top: type[Section] = SystemSection, called: str = "a system"
) -> type[Section] | None:
    """Return the schema at a path, None for plain text; UnknownNameError names the nearest legal key."""
    kind: type[Section] | None = top
    path = called
    rest = list(keys)
    while rest:
        key = rest.pop(0)
        if kind is None or issubclass(kind, Number):
            raise UnknownNameError(f"'{path}' has no parts; set it as a whole, as in {path}=...")
        if key not in kind.model_fields:
            raise UnknownNameError.of(f"key of {path}", key, kind.model_fields)
        container, kind = _field_kind(kind, key)
        path = key if path == called else f"{path}.{key}"
        if container is list:
            if not rest:
                raise UnknownNameError(f"'{path}' is a list; go on with one of: {', '.join(levels)}")
            if rest[0] not in levels:
                raise UnknownNameError.of(f"level of {path}", rest[0], levels)
        if container is not None and rest:
            path += f".{rest.pop(0)}"
    return kind


def _field_kind(section: type[BaseModel], key: str) -> tuple[type | None, type[Section] | None]:
    """Return whether a field holds a list or a mapping of names, and the section that it holds."""
    annotation = section.model_fields[key].annotation
    kinds = [t for t in (annotation, *get_args(annotation)) if isinstance(t, type) and get_origin(t) is None]
    container = get_origin(annotation)
    found = next((t for t in kinds if issubclass(t, Section)), None)
    return container if container in (list, dict) else None, found


def level_names(tree: dict[str, Tree]) -> list[str]:
    """Name the levels of a network for people; one without a name has its place in the list."""
    levels = next((tree[key] for key in ("network", "levels") if isinstance(tree.get(key), list)), [])
    assert isinstance(levels, list)
    names = [level.get("name") if isinstance(level, dict) else None for level in levels]
    return [name if isinstance(name, str) else str(place) for place, name in enumerate(names)]
