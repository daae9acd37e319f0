"""`slipstick search`: every legal plan of a model on a machine, or on many, and the best of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import click

from ...app.arguments.search import AnswerArgs, ExecutionArgs, SamplingArgs, SpaceArgs
from ...app.search.axes import REFUSED, SERVER
from ...app.sources import VerbArguments
from ...ir.errors import UsageError
from ..flags.build import flags_of
from ..flags.command import PlanCommand
from ..help import Section
from ..output.answers import DRAWN_FORMS, DRAWN_SUFFIXES, FORMS, AppCommand, format_flag, output_flag
from ..output.files import write_text

if TYPE_CHECKING:
    from ...report.results.result import Result
    from ...report.results.tables import SearchResult

# Forms of a front, by the suffix of its file.
FRONTS = (".svg", ".html", ".json", ".txt")
_TOP, _WHY = flags_of(AnswerArgs)
_ANSWER = (
    _TOP,
    click.Option(["--best-plan"], metavar="FILE", help="Write the best plan, for `estimate --plan FILE`."),
    click.Option(["--front"], metavar="FILE", help="Write the Pareto front, as .svg, .html, .json or .txt."),
    _WHY,
    format_flag(*FORMS, "svg"),
    output_flag(DRAWN_SUFFIXES),
)


class SearchCommand(AppCommand, PlanCommand):
    """A verb to which a flag of a plan that is typed is what plans must have.

    MODEL may be left out where a file or a run names it.
    """

    delivered: ClassVar[tuple[str, ...]] = ("form", "output", "best_plan", "front")
    forms: ClassVar[tuple[str, ...]] = DRAWN_FORMS
    serves = True
    more = (
        ("Space", flags_of(SpaceArgs)),
        ("Optimiser", flags_of(SamplingArgs)),
        ("Run", flags_of(ExecutionArgs)),
        ("Answer", _ANSWER),
        ("Servers (--phase serve)", flags_of(*SERVER)),
    )

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Name the parameters; none is needed."""
        free = click.Argument(["model"], required=False, default="")
        return [free if param.name == "model" else param for param in super().get_params(ctx)]

    def sections(self, ctx: click.Context) -> list[Section]:
        """Return the flags of a search: all but those that it refuses."""
        heard = [(title, [p for p in params if p.name not in REFUSED]) for title, params in super().sections(ctx)]
        return [(title, params) for title, params in heard if params]

    def form_of(self, said: Mapping[str, object], arguments: VerbArguments) -> str:
        """Return the form; a picture of a kind that there is not is refused before anything slow happens."""
        front = said["front"]
        if front is not None and not str(front).endswith(FRONTS):
            raise UsageError(f"--front {front}: the name says the form: {', '.join(FRONTS)}")
        return super().form_of(said, arguments)

    def deliver(self, result: Result, form: str, said: Mapping[str, object], arguments: VerbArguments) -> int:
        """Write the answer, the best plan as a file, the front as a picture."""
        from ...app.search.answer import best_plan_text, front_text
        from ...report.results.tables import SearchResult

        assert isinstance(result, SearchResult)
        super().deliver(result, form, said, arguments)
        if said["best_plan"] is not None:
            write_text(best_plan_text(result.answer), str(said["best_plan"]))
        if said["front"] is not None:
            write_text(front_text(result.front(), str(said["front"])), str(said["front"]))
        return 0


@click.command("search", cls=SearchCommand)
def search_command(arguments: VerbArguments) -> SearchResult:
    """Search the parallel plans of MODEL on a number of GPUs, and show the best.

    A plan flag fixes its value (--tp 8); all others are free: degrees, micro-batch, interleaving, schedule, ZeRO
    stage, sequence parallelism, method of context parallelism, recomputation, expert sharding. Data types, kernels,
    offload and the like keep the defaults of `slipstick estimate`, unless --vary names them.

    \b
    slipstick search llama-3.1-8b --system dgx-h100 --gpus 64 --seq 8192 --gbs 256
    slipstick search llama-3.1-405b --system dgx-h100 --gpus 16384 --seq 8192 --gbs 2048 --objective step_time_s,mem
    slipstick search llama-3.1-70b --phase serve --system dgx-h100 --gpus 16 --isl 2000 --osl 500 --ttft 1s --tpot 30ms
    slipstick search deepseek-v3 --system hgx-h800 --gpus 2048 --seq 4096 --gbs 15360 --vary precision=none,fp8
    """  # noqa: D301
    from ...app.search.asked import SearchRequest
    from ...app.search.search import search_plans

    return search_plans(SearchRequest.of(arguments))
