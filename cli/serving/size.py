"""`slipstick size`: the fewest devices that answer so many requests a second in time."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import click

from ...ir.errors import UsageError
from ..flags.numbers import Whole
from ..flags.request import Request
from ..flags.run import count_of
from ..flags.shared import Named
from ..output.answers import Answering, format_flag, output_flag
from ..plans.file import is_given
from ..prepare import check_model
from .flags import ENGINE, LIMITS, REQUESTS, TARGETS, USUAL_ENGINE, ServeCommand, Serving
from .serve import machine_of, priced_serving, served_of

if TYPE_CHECKING:
    from ...driver.serve.sizes.shapes import Shape
    from ...driver.serve.tables import Served
    from ...ir.plan import Plan
    from ...report.results.steps import SizeResult

# Flags of plans that are kept where they are given, and searched where they are not.
DEGREES = ("tp", "pp", "ep")
# Flags that say nothing here.
OF_STEPS = ("seq", "mbs", "gbs", "gpus", "dp")


class SizeCommand(Answering, ServeCommand):
    """Its help names the flags of servers by themselves."""

    more = (("Serving", (ENGINE, *REQUESTS, *TARGETS, *LIMITS)),)


@click.command("size", cls=SizeCommand, params=[format_flag(), output_flag()])
@click.option("--target-rps", required=True, metavar="R", help="Target rate of requests per second.")
@click.option(
    "--disagg",
    "pools",
    type=Named(("auto", "on", "off")),
    default="auto",
    show_default=True,
    help="Disaggregated prefill and decode: whichever takes fewer GPUs, always, or never.",
)
@click.option("--max-gpus", type=Whole(min=1), metavar="N", help="Limit on the number of GPUs.  [default: any]")
@click.option("--top", type=Whole(min=1), default=8, show_default=True, metavar="N", help="Plans to show.")
@click.pass_context
def size_command(
    ctx: click.Context,
    request: Request,
    serving: Serving,
    target_rps: str,
    pools: str,
    max_gpus: int | None,
    top: int,
) -> SizeResult:
    """Find the fewest GPUs of a system on which MODEL answers so many requests a second, and their plan.

    Tensor parallelism inside a node, pipeline stages and expert parallelism are searched, unless --tp, --pp or --ep
    fix them; TTFT and TPOT are means over Poisson arrivals.

    \b
    slipstick size llama-3.1-70b --system dgx-h100 --target-rps 10 --ttft 500ms --tpot 30ms --isl 1000 --osl 200
    """  # noqa: D301
    from ...cost.flops import Convention
    from ...driver.serve.sizes.shapes import shapes_of
    from ...driver.serve.sizes.size import size
    from ...driver.serve.sizes.sizing import Question
    from ...report.results.steps import SizeResult

    _check(ctx)
    check_model(request)
    system, engine, asked = machine_of(request, serving.engine or USUAL_ENGINE)
    question = Question(
        requests_per_s=count_of(target_rps), target=serving.target, lengths=serving.lengths,
        engine=serving.limited(engine), most_gpus=max_gpus or 10**6,
        convention=Convention(request.flops_convention),
    )  # fmt: skip
    lowered = _lowered(asked.said({"seq": serving.prompt}))
    given = {name: (getattr(request.words, name),) if is_given(ctx, name) else () for name in DEGREES}
    found = size(question, system, shapes_of(system, _has_experts(lowered), **given), lowered, pools)
    return SizeResult(found=found, answers=[priced_serving(request, one) for one in found.answers(top)])


def _check(ctx: click.Context) -> None:
    """Raise UsageError for flags that a search has no use for."""
    wrong = [name for name in (*OF_STEPS, "phase") if is_given(ctx, name)]
    if wrong:
        flags = " and ".join(f"--{name}" for name in wrong)
        raise UsageError(f"{flags}: size finds the GPUs and the batch itself; it takes --target-rps, --isl, --osl")


def _lowered(request: Request) -> Callable[[Shape], tuple[Served, Plan]]:
    """Lower a model once for each structure that shapes have."""
    from ...ir.plan import make_plan

    @cache
    def served(pp: bool, ep: bool, etp: bool) -> tuple[Served, Plan]:
        shape = request.said({
            "tp": 2 if ep and not etp else 1, "pp": 2 if pp else 1, "ep": 2 if ep else 1, "dp": 2 if ep and etp else 1,
            "gpus": None, "etp": None if etp else 1,
        })  # fmt: skip
        return served_of(shape)

    def of_shape(shape: Shape) -> tuple[Served, Plan]:
        found, like = served(shape.pp > 1, shape.ep > 1, shape.tp == 1 or shape.ep == 1)
        family = like.family
        plan = make_plan(
            num_gpus=shape.num_gpus, seq_len=request.words.seq_len, family=family, tp=shape.tp, pp=shape.pp,
            ep=shape.ep, dp=shape.dp, etp=None if family.etp else 1, kv_len=request.words.seq_len,
        )  # fmt: skip
        return found, plan

    return of_shape


def _has_experts(lowered: Callable[[Shape], tuple[Served, Plan]]) -> bool:
    """Whether the model has experts to deal out."""
    from ...driver.serve.sizes.shapes import Shape
    from ...ir.ops import Trait, has

    graph = lowered(Shape())[0].decode.source
    return any(has(node, Trait.HOLDS_EXPERTS) for region in graph.regions for node in region.nodes)
