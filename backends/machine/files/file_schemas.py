"""JSON Schemas of the files that users write, for editors that check while one types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import get_args

from pydantic import BaseModel, Field, JsonValue

from ....ir.errors import UnknownNameError
from ...kernels.constants import CLASSES
from ...kernels.limits import limits_of
from ...network.topology.section import LevelSection
from ...prices.section import PricesSection
from ..machine_schema import RackSection, ServerSection
from ..software.engine_schema import EngineSection
from ..software.stack_schema import StackSection
from ..system_schema import ChipSection, NetworkSection, NodeSection
from .records import Confidence
from .system_numbers import Section

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


class SystemFile(Section):
    """A machine as people write it: chip, network levels and software may be names of the catalogue, or paths."""

    name: str
    chip: str | ChipSection
    node: NodeSection
    network: str | list[str | LevelSection] = Field(min_length=1)
    server: ServerSection | None = None
    rack: RackSection | None = None
    stack: str | StackSection = "default"
    calibration: str | dict[str, JsonValue] | None = None
    prices: str | dict[str, JsonValue] | None = None


def file_schema(kind: str) -> dict[str, JsonValue]:
    """Return the JSON Schema of a kind of file; UnknownNameError names those there are.

    >>> sorted(file_schema("chip")["required"])
    ['clock', 'matmul', 'memory', 'name', 'num_sms', 'power', 'vector']
    """
    if kind not in FILES:
        raise UnknownNameError.of("kind of file", kind, FILES)
    return {"$schema": _DRAFT, **FILES[kind]()}


def _of(top: type[BaseModel]) -> Callable[[], dict[str, JsonValue]]:
    return top.model_json_schema


def _calibration() -> dict[str, JsonValue]:
    kernels: JsonValue = _record({cls: _kinds(constants) for cls, constants in CLASSES.items()})
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


def _layered(top: type[BaseModel], called: str) -> Callable[[], dict[str, JsonValue]]:
    """What may be `like` another, which then has what it does not say itself, and may differ on some chips."""
    return lambda: _with_like(top.model_json_schema(), called)


def _with_like(schema: dict[str, JsonValue], called: str) -> dict[str, JsonValue]:
    needed, properties = schema.pop("required"), schema["properties"]
    assert isinstance(properties, dict)
    chips: JsonValue = {
        "type": "object",
        "description": "what holds on one chip only, by its name in the catalogue",
        "additionalProperties": _record(properties),
    }
    like: JsonValue = {"type": "string", "description": f"{called}, by name or path, that has what is not given here"}
    alone: JsonValue = [{"required": needed}, {"required": ["like"]}]
    return {**schema, "properties": {"like": like, **properties, "chips": chips}, "anyOf": alone}


def _prices() -> dict[str, JsonValue]:
    """A file says what differs from the book that is shipped: no part is needed, but a number is whole."""
    schema: dict[str, JsonValue] = PricesSection.model_json_schema()
    definitions = schema.get("$defs", {})
    assert isinstance(definitions, dict)
    parts: JsonValue = {
        name: part if _is_number(part) else _with_nothing_needed(part) for name, part in definitions.items()
    }
    return {**_with_nothing_needed(schema), "$defs": parts}


def _is_number(schema: JsonValue) -> bool:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return isinstance(properties, dict) and {"value", "source"} <= set(properties)


def _with_nothing_needed(schema: JsonValue) -> dict[str, JsonValue]:
    assert isinstance(schema, dict)
    return {key: value for key, value in schema.items() if key != "required"}


def _record(properties: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    return {"type": "object", "additionalProperties": False, "properties": dict(properties)}


def _kinds(constants: type) -> JsonValue:
    limits = limits_of(constants)
    numbers: dict[str, JsonValue] = {}
    for field in fields(constants):
        limit = limits[field.name]
        numbers[field.name.removesuffix("_s")] = (
            {"type": ["string", "number"], "description": f"a time with its unit, {limit.low:g} to {limit.high:g} s"}
            if field.name.endswith("_s")
            else {"type": "number", "minimum": limit.low, "maximum": limit.high}
        )
    notes: dict[str, JsonValue] = {
        "like": {"type": "string", "description": "a kind whose constants this one has, unless it gives its own"},
        "source": {"type": "string", "minLength": 1},
        "confidence": {"enum": list(get_args(Confidence))},
        "as_of": {"type": "string"},
    }
    kind: JsonValue = {**_record({**numbers, **notes}), "required": ["source", "confidence"]}
    return {"type": "object", "additionalProperties": kind}


FILES: Mapping[str, Callable[[], dict[str, JsonValue]]] = MappingProxyType(
    {
        "system": _of(SystemFile),
        "chip": _of(ChipSection),
        "network": _of(NetworkSection),
        "stack": _layered(StackSection, "a stack"),
        "engine": _layered(EngineSection, "an engine"),
        "calibration": _calibration,
        "prices": _prices,
    }
)
