"""`slipstick topologies`: networks that cost, draw or carry the same, and a step of a model on each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...app.arguments.training import TopologyArgs
from ...app.sources import VerbArguments
from ..flags.build import words
from ..flags.command import PlanCommand
from ..output.answers import AppCommand, format_flag, output_flag

if TYPE_CHECKING:
    from ...report.results.topologies import TopologyResult


class TopologyCommand(AppCommand, PlanCommand):
    """A verb that has the flags of a plan."""


@click.command("topologies", cls=TopologyCommand, params=[format_flag(), output_flag()])
@words(TopologyArgs)
def topologies_command(arguments: VerbArguments) -> TopologyResult:
    """Compare topologies of equal cost, power or bandwidth by a step of MODEL on each, under its best placement.

    All are built of the ports, switches, cables and optics of the outermost network of --system; the rates of their
    links are scaled until each network meets the budget. Only rails, and topologies behind node/, keep the levels
    inside of its nodes.

    \b
    slipstick topologies llama-3.1-70b --system dgx-h100 --gpus 4096 --tp 8 --pp 4 --zero 1 --seq 8192 --gbs 1024
    slipstick topologies mixtral-8x7b --system dgx-h100 --gpus 512 --topologies torus,fat_tree=2 --vary ep=1,2,4,8
    """  # noqa: D301
    from ...app.designs.topologies import TopologyRequest, compare_topologies

    return compare_topologies(TopologyRequest.of(arguments))
