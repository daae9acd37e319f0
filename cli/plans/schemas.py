"""`slipstick schema`: JSON Schemas of the files that users write."""

from __future__ import annotations

from collections.abc import Mapping

import click

from ...ir.text.json_text import json_text
from ..flags.numbers import Named
from ..output.files import check_suffix, write_text

KINDS = ("system", "chip", "network", "stack", "engine", "calibration", "prices", "plan", "space")


@click.command("schema")
@click.argument("kind", type=Named(KINDS), metavar="KIND")
@click.option("-o", "--output", default="-", show_default=True, metavar="FILE", help="Output file; - is stdout.")
def schema_command(kind: str, output: str) -> int:
    """Print the JSON Schema of a KIND of file, for completion and checks in an editor.

    Kinds are system, chip, network, stack, engine, calibration, prices, plan and space.

    \b
    slipstick schema system -o system.schema.json
    """  # noqa: D301
    check_suffix(output, ".json")
    write_text(json_text(schema_of(kind), indent=2), output)
    return 0


def schema_of(kind: str) -> Mapping[str, object]:
    """Return the JSON Schema of a kind of file, one of `KINDS`."""
    if kind == "plan":
        from ...app.plans.schema import plan_schema

        return plan_schema()
    if kind == "space":
        from ...app.search.space_file import space_schema

        return space_schema()
    from ...backends.machine.files.file_schemas import file_schema

    return file_schema(kind)
