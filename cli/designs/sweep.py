"""`slipstick sweep`: chip designs by the thousand, with their silicon, their money, and the time of a model on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import click

from ...app.arguments.designs import (
    AroundArgs,
    DesignSamplingArgs,
    DesignsArgs,
    StudyArgs,
    SweepArgs,
    TechnologyArgs,
    VolumeArgs,
)
from ...app.sources import VerbArguments
from ..flags.build import flags_of, words
from ..flags.command import PlanCommand
from ..output.answers import DRAWN_FORMS, DRAWN_SUFFIXES, FORMS, AppCommand, format_flag, output_flag
from ..output.files import write_text

if TYPE_CHECKING:
    from ...report.results.result import Result
    from ...report.results.tables import SweepResult


class SweepCommand(AppCommand, PlanCommand):
    """A verb that designs its systems."""

    delivered: ClassVar[tuple[str, ...]] = ("form", "output", "best_system")
    forms: ClassVar[tuple[str, ...]] = DRAWN_FORMS
    # Defaults of one's own for all verbs are not of this one, which makes its systems.
    refused: ClassVar[tuple[str, ...]] = ("system", "rent")
    more = (("Optimiser", flags_of(DesignSamplingArgs, StudyArgs)),)

    def deliver(self, result: Result, form: str, said: Mapping[str, object], arguments: VerbArguments) -> int:
        """Write the designs, and the system of the first row."""
        from ...report.results.tables import SweepResult

        assert isinstance(result, SweepResult)
        super().deliver(result, form, said, arguments)
        if said["best_system"] is not None:
            write_text(result.system(), str(said["best_system"]))
        return 0


@click.command("sweep", cls=SweepCommand, params=[format_flag(*FORMS, "svg"), output_flag(DRAWN_SUFFIXES)])
@words(SweepArgs, AroundArgs, VolumeArgs, TechnologyArgs, DesignsArgs)
@click.option(
    "--best-system", metavar="FILE", help="Write the system of the first row as well, for `cost` and `estimate`."
)
def sweep_command(arguments: VerbArguments) -> SweepResult:
    """Cost a space of chip designs, and estimate MODEL on each of them under one plan.

    Every combination of values is a design. Its chip follows from area, power and technology node; its package and the
    system around it are priced bottom-up; a step of MODEL is estimated on it. MODEL `none` leaves the step out.
    --set changes a number of the prices, of the technology, or of the system around the chips.

    \b
    slipstick sweep none --die-area 200:800:50mm2 --chiplets 1,2,4 --power-density 0.8W/mm2 --gpus 1024
    slipstick sweep llama-3.1-8b --node N5,N3 --die-area 400:800:50mm2 --power 700,1000W --gpus 64 --tp 8 --gbs 64
    slipstick sweep none --die-area 200..800mm2 --chiplets 1,2,4 --power-density 0.5..1.2W/mm2 --gpus 1024 --trials 300
    """  # noqa: D301
    from ...app.designs.sweep import SweepRequest, sweep_designs

    return sweep_designs(SweepRequest.of(arguments))
