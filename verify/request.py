"""Inputs of a verification: the model, its graph and plan, and the small sizes at which it is run."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from ..ir.errors import UsageError, check_once
from ..ir.records import dataclass

if TYPE_CHECKING:
    from ..frontend.runs.options import TraceOptions
    from ..ir.graph import Graph
    from ..ir.plan import Plan
    from ..passes.manager import PassPipeline

LENGTHS = ("batch", "seq", "kv")
_FLAG = "--verify-sizes"


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """A model by its name, its traced graph, and the plan and the passes by which that is lowered.

    `options` are what was said of the model, with which it is built again at small sizes.
    """

    model: str
    traced: Graph
    plan: Plan
    pipeline: PassPipeline
    options: TraceOptions


@dataclass(frozen=True, slots=True)
class SmallSizes:
    """Lengths of open dims by their names, and arguments with which a factory is called."""

    lengths: Mapping[str, int] = field(default_factory=dict)
    arguments: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, sizes: Mapping[str, object]) -> SmallSizes:
        """Tell lengths from arguments; UsageError for a length that is no size.

        >>> SmallSizes.of({"seq": 16, "dim": 64})
        SmallSizes(lengths={'seq': 16}, arguments={'dim': 64})
        """
        lengths: dict[str, int] = {}
        for name in LENGTHS:
            size = sizes.get(name, 1)
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise UsageError(f"{_FLAG} {name}={size}: a length is a whole number, 1 or more")
            lengths |= {name: size} if name in sizes else {}
        return cls(lengths, {name: value for name, value in sizes.items() if name not in LENGTHS})


def read_sizes(text: str) -> Mapping[str, object]:
    """Read `NAME=VALUE,..`: batch, seq and kv are lengths, any other name is an argument of the factory.

    >>> read_sizes("seq=16,dim=64,act=silu")
    {'seq': 16, 'dim': 64, 'act': 'silu'}
    """
    pairs = [pair.partition("=") for pair in text.replace(" ", "").split(",") if pair]
    check_once(_FLAG, [name for name, _, _ in pairs])
    if not pairs or any(not name.isidentifier() or not value for name, _, value in pairs):
        raise UsageError(f"{_FLAG} {text}: NAME=VALUE,.. as in {_FLAG} seq=16,batch=4,dim=64")
    found = {name: _value(value) for name, _, value in pairs}
    SmallSizes.of(found)
    return found


def _value(text: str) -> object:
    """Return a number, True, False or None as Python writes it, and any other word as it is."""
    try:
        return literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text
