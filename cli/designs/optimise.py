"""`slipstick design optimise`: the best designs within budgets of area and power, jointly with the plan, by node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import click

from ...app.arguments.designs import AimArgs, AroundArgs, OptimiseArgs, TechnologyArgs
from ...app.sources import VerbArguments
from ..flags.build import words
from ..flags.command import PlanCommand
from ..output.answers import DRAWN_FORMS, DRAWN_SUFFIXES, AppCommand, format_flag, output_flag, write_reasons
from ..output.files import write_text

if TYPE_CHECKING:
    from ...report.results.result import Result


class OptimiseCommand(AppCommand, PlanCommand):
    """The verb `design optimise`, to which a flag of a plan that is typed is what plans must have."""

    delivered: ClassVar[tuple[str, ...]] = ("form", "output", "explain", "best_system", "best_plan")
    forms: ClassVar[tuple[str, ...]] = DRAWN_FORMS
    refused: ClassVar[tuple[str, ...]] = ("system", "rent")

    def deliver(self, result: Result, form: str, said: Mapping[str, object], arguments: VerbArguments) -> int:
        """Write the designs, or the reasons of a number; and the system and the plan of the best."""
        from ...report.designs.optimised import OptimisedDesigns

        assert isinstance(result, OptimisedDesigns)
        if said["best_system"] is not None:
            write_text(result.system(), str(said["best_system"]))
        if said["best_plan"] is not None:
            from ...app.designs.optimise import OptimiseRequest, plan_text

            write_text(plan_text(OptimiseRequest.of(arguments), result), str(said["best_plan"]))
        if said["explain"] is None:
            return super().deliver(result, form, said, arguments)
        write_reasons(result.explain(str(said["explain"])), str(said["output"]))
        return 0


@click.command("optimise", cls=OptimiseCommand, params=[format_flag(*DRAWN_FORMS[:-1]), output_flag(DRAWN_SUFFIXES)])
@words(OptimiseArgs, AroundArgs, TechnologyArgs, AimArgs)
@click.option(
    "--explain",
    metavar="NAME",
    help="Show why the best design takes its power, area or edge, or how a metric of its step comes about.",
)
@click.option("--best-plan", metavar="FILE", help="Write the plan of the best design, for `estimate --plan FILE`.")
@click.option("--best-system", metavar="FILE", help="Write the system of the best design, for `cost` and `estimate`.")
def optimise_command(arguments: VerbArguments) -> Result:
    """Optimise a chip for MODEL within budgets of area, power and die edge, on each of several nodes, with the plan.

    Free are the shares of the budgets, voltage and clock, the memory and its stacks, the lanes, and the parallel plan on
    --gpus; a flag of a plan fixes its value. The table says by how much each design beats the shares of its unit, at
    which part of its rated speed each component runs, and which designs no other beats in time, power, area and money.

    \b
    slipstick design optimise llama-3.1-8b --node N7,N5,N3 --area 814mm2 --power 700W --gpus 64 --gbs 64 --seq 8192
    slipstick design optimise mixtral-8x7b --die-area 800mm2 --power 1kW --memory hbm3e,hbm4 --gpus 64 --gbs 256 --objective $
    """  # noqa: D301, E501
    from ...app.designs.optimise import OptimiseRequest, optimise_design

    return optimise_design(OptimiseRequest.of(arguments))
