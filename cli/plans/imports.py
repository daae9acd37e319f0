"""`slipstick import`: a launch of another framework as a plan file, with what was left out."""

from __future__ import annotations

from dataclasses import fields

import click

from ...app.arguments.machine import EnvironmentArgs
from ...app.plans.file import FRAMEWORKS
from ...ir.errors import NotUnderstoodError
from ...ir.records import dataclass
from ...ir.text.json_text import json_text
from ..flags.build import words
from ..flags.names import of_catalogue
from ..flags.numbers import Named, Whole
from ..output.files import check_suffix, write_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Importing:
    """What a user wants of an import, as typed."""

    framework: str | None
    system: str | None
    num_gpus: int | None
    model: str | None
    environment: tuple[str, ...]
    strict: bool
    form: str
    output: str
    launch: tuple[str, ...]


class ImportCommand(click.Command):
    """A verb whose function receives all that was typed as one `asked`."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the verb's function."""
        ctx.params["asked"] = Importing(**{f.name: ctx.params.pop(f.name) for f in fields(Importing)})
        return super().invoke(ctx)


@click.command("import", cls=ImportCommand, context_settings={"ignore_unknown_options": True})
@click.option(
    "--framework",
    type=Named(FRAMEWORKS),
    metavar="NAME",
    help=f"Source framework: {', '.join(FRAMEWORKS)}.  [default: detected]",
)
@click.option(
    "--system",
    metavar="NAME|FILE",
    shell_complete=of_catalogue("systems"),
    help="System that it runs on, for the plan file.",
)
@click.option("--gpus", "num_gpus", type=Whole(min=1), metavar="N", help="Number of GPUs, if the launch does not say.")
@click.option("--model", metavar="NAME|FILE", help="Model, if the launch names none of the catalogue.")
@words(EnvironmentArgs)
@click.option("--strict", is_flag=True, help="Exit with code 4 when a setting that may matter is not understood.")
@click.option(
    "--format", "form", type=Named(("plan", "json")), default="plan", show_default=True, help="Output format."
)
@click.option("-o", "--output", default="-", show_default=True, metavar="FILE", help="Output file; - is stdout.")
@click.argument("launch", nargs=-1, required=True, metavar="FILE | -- COMMAND...", type=click.UNPROCESSED)
def import_command(asked: Importing) -> int:
    """Read a launch of another framework into a plan file for `slipstick estimate --plan`.

    FILE is a shell or Slurm script, a JSON, TOML or YAML file of settings, a Kubernetes manifest, a recipe of
    Megatron-Bridge or NeMo (recipes.py::NAME), or - for stdin; a COMMAND comes after --. Nothing in it is run.
    Every setting is in the plan, as its stack or engine usually has it, known to change neither time nor memory, or
    listed as left out.

    \b
    slipstick import train_llama3.sh --gpus 64 --system dgx-h100 -o plan.yaml
    slipstick import --system dgx-h100 -- vllm serve meta-llama/Llama-3.1-70B --tensor-parallel-size 4
    """  # noqa: D301
    from ...frameworks.imported import LaunchAround, import_launch

    check_suffix(asked.output, ".json" if asked.form == "json" else ".yaml")
    around = LaunchAround(**{f.name: getattr(asked, f.name) for f in fields(LaunchAround)})
    plan = import_launch(asked.launch, around, asked.output)
    write_text(json_text(plan.record, indent=1) if asked.form == "json" else plan.text, asked.output)
    if asked.strict and plan.launch.left_out:
        names = list(plan.launch.left_out)
        told = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
        raise NotUnderstoodError(f"--strict: {len(names)} settings are not understood: {told}")
    return 0
