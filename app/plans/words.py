"""The words of plan files: those that say what is estimated, of steps and of servers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from ..arguments.machine import MachineWordsArgs, MoneyArgs, OtherArgs, QuietArgs, RunArgs, SystemArgs
from ..arguments.options import Opt, options_of
from ..arguments.plan import LoweringArgs, PlanArgs, WorkloadArgs
from ..arguments.serving import ServerArgs

MODEL = Opt("A name of `slipstick list models`, or a path, as MODEL.", flags=("model",), word="model")
# What is said of a step and its machine, and of how it is lowered and watched.
STEP = (WorkloadArgs, PlanArgs, SystemArgs, MachineWordsArgs, RunArgs, MoneyArgs)
LOWERED = (LoweringArgs, OtherArgs, QuietArgs)
# Of how a step is lowered and watched, what is part of a plan.
_OF_PLANS = ("fuse", "allow_unpriced", "flops_convention")


@cache
def plan_words() -> Mapping[str, Opt]:
    """Return the words that a plan file may say, whatever verb reads it."""
    others = {word: opt for word, opt in options_of(*LOWERED).items() if word in _OF_PLANS}
    return {MODEL.word: MODEL, **options_of(*STEP), **others, **options_of(ServerArgs)}
