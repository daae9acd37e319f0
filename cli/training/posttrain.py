"""`slipstick posttrain`: a step of post-training, with rollouts, passes, training and the change between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...app.arguments.training import PlacementArgs, SampleArgs
from ...app.sources import VerbArguments
from ..flags.build import flags_of
from ..flags.command import PlanCommand
from ..output.answers import AppCommand, format_flag, output_flag

if TYPE_CHECKING:
    from ...report.results.posttrain import PostTrainResult


class PostTrainCommand(AppCommand, PlanCommand):
    """A verb with flags of samples and of places."""

    more = (("Samples", flags_of(SampleArgs)), ("Placement", flags_of(PlacementArgs)))


@click.command("posttrain", cls=PostTrainCommand, params=[format_flag(), output_flag()])
def posttrain_command(arguments: VerbArguments) -> PostTrainResult:
    """Estimate a step of post-training of MODEL, and with --steps a run: PPO, GRPO, DPO, distillation, fine-tuning.

    Plan flags set the trainer; its --mbs counts packs of --max-tokens. Rollouts are simulated request by request,
    with stragglers; models that only look at samples run forward under the trainer's plan.

    \b
    slipstick posttrain qwen3-32b --system dgx-h100 --gpus 32 --tp 4 --pp 4 --zero 1 --prompts 64 --group 32 \\
        --isl 150 --osl lognormal:3056,0.5 --max-tokens 4096 --update-batch 512 \\
        --engine-tp 4
    """  # noqa: D301
    from ...app.training.posttrain import PostTrainRequest, estimate_posttrain

    return estimate_posttrain(PostTrainRequest.of(arguments))
