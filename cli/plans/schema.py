"""The JSON Schema of a plan file, made of the flags that it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import click

from ..flags.shared import takes_list, words_of

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_TYPES: Mapping[type, str] = {click.types.IntParamType: "integer", click.types.FloatParamType: "number"}


def plan_schema() -> dict[str, Json]:
    """Return the schema: a property for each word, with the help of its flag.

    >>> plan_schema()["properties"]["tp"]["type"], plan_schema()["properties"]["sp"]["type"]
    ('integer', 'boolean')
    """
    from ...ir.plan.files import SCHEMA
    from .file import FRAMEWORKS

    model: Json = {"type": "string", "description": "A name of `slipstick list models`, or a path, as MODEL."}
    framework: Json = {"enum": [*FRAMEWORKS], "description": "Whose launch the plan was imported from."}
    properties: dict[str, Json] = {"schema": {"const": SCHEMA}, "framework": framework, "model": model}
    properties |= {name: _property(flag) for name, flag in words().items() if isinstance(flag, click.Option)}
    return {
        "$schema": _DRAFT,
        "title": "plan",
        "description": "What flags say, in their words; flags on the command line override it.",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }


def words() -> Mapping[str, click.Parameter]:
    """Return the flags that a plan file may stand for, of steps and of servers, by their keys."""
    from ..estimate import EstimateCommand

    return words_of(EstimateCommand.more)


def _property(flag: click.Option) -> dict[str, Json]:
    told: dict[str, Json] = {"description": flag.help} if flag.help else {}
    if flag.multiple:
        return {"type": "array", "items": {"type": "string"}, **told}
    return {**_type(flag), **told}


def _type(flag: click.Option) -> dict[str, Json]:
    kind = flag.type
    if isinstance(kind, click.Choice):
        return {"enum": [str(choice) for choice in kind.choices]}
    if isinstance(kind, click.types.BoolParamType):
        return {"type": "boolean"}
    found = next((name for of, name in _TYPES.items() if isinstance(kind, of)), None)
    if found is None:
        return {"type": ["string", "number", *(("array",) if takes_list(flag) else ())]}
    return {"type": found}
