"""`slipstick size`: the fewest devices that answer so many requests a second in time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import click

from ...app.arguments.fleets import EvidenceArgs, SizeArgs
from ...app.arguments.serving import CachedArgs, EngineArgs, LimitArgs, RequestArgs, TargetArgs
from ...app.sources import VerbArguments
from ...ir.errors import UsageError
from ..flags.build import flags_of, words
from ..flags.command import PlanCommand
from ..output.answers import DRAWN_FORMS, DRAWN_SUFFIXES, FORMS, AppCommand, format_flag, output_flag
from ..output.files import write_text

if TYPE_CHECKING:
    from ...report.results.result import Result


class SizeCommand(AppCommand, PlanCommand):
    """Its help names the flags of servers by themselves."""

    forms: ClassVar[tuple[str, ...]] = DRAWN_FORMS
    delivered: ClassVar[tuple[str, ...]] = ("form", "output", "best_plan")
    serves = True
    more = (("Serving", flags_of(EngineArgs, RequestArgs, CachedArgs, TargetArgs, LimitArgs)),)

    def deliver(self, result: Result, form: str, said: Mapping[str, object], arguments: VerbArguments) -> int:
        """Write the table, and the first deployment as a file; UsageError where each system or rate has its own."""
        from ...app.serving.size import SizeRequest, plan_text
        from ...report.results.steps import SizeResult

        super().deliver(result, form, said, arguments)
        if said["best_plan"] is None:
            return 0
        if not isinstance(result, SizeResult):
            raise UsageError("--best-plan: of one system and one rate; leave it out, or name one of each")
        write_text(plan_text(SizeRequest.of(arguments), result.found), str(said["best_plan"]))
        return 0


@click.command("size", cls=SizeCommand, params=[format_flag(*FORMS, "svg"), output_flag(DRAWN_SUFFIXES)])
@words(SizeArgs)
@click.option("--best-plan", metavar="FILE", help="Write the first deployment, for `estimate --plan FILE`.")
@words(EvidenceArgs)
def size_command(arguments: VerbArguments) -> Result:
    """Find the smallest deployment of MODEL that meets a request rate and latency targets.

    Tensor parallelism inside a node, pipeline stages and expert parallelism are searched, unless --tp, --pp or --ep
    fix them; --cp is taken as it is given. Requests come at random; limits are on means, or on percentiles as in
    --ttft p99:500ms. Of several systems, `--system dgx-h100,dgx-b200` or `all`, each gets its own plan, and the
    cheapest fleet comes first.

    \b
    slipstick size llama-3.1-70b --system dgx-h100 --target-rps 10 --ttft 500ms --tpot 30ms --isl 1000 --osl 200
    """  # noqa: D301
    from ...app.serving.size import SizeRequest, size_server

    return size_server(SizeRequest.of(arguments))
