"""The words of plan files: those that say what is estimated, of steps and of servers."""

# fmt: off
from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from ..arguments.machine import (
    MachineArgs,
    MoneyArgs,
    OtherArgs,
    OverrideArgs,
    QuietArgs,
    RunArgs,
    SystemArgs,
    YearArgs,
)
from ..arguments.options import Opt, options_of
from ..arguments.plan import BatchArgs, DescribingArgs, DimArgs, ImageArgs, LoweringArgs, PhaseArgs, PlanArgs
from ..arguments.serving import (
    CachedArgs,
    DisaggArgs,
    DraftArgs,
    EngineArgs,
    LimitArgs,
    LoadArgs,
    RequestArgs,
    TargetArgs,
    WorkerArgs,
)

MODEL = Opt("A name of `slipstick list models`, or a path, as MODEL.", flags=("model",), word="model")
# What is said of a step and its machine, of how it is lowered and watched, and of a server.
STEP = (
    PhaseArgs, ImageArgs, DimArgs, DescribingArgs, BatchArgs, PlanArgs, SystemArgs, MachineArgs, YearArgs, OverrideArgs,
    RunArgs, MoneyArgs,
)
LOWERED = (LoweringArgs, OtherArgs, QuietArgs)
SERVER = (EngineArgs, RequestArgs, CachedArgs, LoadArgs, LimitArgs, TargetArgs, DisaggArgs, WorkerArgs, DraftArgs)
# Of how a step is lowered and watched, what is part of a plan.
_OF_PLANS = ("fuse", "allow_unpriced", "flops_convention")


@cache
def plan_words() -> Mapping[str, Opt]:
    """Return the words that a plan file may say, whatever verb reads it."""
    others = {word: opt for word, opt in options_of(*LOWERED).items() if word in _OF_PLANS}
    return {MODEL.word: MODEL, **options_of(*STEP), **others, **options_of(*SERVER)}
