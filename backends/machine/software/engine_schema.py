"""What a file of a serving engine holds beside the engine itself: numbers of its stack, and what a fit may move."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from ..files.kinds import Inline
from ..files.section import Section
from .engine import Engine
from .engine_limits import ENGINE_MOVABLE
from .stack import KernelSlowdown, Slowdown
from .stack_limits import Movable
from .stack_schema import FitSection


class StackNumbersSection(Section):
    """Numbers of the stack that were fitted for this engine."""

    kernel_slowdown: KernelSlowdown | None = None
    slowdown: Slowdown | None = None


class EngineFitSection(FitSection):
    """Which numbers of an engine a fit may move, and by which data sets; where one did, how near it came."""

    known: ClassVar[Mapping[str, Movable]] = ENGINE_MOVABLE


class EngineFile(Section):
    """A serving engine, and what was fitted of it."""

    engine: Annotated[Engine, Inline()]
    stack_numbers: StackNumbersSection | None = None
    fit: EngineFitSection | None = None
