"""How a number of a file is read: a record of few keys, alike for all kinds of numbers, so that a kind costs nothing.

A model of pydantic for each of a hundred kinds would take longer to make than all files take to read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import get_args

from pydantic_core import CoreSchema, core_schema

from ....ir.errors import UsageError
from .records import Confidence

# The source of a number that is written without one.
THIS_FILE = "this file"


def record_schema(kind: type, fields: Sequence[core_schema.DataclassField], named: bool = True) -> CoreSchema:
    """Return the schema of a frozen dataclass with these keys and no others; a `named` one is a definition of its own.

    Its `__post_init__` checks what the keys say together.
    """
    return core_schema.dataclass_schema(
        kind,
        core_schema.dataclass_args_schema(kind.__name__, list(fields)),
        [field["name"] for field in fields],
        post_init=hasattr(kind, "__post_init__"),
        ref=f"{kind.__module__}.{kind.__qualname__}" if named else None,
        frozen=True,
        slots=True,
        config=core_schema.CoreConfig(extra_fields_behavior="forbid"),
    )


def number_schema(kind: type, more: Sequence[core_schema.DataclassField] = ()) -> CoreSchema:
    """Return the schema of a number, with keys of its kind beside those of all.

    A quantity alone stands for an estimate of the file that it is written in.
    """
    record = record_schema(kind, [*number_fields(), *more], named=False)
    name = f"{kind.__module__}.{kind.__qualname__}"
    return core_schema.no_info_before_validator_function(_written_out, record, ref=name)


def _written_out(given: object) -> object:
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        return given
    return {"value": given, "confidence": "estimated", "source": THIS_FILE}


@cache
def number_fields() -> tuple[core_schema.DataclassField, ...]:
    """Return the keys that every number has."""
    text = core_schema.str_schema()
    value = core_schema.union_schema([core_schema.float_schema(), text])
    confidence = core_schema.literal_schema(list(get_args(Confidence)))
    return (
        field("unit", core_schema.nullable_schema(text), optional=True),
        field("value", core_schema.no_info_plain_validator_function(_plain, json_schema_input_schema=value)),
        field("source", core_schema.str_schema(min_length=1)),
        field("confidence", core_schema.with_default_schema(confidence, default="datasheet")),
        field("as_of", core_schema.nullable_schema(text), optional=True),
    )


def field(name: str, schema: CoreSchema, optional: bool = False) -> core_schema.DataclassField:
    """Return a key; one that is `optional` is None where it is not given."""
    given = core_schema.with_default_schema(schema, default=None) if optional else schema
    return core_schema.dataclass_field(name, given, kw_only=True)


def _plain(value: object) -> float | str:
    """Keep a number as it was written: messages say it again."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise UsageError(f"expected a number, not {value!r}")
    return value
