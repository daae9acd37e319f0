"""`slipstick recompute`: what layers keep, offload and recompute, found for a plan and a limit of memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import click

from ...app.arguments.training import RecomputeArgs
from ...app.sources import VerbArguments
from ..flags.build import words
from ..flags.command import PlanCommand
from ..output.answers import AppCommand, format_flag, output_flag
from ..output.files import write_text

if TYPE_CHECKING:
    from ...report.results.policies import PolicyResult
    from ...report.results.result import Result


class RecomputeCommand(AppCommand, PlanCommand):
    """A verb that can also write the plan under the policy that it finds."""

    delivered: ClassVar[tuple[str, ...]] = ("form", "output", "best_plan")

    def deliver(self, result: Result, form: str, said: Mapping[str, object], arguments: VerbArguments) -> int:
        """Write the policies, and the plan under the best one as a file."""
        from ...report.results.policies import PolicyResult

        assert isinstance(result, PolicyResult)
        super().deliver(result, form, said, arguments)
        if said["best_plan"] is not None:
            from ...app.training.recompute import RecomputeRequest, plan_text

            write_text(plan_text(RecomputeRequest.of(arguments), result), str(said["best_plan"]))
        return 0


@click.command("recompute", cls=RecomputeCommand, params=[format_flag(), output_flag()])
@words(RecomputeArgs)
@click.option("--best-plan", metavar="FILE", help="Write the plan with the best policy as a plan file.")
def recompute_command(arguments: VerbArguments) -> PolicyResult:
    """Find the recomputation and offload policy with the fastest training step within the memory.

    An integer program chooses by the bytes and seconds of every operator; its choices are estimated like any plan.
    --recompute and --offload activations of the plan itself are left out; all other flags are as of `slipstick
    estimate`.

    \b
    slipstick recompute llama-3.1-8b --system dgx-h100 --gpus 8 --zero 1 --seq 8192 --gbs 64
    slipstick recompute llama-3.1-70b --system dgx-h100 --gpus 64 --tp 8 --pp 4 --seq 8192 --gbs 128 --best-plan p.yaml
    """  # noqa: D301
    from ...app.training.recompute import RecomputeRequest, find_recompute_policy

    return find_recompute_policy(RecomputeRequest.of(arguments))
