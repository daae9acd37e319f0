"""`slipstick choose`: which system, how many GPUs of it and which plan, for a training run with a deadline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import click

from ...app.arguments.fleets import (
    ChooseArgs,
    CountsArgs,
    EvidenceArgs,
    ExecutorArgs,
    FleetArgs,
    FleetPlanArgs,
    SystemsArgs,
)
from ...app.arguments.serving import EngineArgs, TargetArgs
from ...app.sources import VerbArguments
from ..flags.build import flags_of, words
from ..flags.command import PlanCommand
from ..help import Section
from ..output.answers import AppCommand, format_flag, output_flag
from ..output.files import write_text

if TYPE_CHECKING:
    from ...report.results.result import Result

_SYSTEM, _GPUS = flags_of(SystemsArgs, CountsArgs)


class ChooseCommand(AppCommand, PlanCommand):
    """A verb whose --gpus names several numbers and whose --system several systems."""

    delivered: ClassVar[tuple[str, ...]] = ("form", "output", "best_plan")

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Name the parameters, with a list of numbers of GPUs in the place of one."""
        return [
            _GPUS if param.name == "gpus" else _SYSTEM if param.name == "system" else param
            for param in super().get_params(ctx)
        ]

    def sections(self, ctx: click.Context) -> list[Section]:
        """Return the flags, these two with the verb's own."""
        own, *shared = super().sections(ctx)
        rest = [(title, [p for p in params if p.name not in ("gpus", "system")]) for title, params in shared]
        return [(own[0], [_SYSTEM, _GPUS, *own[1]]), *rest]

    def deliver(self, result: Result, form: str, said: Mapping[str, object], arguments: VerbArguments) -> int:
        """Write the table, and the plan of the first cluster as a file."""
        from ...app.search.choose import ChooseRequest, plan_text
        from ...report.clusters import ClusterResult

        super().deliver(result, form, said, arguments)
        if said["best_plan"] is not None:
            assert isinstance(result, ClusterResult)  # a fleet refuses the flag
            write_text(plan_text(result.found, ChooseRequest.of(arguments)), str(said["best_plan"]))
        return 0


_FLEET = flags_of(FleetArgs, TargetArgs, EngineArgs, FleetPlanArgs)


@click.command("choose", cls=ChooseCommand, params=[*_FLEET, format_flag(), output_flag()])
@words(ChooseArgs)
@words(EvidenceArgs)
@click.option("--best-plan", metavar="FILE", help="Write the plan of the first cluster, for `estimate --plan FILE`.")
@words(ExecutorArgs)
def choose_command(arguments: VerbArguments) -> Result:
    """Choose a cluster for a training run of MODEL, or with --rps a fleet that serves it.

    Every system and number of GPUs gets its fastest plan; of each system the table shows the cheapest cluster that
    keeps the deadline, the budget and the power, and at which price of a GPU-hour the order would change.

    \b
    slipstick choose llama-3.1-70b --tokens 15T --deadline 60d --system all --gpus 1024:32768 --seq 8192 --gbs 2048
    slipstick choose mixtral-8x7b --tokens 1T --budget 5M --system dgx-h100,dgx-b200 --gpus 256:2048 --gbs 1024 --rent
    slipstick choose llama-3.1-70b --rps 500 --system all --isl 1024 --osl 256 --ttft p99:500ms --tpot p95:30ms
    slipstick choose llama-3.1-8b --rps 100 --also 'llama-3.1-70b rps=20 ttft=1s' --system dgx-h100,dgx-b200
    """  # noqa: D301
    from ...app.search.choose import ChooseRequest, choose_cluster

    return choose_cluster(ChooseRequest.of(arguments))
