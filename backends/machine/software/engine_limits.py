"""Numbers of an engine that a fit may move: its overheads, and some of the stack that it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from .engine import OF_STACK, Engine
from .stack_limits import MOVABLE, Movable, movable, movable_in

# Numbers of the stack that differ from engine to engine on the same kernels.
TUNED = tuple(path for path in MOVABLE if path.partition(".")[0] in ("kernel_slowdown", "slowdown"))


ENGINE_MOVABLE: Mapping[str, Movable] = MappingProxyType(
    {
        one.path: one
        for one in (
            *movable_in(Engine),
            *(replace(MOVABLE[path], path=f"{OF_STACK}{path}") for path in TUNED),
        )
    }
)


def engine_moved(engine: Engine, values: Mapping[str, float]) -> Engine:
    """Return an engine with numbers in the place of its own, by their paths in its file, in base units.

    UnknownNameError for a number that no fit may move.

    >>> moved = engine_moved(Engine(), {"overheads.step": 1e-3, "stack_numbers.slowdown.tp": 1.1})
    >>> moved.overheads.step_s, moved.tuned
    (0.001, (('slowdown.tp', 1.1),))
    """
    overheads = {}
    tuned = dict(engine.tuned)
    for path, value in values.items():
        number = movable(path, ENGINE_MOVABLE)
        if path.startswith(OF_STACK):
            tuned[path.removeprefix(OF_STACK)] = value
        else:
            overheads[number.field] = value
    return replace(engine, overheads=replace(engine.overheads, **overheads), tuned=tuple(tuned.items()))
