"""`slipstick schema`: JSON Schemas of the files that users write."""

from __future__ import annotations

import json

import click

from .flags import Named
from .output import write_text

KINDS = ("system", "chip", "network", "stack", "engine", "calibration", "prices")


@click.command("schema")
@click.argument("kind", type=Named(KINDS))
@click.option("-o", "--output", default="-", show_default=True, metavar="FILE", help="Where to write it; - is stdout.")
def schema_command(kind: str, output: str) -> int:
    """Print the JSON Schema of a KIND of file, which editors check against while one types.

    \b
    slipstick schema system -o system.schema.json
    """  # noqa: D301
    from ..backends.file_schemas import file_schema

    write_text(json.dumps(file_schema(kind), indent=2), output)
    return 0
