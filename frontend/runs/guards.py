"""What a recording asked of its open sizes, each with the line of code that made it, and how `int(size)` stays open.

A graph with open sizes is that of the module wherever the conditions hold that were met while it was recorded. They are
kept by torch's shape environment; here they get their place, and the lengths at which they hold are counted.

Python's `int` must return a plain number, so torch would bind the size to its example. Of all that makes a size a
number this alone changes nothing: `torch.export` keeps it open, too, where it reads the code instead of running it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import field
from types import FrameType
from typing import cast

import numpy as np
import sympy  # type: ignore[import-untyped]
import torch
from numpy.typing import NDArray
from torch import nn
from torch._guards import SLoc
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod

from ...ir.graph import LengthBound
from ...ir.records import dataclass

# Lengths are looked at one by one up to here, first those near: what holds at all of them has no limit.
MOST = 1 << 20
_NEAR = 64
_NOT_THE_USERS = ("torch", "slipstick", "contextlib", "importlib", "functools")
_ROUNDS = (FloorDiv, Mod, PythonMod)
_FUNCTIONS = {
    "FloorDiv": np.floor_divide,
    "CleanDiv": np.floor_divide,
    "Mod": np.mod,
    "PythonMod": np.mod,
    "CeilDiv": lambda a, b: -np.floor_divide(-a, b),
    "Max": np.maximum,
    "Min": np.minimum,
    "CeilToInt": np.ceil,
    "FloorToInt": np.floor,
    "IntTrueDiv": np.true_divide,
}


class PlacedShapeEnv(ShapeEnv):
    """A shape environment whose conditions know the line of the user's code, as `file:line`."""

    def _get_sloc(self, framework_loc: str | None = None) -> SLoc:
        return SLoc(framework_loc or users_line(sys._getframe(1)), None)


def users_line(frame: FrameType | None) -> str:
    """Return `file:line` of the innermost frame of a user's code, empty where there is none."""
    while frame is not None and not is_users(frame):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def is_users(frame: FrameType) -> bool:
    """Whether a frame is neither torch's nor ours."""
    name = str(frame.f_globals.get("__name__", ""))
    return is_users_module(name) and not frame.f_code.co_filename.startswith("<")


def is_users_module(name: str) -> bool:
    """Whether a Python module is neither torch's nor ours nor one that only calls others."""
    return name.partition(".")[0] not in _NOT_THE_USERS


@dataclass(frozen=True, slots=True)
class SizeGuard:
    """What was taken for true of some sizes, which go by our names, and where."""

    expr: sympy.Basic
    place: str

    @property
    def sizes(self) -> tuple[str, ...]:
        """The names of the sizes it speaks of."""
        return tuple(sorted(map(str, self.expr.free_symbols)))

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it is true at these sizes."""
        return bool(self.expr.xreplace({s: sympy.Integer(sizes[str(s)]) for s in self.expr.free_symbols}))

    @property
    def is_number(self) -> bool:
        """Whether it is one size and the number that it was: `Eq(seq, 4096)`."""
        return isinstance(self.expr, sympy.Eq) and {type(a) for a in self.expr.args} >= {sympy.Symbol}

    def wanted(self) -> tuple[str, int] | None:
        """The one size that would have made a refused equality true: 256 of `64*seq != 16384`."""
        if not isinstance(self.expr, sympy.Ne) or len(self.expr.free_symbols) != 1:
            return None
        (symbol,) = self.expr.free_symbols
        left, right = cast("tuple[sympy.Expr, sympy.Expr]", self.expr.args)
        rest = left - right
        found = sympy.Poly(rest, symbol) if rest.is_polynomial(symbol) else None
        if found is None or found.degree() != 1:
            return None
        root = -found.nth(0) / found.nth(1)
        return (str(symbol), int(root)) if root.is_Integer and root > 0 else None

    def renamed(self, names: Mapping[str, str]) -> SizeGuard:
        """Return the condition with other names of its sizes."""
        ours = {s: sympy.Symbol(names[str(s)], integer=True, positive=True) for s in self.expr.free_symbols}
        return SizeGuard(self.expr.xreplace(ours), self.place)

    def at(self, name: str, values: NDArray[np.int64], others: Mapping[str, int]) -> NDArray[np.bool_]:
        """Whether it holds at each value of one size, the others as they were recorded."""
        symbol = next(s for s in self.expr.free_symbols if str(s) == name)
        fixed = {s: sympy.Integer(others[str(s)]) for s in self.expr.free_symbols if s != symbol}
        asked = sympy.lambdify(symbol, self.expr.xreplace(fixed), modules=[_FUNCTIONS, "numpy"])
        return np.broadcast_to(np.asarray(asked(values), dtype=np.bool_), values.shape)


def conditions(env: ShapeEnv, names: Mapping[sympy.Symbol, str]) -> tuple[SizeGuard, ...]:
    """Return the conditions that a recording met, in order and each once; torch has a symbol a tensor for one size."""
    ours = {s: sympy.Symbol(name, integer=True, positive=True) for s, name in names.items()}
    found: dict[sympy.Basic, SizeGuard] = {}
    for guard in env.guards:
        expr = guard.expr.xreplace(ours)
        if expr.free_symbols and expr.free_symbols <= set(ours.values()):
            found.setdefault(expr, SizeGuard(expr, _place(guard.sloc)))
    return tuple(found.values())


def rounding(met: Sequence[SizeGuard]) -> tuple[SizeGuard, ...]:
    """Return the conditions that may say of a size that a number divides it."""
    return tuple(c for c in met if not isinstance(c.expr, sympy.Ne) and c.expr.has(*_ROUNDS))


def _place(found: SLoc) -> str:
    """The line of the user's code: as our environment says it, or Dynamo's."""
    ours = found.framework_loc if isinstance(found.framework_loc, str) else ""
    return ours or (found.maybe_user_loc or "").partition(" in ")[0]


@dataclass
class GuardRanges:
    """Where the conditions of one recording hold: each is looked at once, whoever asks.

    `recorded` are the sizes of the recording, at which all hold.
    """

    recorded: Mapping[str, int]
    _misses: dict[tuple[sympy.Basic, str, int], NDArray[np.int64]] = field(default_factory=dict)

    def bounds(self, met: Sequence[SizeGuard]) -> tuple[LengthBound, ...]:
        """Return where each size must lie for conditions to hold; sizes without conditions are left out.

        Ends and steps near the recorded size are found without a look at all others.
        """
        names = sorted({n for c in met for n in c.sizes})
        return tuple(b for n in names if (b := self._bound(n, [c for c in met if n in c.sizes])) is not None)

    def _bound(self, name: str, met: Sequence[SizeGuard]) -> LengthBound | None:
        near = min(_NEAR * max(self.recorded[name], _NEAR), MOST)
        found = self._within(name, met, near)
        return found if found is not None and found.high > found.low else self._within(name, met, MOST)

    def _within(self, name: str, met: Sequence[SizeGuard], most: int) -> LengthBound | None:
        held = np.ones(most + 1, dtype=np.bool_)
        held[:2] = False  # torch takes an open size for two or more
        gaps: set[int] = set()
        place = ""
        for condition in met:
            missing = self._missing(condition, name, most)
            if isinstance(condition.expr, sympy.Ne) and len(missing) < 8:
                gaps |= set(map(int, missing))
            elif len(missing):
                place = condition.place or place
                held[missing] = False
        low, high, step = _run_around(held, self.recorded[name])
        while low in gaps:
            low += step
        inside = tuple(sorted(g for g in gaps if g >= low and (not high or g <= high)))
        if (low, high, step) == (2, 0, 1) and not inside:
            return None
        # A batch of one is recorded as one of several: torch asks whether a size is one for layouts alone.
        return LengthBound(name, 1 if (name, low, step) == ("batch", 2, 1) else low, high, step, inside, place)

    def _missing(self, condition: SizeGuard, name: str, most: int) -> NDArray[np.int64]:
        """The sizes, from two up to a limit, at which a condition does not hold.

        One that cannot be computed holds at the recorded size alone.
        """
        key = condition.expr, name, most
        if key not in self._misses:
            values = np.arange(most + 1, dtype=np.int64)
            try:
                with np.errstate(all="ignore"):
                    at = condition.at(name, values, self.recorded)
            except (NameError, TypeError, ValueError, KeyError, AttributeError):
                at = values == self.recorded[name]
            self._misses[key] = np.flatnonzero(~at[2:]) + 2
        return self._misses[key]


def _run_around(held: NDArray[np.bool_], recorded: int) -> tuple[int, int, int]:
    """The lowest, the highest (0: no limit) and the step of the sizes around one at which all holds.

    >>> holds = np.zeros(MOST + 1, dtype=np.bool_)
    >>> holds[16:2048:16] = True
    >>> _run_around(holds, 48)
    (16, 2032, 16)
    """
    above = np.flatnonzero(held[recorded + 1 :])
    step = int(above[0]) + 1 if len(above) else 1
    up, down = held[recorded::step], held[recorded::-step]
    num_up, num_down = (len(h) if h.all() else int(np.argmin(h)) for h in (up, down))
    low, high = recorded - (num_down - 1) * step, recorded + (num_up - 1) * step
    return low, 0 if num_up == len(up) else high, step


class _OfInt(type):
    """What `isinstance(x, int)` asks: whether x is a number, as it would be of the class that this stands in for."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, int)


class _Int(int, metaclass=_OfInt):
    """Stands in for `int`; made of an open size it is that size, of anything else a plain number."""

    def __new__(cls, *args: object) -> int:  # type: ignore[misc]
        if len(args) == 1 and isinstance(args[0], torch.SymInt):
            return args[0]  # type: ignore[return-value]
        return int(*args)  # type: ignore[call-overload,no-any-return]


@contextmanager
def open_ints(module: nn.Module) -> Iterator[None]:
    """Let the files that define a module's classes keep open sizes open where they ask for `int` of them."""
    names = {kind.__module__ for part in module.modules() for kind in type(part).__mro__}
    with ExitStack() as undo:
        for name in names:
            space = vars(sys.modules[name]) if name in sys.modules and is_users_module(name) else None
            if space is not None and "int" not in space:
                space["int"] = _Int
                undo.callback(space.pop, "int", None)
        yield
