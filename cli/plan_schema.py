"""The JSON Schema of a plan file, made of the flags that it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import click

from ..ir.plan.words import WORDS
from .flags import MODEL, SECTIONS
from .plan_file import flag_name, takes_list

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
# Sections whose flags say what is estimated; the others say how a run is made and watched.
_SECTIONS = ("Workload", "Plan", "Machine", "Training run", "Money")
_OTHERS = (*WORDS, "allow_unpriced", "flops_convention")
_TYPES: Mapping[type, str] = {click.types.IntParamType: "integer", click.types.FloatParamType: "number"}


def plan_schema() -> dict[str, Json]:
    """Return the schema: a property for each word, with the help of its flag.

    >>> plan_schema()["properties"]["tp"]["type"], plan_schema()["properties"]["sp"]["type"]
    ('integer', 'boolean')
    """
    from ..ir.plan.files import SCHEMA

    model: Json = {"type": "string", "description": "A name of `slipstick list models`, or a path, as MODEL."}
    properties: dict[str, Json] = {"schema": {"const": SCHEMA}, "model": model}
    properties |= {name: _property(flag) for name, flag in words().items() if isinstance(flag, click.Option)}
    return {
        "$schema": _DRAFT,
        "title": "plan",
        "description": "What flags say, in their words; what is typed beside --plan holds over it.",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }


def words() -> Mapping[str, click.Parameter]:
    """Return the flags that a plan file may stand for, of steps and of servers, by their keys."""
    from .estimate import EstimateCommand

    shared = [flag for name in _SECTIONS for flag in SECTIONS[name]]
    others = [flag for section in SECTIONS.values() for flag in section if flag_name(flag) in _OTHERS]
    served = [flag for _, section in EstimateCommand.more for flag in section]
    return {flag_name(p): p for p in (MODEL, *shared, *others, *served)}


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
