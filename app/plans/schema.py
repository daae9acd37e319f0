"""The JSON Schema of a plan file, made of the words that it may say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from ..arguments.options import Opt, WordKind
from .file import FRAMEWORKS
from .words import MODEL, plan_words

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_TYPES: Mapping[WordKind, str] = {
    **dict.fromkeys((WordKind.COUNT, WordKind.ONE, WordKind.TOKENS), "integer"),
    **dict.fromkeys((WordKind.SWITCH, WordKind.BOTH), "boolean"),
    WordKind.REAL: "number",
}


def plan_schema() -> dict[str, Json]:
    """Return the schema: a property for each word, with the help of its flag.

    >>> plan_schema()["properties"]["tp"]["type"], plan_schema()["properties"]["sp"]["type"]
    ('integer', 'boolean')
    """
    from ...ir.plan.files import SCHEMA

    model: Json = {"type": "string", "description": MODEL.help}
    framework: Json = {"enum": [*FRAMEWORKS], "description": "Whose launch the plan was imported from."}
    properties: dict[str, Json] = {"schema": {"const": SCHEMA}, "framework": framework, "model": model}
    properties |= {word: _property(opt) for word, opt in plan_words().items() if opt is not MODEL}
    return {
        "$schema": _DRAFT,
        "title": "plan",
        "description": "What flags say, in their words; flags on the command line override it.",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }


def _property(opt: Opt) -> dict[str, Json]:
    told: dict[str, Json] = {"description": opt.help} if opt.help else {}
    if opt.is_many:
        return {"type": "array", "items": {"type": "string"}, **told}
    return {**_type(opt), **told}


def _type(opt: Opt) -> dict[str, Json]:
    if opt.choices:
        return {"enum": list(opt.choices)}
    if (kind := _TYPES.get(opt.kind)) is not None:
        return {"type": kind}
    return {"type": ["string", "number", *(("array",) if opt.is_list else ())]}
