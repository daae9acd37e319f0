"""JSON Schemas of the files that users write, for editors that check while one types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Annotated, TypeVar, get_args

from ....ir.errors import UnknownNameError
from ...kernels.constants import CLASSES
from ...kernels.limits import limits_of
from ...network.topology.section import LEVEL
from ...prices.section import PricesSection
from ..machine import Rack, ServerNode
from ..software.engine_schema import EngineFile
from ..software.stack_schema import STACK
from ..system_schema import ChipFile, NetworkSection, NodeSection
from .records import Confidence
from .section import Section, form_of
from .shapes import ANYTHING, TEXT, ByName, Inside, OneOf, Schema, Several
from .system_tree import Tree

T = TypeVar("T")
_DRAFT = "https://json-schema.org/draft/2020-12/schema"


_NETWORK = OneOf((TEXT, Several(OneOf((TEXT, LEVEL)), least=1)))
_OVERRIDDEN = OneOf((TEXT, ByName(ANYTHING)))


class SystemFile(Section):
    """A machine as people write it: chip, network levels and software may be names of the catalogue, or paths."""

    name: str
    chip: str | ChipFile
    node: NodeSection
    network: Annotated[object, _NETWORK]
    server: ServerNode | None = None
    rack: Rack | None = None
    stack: Annotated[object, OneOf((TEXT, STACK))] = "default"
    calibration: Annotated[object, _OVERRIDDEN] = None
    prices: Annotated[object, _OVERRIDDEN] = None


def file_schema(kind: str) -> Schema:
    """Return the JSON Schema of a kind of file; UnknownNameError names those there are.

    >>> sorted(file_schema("chip")["required"])
    ['clock', 'matmul', 'memory', 'name', 'power', 'vector']
    """
    if kind not in FILES:
        raise UnknownNameError.of("kind of file", kind, FILES)
    return {"$schema": _DRAFT, **FILES[kind]()}


def _of(top: type[T] | Inside[T]) -> Callable[[], Schema]:
    """Describe a file, with what its parts refer to."""

    def schema() -> Schema:
        known: Schema = {}
        whole = form_of(top).record(known)
        return {"$defs": dict(sorted(known.items())), **whole}

    return schema


def _calibration() -> Schema:
    kernels: Tree = _record({cls: _kinds(constants) for cls, constants in CLASSES.items()})
    return {
        "title": "calibration",
        "description": "Constants of kernels by class and kind; under a library, what differs there.",
        **_record(
            {
                "name": {"type": "string"},
                "kernels": kernels,
                "libraries": {"type": "object", "additionalProperties": kernels},
                "fit": {"type": "object", "description": "What a fit was made from and how near it came."},
            }
        ),
    }


def _layered(top: type[T] | Inside[T], called: str) -> Callable[[], Schema]:
    """What may be `like` another, which then has what it does not say itself, and may differ on some chips."""
    return lambda: _with_like(_of(top)(), called)


def _with_like(schema: Schema, called: str) -> Schema:
    needed, properties = schema.pop("required"), schema["properties"]
    assert isinstance(properties, dict)
    chips: Tree = {
        "type": "object",
        "description": "what holds on one chip only, by its name in the catalogue",
        "additionalProperties": _record(properties),
    }
    like: Tree = {"type": "string", "description": f"{called}, by name or path, that has what is not given here"}
    alone: Tree = [{"required": needed}, {"required": ["like"]}]
    return {**schema, "properties": {"like": like, **properties, "chips": chips}, "anyOf": alone}


def _prices() -> Schema:
    """A file says what differs from the book that is shipped: no part is needed, but a number is whole."""
    schema: Schema = _of(PricesSection)()
    definitions = schema.get("$defs", {})
    assert isinstance(definitions, dict)
    parts: Tree = {name: part if _is_number(part) else _with_nothing_needed(part) for name, part in definitions.items()}
    return {**_with_nothing_needed(schema), "$defs": parts}


def _is_number(schema: Tree) -> bool:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return isinstance(properties, dict) and {"value", "source"} <= set(properties)


def _with_nothing_needed(schema: Tree) -> Schema:
    assert isinstance(schema, dict)
    return {key: value for key, value in schema.items() if key != "required"}


def _record(properties: Mapping[str, Tree]) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": dict(properties)}


def _kinds(constants: type) -> Tree:
    limits = limits_of(constants)
    numbers: Schema = {}
    for field in fields(constants):
        limit = limits[field.name]
        numbers[field.name.removesuffix("_s")] = (
            {"type": ["string", "number"], "description": f"a time with its unit, {limit.low:g} to {limit.high:g} s"}
            if field.name.endswith("_s")
            else {"type": "number", "minimum": limit.low, "maximum": limit.high}
        )
    notes: Schema = {
        "like": {"type": "string", "description": "a kind whose constants this one has, unless it gives its own"},
        "source": {"type": "string", "minLength": 1},
        "confidence": {"enum": list(get_args(Confidence))},
        "as_of": {"type": "string"},
    }
    kind: Tree = {**_record({**numbers, **notes}), "required": ["source", "confidence"]}
    return {"type": "object", "additionalProperties": kind}


FILES: Mapping[str, Callable[[], Schema]] = MappingProxyType(
    {
        "system": _of(SystemFile),
        "chip": _of(ChipFile),
        "network": _of(NetworkSection),
        "stack": _layered(STACK, "a stack"),
        "engine": _layered(EngineFile, "an engine"),
        "calibration": _calibration,
        "prices": _prices,
    }
)
