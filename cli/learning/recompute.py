"""`slipstick recompute`: what layers keep, offload and recompute, found for a plan and a limit of memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import click

from ...ir.errors import UsageError
from ..flags.numbers import Named
from ..flags.request import PlanCommand, Request
from ..output.answers import Answering, format_flag, output_flag
from ..output.files import write_text
from ..plans.software import with_software
from ..prepare import check_model, sized, system_of

if TYPE_CHECKING:
    from ...report.results.policies import PolicyResult
    from ...report.results.result import Result


class RecomputeCommand(Answering, PlanCommand):
    """A verb that can also write the plan under the policy that it finds."""

    delivered: ClassVar[tuple[str, ...]] = ("form", "output", "best_plan")

    def deliver(self, result: Result, form: str, said: Mapping[str, object]) -> int:
        """Write the policies, and the plan under the best one as a file."""
        from ...report.results.policies import PolicyResult

        assert isinstance(result, PolicyResult)
        super().deliver(result, form, said)
        if said["best_plan"] is not None:
            from ..plans.text import plan_file_text, words_around

            around = words_around(with_software(Request.of(dict(said))))
            write_text(plan_file_text(result.found.best.plan, around), str(said["best_plan"]))
        return 0


@click.command("recompute", cls=RecomputeCommand, params=[format_flag(), output_flag()])
@click.option(
    "--memory-limit",
    "limit",
    metavar="BYTES",
    help="Memory limit per GPU, e.g. 70GiB.  [default: all of the chip's]",
)
@click.option(
    "--offloading/--no-offloading",
    "offloading",
    default=True,
    show_default=True,
    help="Allow offloading of activations to host memory.",
)
@click.option(
    "--by-stage/--no-by-stage",
    default=True,
    show_default=True,
    help="Allow a different number of recomputed layers in each pipeline stage.",
)
@click.option(
    "--runs-on",
    type=Named(("megatron", "torchtitan", "maxtext", "deepspeed")),
    help="Only policies that the settings of this framework can express.  [default: that of --stack, else any policy]",
)
@click.option("--best-plan", metavar="FILE", help="Write the plan with the best policy as a plan file.")
def recompute_command(
    request: Request, limit: str | None, offloading: bool, by_stage: bool, runs_on: str | None
) -> PolicyResult:
    """Find the recomputation and offload policy with the fastest training step within the memory.

    An integer program chooses by the bytes and seconds of every operator; its choices are estimated like any plan.
    --recompute and --offload activations of the plan itself are left out; all other flags are as of `slipstick
    estimate`.

    \b
    slipstick recompute llama-3.1-8b --system dgx-h100 --gpus 8 --zero 1 --seq 8192 --gbs 64
    slipstick recompute llama-3.1-70b --system dgx-h100 --gpus 64 --tp 8 --pp 4 --seq 8192 --gbs 128 --best-plan p.yaml
    """  # noqa: D301
    from ...explore.recompute.search import find_policy
    from ...explore.recompute.spaces import FRAMEWORKS, space_of
    from ...ir.units import parse_typed
    from ...report.results.policies import PolicyResult

    if request.words.phase != "train":
        raise UsageError(f"--phase {request.words.phase}: memory policies say what training keeps; use --phase train")
    limit_bytes = None if limit is None else parse_typed(limit, "B", "--memory-limit")
    if limit_bytes is not None and limit_bytes <= 0:
        raise UsageError(f"--memory-limit {limit}: above 0, as 70GiB")
    check_model(request)
    request = with_software(request)
    system = system_of(request)
    graph, plan = sized(request, system.stack)
    if runs_on is None and system.stack.framework in FRAMEWORKS:
        runs_on = system.stack.framework
    space = replace(space_of(runs_on), to_host=offloading, by_stage=by_stage)
    found = find_policy(graph, system, plan, limit_bytes, space)
    return PolicyResult(found=found, model=graph.name, system=system, runs_on=runs_on)
