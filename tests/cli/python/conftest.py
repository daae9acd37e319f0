"""Each function of Python with the verb of the command line that it is."""

from __future__ import annotations

from collections.abc import Mapping

import click

from slipstick.app.arguments import verbs
from slipstick.cli import root
from slipstick.cli.output.answers import Answering

# A function: its words, and its verb where that has another name.
FUNCTIONS: Mapping[str, tuple[type, str]] = {
    "estimate": (verbs.EstimateWords, "estimate"),
    "serve": (verbs.ServeWords, "estimate"),
    "size": (verbs.SizeWords, "size"),
    "choose": (verbs.ChooseWords, "choose"),
    "cost": (verbs.CostWords, "cost"),
    "mixed": (verbs.MixedWords, "mixed"),
    "posttrain": (verbs.PosttrainWords, "posttrain"),
    "recompute": (verbs.RecomputeWords, "recompute"),
    "search": (verbs.SearchWords, "search"),
    "sweep": (verbs.SweepWords, "sweep"),
    "topologies": (verbs.TopologiesWords, "topologies"),
    "compile": (verbs.CompileWords, "compile"),
    "operators": (verbs.OperatorsWords, "trace"),
}


def command_of(verb: str) -> tuple[Answering, click.Context]:
    parent = click.Context(root, info_name="slipstick")
    command = root.get_command(parent, verb)
    assert isinstance(command, Answering)
    return command, parent
