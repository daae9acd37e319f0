"""What a recorded node computes: a short program over its inputs, operator by operator, with every constant.

An op of the graph says what a node costs: `elementwise` has the names of its functions, not their scalars or the order
of their operands. Its meaning says the rest, for those who run the graph: the ATen (or `slipstick::`) operators that
were called, their arguments by the names of their schema, tensors as places among the node's inputs. Meaning is no
part of a graph's text or equality; a graph that was read from text has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from .records import dataclass
from .sizes.expr import Expr
from .types import DType


@dataclass(frozen=True, slots=True)
class In:
    """Input `index` of the node. `pairs` marks a complex tensor, which the graph keeps as pairs in a last dim."""

    index: int
    pairs: bool = False


@dataclass(frozen=True, slots=True)
class Out:
    """What an earlier step made: its result, or part number `part` of a result of several tensors."""

    step: int
    part: int = 0


# A value of an argument: a tensor, a number, a word, a size, an element type, nothing, or a list of these.
Argument: TypeAlias = "In | Out | bool | int | float | str | Expr | DType | tuple[Argument, ...] | None"


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One operator call: `aten.add.Tensor` or `slipstick.rope`, and its arguments by name, defaults left out."""

    operator: str
    arguments: tuple[tuple[str, Argument], ...] = ()

    def argument(self, name: str, default: Argument = None) -> Argument:
        """Return one argument; the default where the call did not give it."""
        return next((value for key, value in self.arguments if key == name), default)


@dataclass(frozen=True, slots=True)
class Meaning:
    """Steps in running order, and which results are the node's outputs. `pairs` marks complex outputs."""

    steps: tuple[OperatorCall, ...]
    outputs: tuple[In | Out, ...]
    pairs: bool = False


@dataclass(frozen=True, slots=True)
class ChainLink:
    """One node of a chain that becomes one: its program, the ids that it reads and the ids that it makes."""

    meaning: Meaning
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def chained(links: Sequence[ChainLink | None], inputs: Sequence[int], outputs: Sequence[int]) -> Meaning | None:
    """Join the programs of a chain of nodes to that of one node with these inputs and outputs.

    None where a node of the chain has no program, or reads what is neither given nor made in the chain.
    """
    place: dict[int, In | Out] = {value: In(k) for k, value in enumerate(inputs)}
    steps: list[OperatorCall] = []
    for link in links:
        if link is None or link.meaning.pairs or any(i not in place for i in link.inputs):
            return None
        if any(isinstance(place[link.inputs[k]], Out) for k in _complex(link.meaning)):
            return None
        start = len(steps)
        steps += [
            OperatorCall(s.operator, tuple((n, _moved(a, link, place, start)) for n, a in s.arguments))
            for s in link.meaning.steps
        ]
        made = [_moved(o, link, place, start) for o in link.meaning.outputs]
        place |= {o: m for o, m in zip(link.outputs, made, strict=False) if isinstance(m, In | Out)}
    if any(o not in place for o in outputs):
        return None
    return Meaning(tuple(steps), tuple(place[o] for o in outputs))


def _complex(meaning: Meaning) -> set[int]:
    """Inputs that a program reads as complex numbers."""
    values = (value for s in meaning.steps for _, value in s.arguments)
    given = (a for value in values for a in (value if isinstance(value, tuple) else (value,)))
    return {a.index for a in given if isinstance(a, In) and a.pairs}


def _moved(given: Argument, link: ChainLink, place: Mapping[int, In | Out], start: int) -> Argument:
    """An argument of a link in the joined program, whose steps come behind `start` others."""
    if isinstance(given, In):
        source = place[link.inputs[given.index]]
        return replace(source, pairs=given.pairs) if isinstance(source, In) else source
    if isinstance(given, Out):
        return Out(start + given.step, given.part)
    return tuple(_moved(g, link, place, start) for g in given) if isinstance(given, tuple) else given


def cast_to(dtype: DType) -> Meaning:
    """Return the program of a cast."""
    return Meaning((OperatorCall("aten._to_copy", (("self", In(0)), ("dtype", dtype))),), (Out(0),))


__all__ = ["Argument", "ChainLink", "In", "Meaning", "OperatorCall", "Out", "cast_to", "chained"]
