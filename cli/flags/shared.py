"""The flags that verbs share, by subject."""

from __future__ import annotations

from collections.abc import Mapping
from keyword import iskeyword
from types import MappingProxyType

import click

from ...app.arguments.machine import (
    MachineArgs,
    MoneyArgs,
    OtherArgs,
    OverrideArgs,
    QuietArgs,
    RunArgs,
    SystemArgs,
    YearArgs,
)
from ...app.arguments.plan import BatchArgs, DescribingArgs, DimArgs, ImageArgs, LoweringArgs, PhaseArgs, PlanArgs
from .build import flags_of
from .names import of_catalogue
from .talk import talk_flags

MODEL = click.Argument(["model"], shell_complete=of_catalogue("models"))

SECTIONS: Mapping[str, tuple[click.Option, ...]] = MappingProxyType(
    {
        "Workload": flags_of(PhaseArgs, ImageArgs, DimArgs, DescribingArgs, BatchArgs),
        "Plan": flags_of(PlanArgs),
        "Machine": flags_of(SystemArgs, MachineArgs, YearArgs, OverrideArgs),
        "Training run": flags_of(RunArgs),
        "Money": flags_of(MoneyArgs),
        "Compiler": flags_of(LoweringArgs),
        "Other": (*flags_of(OtherArgs, QuietArgs), talk_flags()[1]),
    }
)


def flag_name(param: click.Parameter) -> str:
    """Return the key of a parameter: the first long name of its flag that Python takes as a name, as in `dp_shard`."""
    long = [name for name in param.opts if name.startswith("--") and not iskeyword(name.lstrip("-"))]
    return (long or param.opts)[0].lstrip("-").replace("-", "_")
