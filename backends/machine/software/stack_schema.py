"""What a file of a software stack holds beside the stack itself: measured messages, and what a fit may move."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from ..files.kinds import BANDWIDTH, Inline, Least
from ..files.section import Section, fields_of
from ..files.shapes import AmountForm, Inside, Place, Several
from .stack import MeasuredAllReduce, NetworkState, StackConstants
from .stack_limits import MOVABLE, Movable, movable


class FitSection(Section):
    """Which numbers of a stack a fit may move, and by which data sets; where one did, how near it came."""

    known: ClassVar[Mapping[str, Movable]] = MOVABLE

    data_sets: Annotated[tuple[str, ...], Least()]
    free: Annotated[tuple[str, ...], Least()]
    table: str | None = None
    split: Literal["half", "all"] = "half"
    rule: str | None = None
    together: tuple[str, ...] = ()
    excluded: int | None = None
    tool: str | None = None
    fitted: dict[str, float] | None = None
    judged: dict[str, float] | None = None

    def faults(self, found: Mapping[str, object]) -> Iterator[str]:
        """Yield numbers that no fit may move, and those that are named twice."""
        for path in self.free:
            movable(path, self.known)
        twice = sorted({path for path in self.free if self.free.count(path) > 1})
        if twice:
            yield f"given twice: {', '.join(twice)}"


class StackFile(Section):
    """Stack constants, and what was fitted of them."""

    stack: Annotated[StackConstants, Inline()]
    fit: FitSection | None = None


def _measured(found: Mapping[str, object]) -> MeasuredAllReduce:
    """Bus bandwidth counts 2 (n - 1)/n of the bytes, as nccl-tests prints it."""
    size, ranks, time_s, rate = (found.get(key) for key in ("num_bytes", "ranks", "time_s", "bus_bandwidth"))
    assert isinstance(size, float)
    assert isinstance(ranks, int)
    moved = 2.0 * (ranks - 1) / ranks * size
    return MeasuredAllReduce(size, ranks, moved / rate if isinstance(rate, float) else float(str(time_s or 0.0)))


def _measured_faults(measured: MeasuredAllReduce, found: Mapping[str, object]) -> Iterator[str]:
    if ("time_s" in found) == ("bus_bandwidth" in found):
        yield "give either time or bus_bandwidth of a measured all-reduce"
    elif measured.ranks < 2:
        yield "a measured all-reduce has 2 ranks or more"


def _state(found: Mapping[str, object]) -> NetworkState:
    state = NetworkState(**found)  # type: ignore[arg-type]
    return replace(state, all_reduces=tuple(sorted(state.all_reduces, key=lambda m: (m.ranks, m.num_bytes))))


_ALL_REDUCE = Inside(
    lambda: {
        **fields_of(MeasuredAllReduce),
        "bus_bandwidth": Place(AmountForm(BANDWIDTH, bare=float), "bus_bandwidth"),
    },
    _measured,
    _measured_faults,
    title="MeasuredAllReduce",
    told="One measured all-reduce: how large on each rank, over how many, and its time or its bus bandwidth.",
)
_STATE = Inside(
    lambda: {**fields_of(NetworkState), "all_reduce": Place(Several(_ALL_REDUCE), "all_reduces", default=())},
    _state,
    title="NetworkState",
    told="What was measured of a network, in place of its model or on top of it.",
)
STACK = Inside(
    lambda: {**fields_of(StackFile), "network": Place(_STATE, "network")},
    StackFile.of,
    title="Stack",
    told=StackFile.__doc__ or "",
)
