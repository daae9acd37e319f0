"""The flags that verbs share, by subject."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

import click

from .build import flags_of
from .names import of_catalogue
from .talk import talk_flags

MODEL = click.Argument(["model"], shell_complete=of_catalogue("models"))


@cache
def shared_flags() -> Mapping[str, tuple[click.Option, ...]]:
    """Return the flags that all verbs of plans share, by subject; words of plans load with them."""
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

    return MappingProxyType(
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
