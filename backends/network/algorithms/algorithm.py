"""What an algorithm of collectives is: its name, who has it, and its price for each collective that it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Literal, TypeAlias

from ....ir.records import dataclass
from ..topology.links import Price

Collective: TypeAlias = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send", "ring_gather", "ring_scatter"
]
# A level's `algorithm` that is no algorithm: the fastest of all.
BEST = "best"
_ONE_WAY: tuple[Collective, ...] = ("all_gather", "reduce_scatter")


class Holder(IntEnum):
    """Who has an algorithm; they are compared in this order."""

    LIBRARY = 0  # collective libraries, which run it behind switches
    PAPER = 1  # whoever writes it: a level takes it by its name, or where no switch joins all
    SWITCH = 2  # switches that reduce and copy


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One algorithm; `prices` has the collectives that it does.

    Those of one name and different collectives may be several, in several files.
    """

    name: str
    holder: Holder
    prices: Mapping[Collective, Price]


def passes(price: Callable[[int], Price]) -> Mapping[Collective, Price]:
    """An all-reduce in two passes, all-gather and reduce-scatter in one."""
    return {"all_reduce": price(2), **dict.fromkeys(_ONE_WAY, price(1))}
