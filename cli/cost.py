"""`slipstick cost`: what a system costs, from its dies to a GPU for an hour; several systems side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import click

from ..app.arguments.machine import MoneyArgs, YearArgs
from ..app.arguments.others import CostArgs
from ..app.sources import VerbArguments
from ..ir.errors import UsageError
from .flags.build import flags_of, words
from .flags.names import of_catalogue
from .output.answers import DRAWN_FORMS, DRAWN_SUFFIXES, FORMS, AppCommand, format_flag, output_flag, write_reasons

if TYPE_CHECKING:
    from ..report.results.result import Result


class CostCommand(AppCommand):
    """A verb that can also say why one line is what it is."""

    delivered: ClassVar[tuple[str, ...]] = ("form", "output", "explain")
    forms: ClassVar[tuple[str, ...]] = DRAWN_FORMS

    def form_of(self, said: Mapping[str, object], arguments: VerbArguments) -> str:
        """Return the form; an explanation is text, to a file of any name."""
        if said["explain"] is None:
            return super().form_of(said, arguments)
        if said["form"] not in (None, "table"):
            told = "formulas and values of all lines are in --format json"
            raise UsageError(f"--explain writes text, no {said['form']}; {told}")
        return "table"

    def deliver(self, result: Result, form: str, said: Mapping[str, object], arguments: VerbArguments) -> int:
        """Write the result, or the reason of a line."""
        if said["explain"] is None:
            return super().deliver(result, form, said, arguments)
        from ..report.results.tables import CostResult

        if not isinstance(result, CostResult):
            raise UsageError("--explain takes a line of one system: name one")
        write_reasons(result.explain(str(said["explain"])), str(said["output"]))
        return 0


@click.command(
    "cost",
    cls=CostCommand,
    params=[*flags_of(YearArgs, MoneyArgs), format_flag(*FORMS, "svg"), output_flag(DRAWN_SUFFIXES)],
)
@click.argument("system", shell_complete=of_catalogue("systems"))
@words(CostArgs)
@click.option(
    "--explain",
    metavar="LINE",
    help="Explain a line or metric, e.g. 'chip defects', energy/machines, usd_tco.",
)
def cost_command(arguments: VerbArguments) -> Result:
    """Show the cost of SYSTEM: manufacturing, purchase, ownership, energy and carbon.

    SYSTEM is a name of `slipstick list systems`, or a YAML file; `slipstick estimate` prices its steps. Several systems
    separated by commas, or `all`, are compared: bought, built and rented. A YAML file of products shows their cost with
    and without the dies and packages that they share.

    \b
    slipstick cost dgx-h100 --gpus 1024
    slipstick cost dgx-h100,dgx-b200,gb200-nvl72 --gpus 1024 --prices mine.yaml
    slipstick cost dgx-h100 --breakdown package --explain 'chip defects'
    slipstick cost family.yaml --set products.large.volume=200000
    """  # noqa: D301
    from ..app.cost import CostRequest, price_system

    return price_system(CostRequest.of(arguments))
