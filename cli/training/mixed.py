"""`slipstick mixed`: a step whose pipeline stages stand on several systems, its layers shared out to suit them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import click

from ...app.arguments.training import MixedArgs
from ...app.sources import VerbArguments
from ..flags.build import words
from ..flags.command import PlanCommand
from ..output.answers import AppCommand, deliver_short, format_flag, output_flag

if TYPE_CHECKING:
    from ...report.results.mixed import MixedResult
    from ...report.results.result import Result


class MixedCommand(AppCommand, PlanCommand):
    """A verb whose answer may not fit."""

    delivered = ("form", "output", "allow_infeasible")

    def deliver(self, result: Result, form: str, said: Mapping[str, object], arguments: VerbArguments) -> int:
        """Write the answer; InfeasibleError where a stage does not fit its machine."""
        from ...report.results.mixed import MixedResult

        assert isinstance(result, MixedResult)
        return deliver_short(result.shortage, said, partial(super().deliver, result, form, said, arguments))


@click.command("mixed", cls=MixedCommand, params=[format_flag(), output_flag()])
@words(MixedArgs)
@click.option("--allow-infeasible", is_flag=True, help="Answer, with exit code 0, even when memory does not fit.")
def mixed_command(arguments: VerbArguments) -> MixedResult:
    """Estimate a step of MODEL whose pipeline stages stand on several systems, such as two generations of a chip.

    Layers are shared out so that the step is shortest and every stage fits its own chips: slower chips get fewer
    layers. --pp-layout even or a list takes another split. The answer stands beside the same plan with even layers,
    with the systems in another order, and on each system alone.

    \b
    slipstick mixed llama-3.1-405b --stages dgx-h100:5,dgx-a100-80gb:3 --gpus 512 --tp 8 --zero 1 --seq 8192 --gbs 256
    slipstick mixed llama-3.1-70b --stages dgx-h100:2,dgx-a100-80gb:2 --gpus 32 --tp 8 --link 25Gbit/s
    """  # noqa: D301
    from ...app.training.mixed import MixedRequest, estimate_mixed

    return estimate_mixed(MixedRequest.of(arguments))
