"""Chakra traces as files: `rank.N.et` for each rank, and the groups of ranks that their collectives name.

A file is a row of messages of protobuf, each behind its length. What ranks of one stage share is encoded once; the
names of groups and the ranks that messages come from are put in for each. Fields and their types are those of
`et_def.proto` of MLCommons' Chakra 0.0.4, as its feeder reads them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

from ....backends.pricing.program import group_factors
from ....driver.estimate import Estimate
from ....ir.errors import UsageError
from ....ir.placement import NO_AXES, PP, AxisGroup
from ....ir.records import dataclass
from ....ir.text.files import write_atomically
from ....ir.text.json_text import json_text
from ..timeline import timeline_of
from .stage import ALL_GATHER, COLLECTIVES, NodeType, StageTrace, TraceNode, axis_of

VERSION = "0.0.4"
GROUPS = "comm_groups.json"
# Bytes of a file on a disk that a user did not ask for by naming ranks.
MOST_BYTES = 8 * 2**30
_VARINT, _BYTES = 0, 2
_INT32, _INT64, _UINT64, _BOOL, _STRING = 7, 9, 13, 27, 29


def varint(number: int) -> bytes:
    """Encode a whole number from 0 as protobuf does: seven bits a byte, the lowest first.

    >>> varint(300).hex()
    'ac02'
    """
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _number(field: int, value: int) -> bytes:
    return varint(field << 3 | _VARINT) + varint(value)


def _text(field: int, value: bytes) -> bytes:
    return varint(field << 3 | _BYTES) + varint(len(value)) + value


def _numbers(field: int, values: Sequence[int]) -> bytes:
    return _text(field, b"".join(map(varint, values))) if values else b""


def attribute(name: str, kind: int, value: int | str) -> bytes:
    """Encode an attribute of a node; `kind` is the number of its field in `AttributeProto`."""
    said = _text(kind, value.encode()) if isinstance(value, str) else _number(kind, value)
    return _text(10, _text(1, name.encode()) + said)


@dataclass(frozen=True, slots=True)
class RankGroups:
    """Groups of ranks over mesh axes, as the order of the axes lays them on the ranks."""

    num_ranks: int
    degrees: Mapping[str, float]
    order: str
    axes: tuple[AxisGroup, ...]

    def factors(self, axis: AxisGroup) -> list[tuple[int, int]]:
        """Return (size, stride in ranks) of each stretch of a group, without those of one rank."""
        pairs = group_factors(axis, self.degrees, self.order)
        whole = [(round(float(size)), round(float(stride))) for size, stride in pairs]
        return [(size, stride) for size, stride in whole if size > 1]

    def size(self, axis: AxisGroup) -> int:
        """Return how many ranks a group has."""
        return math.prod(size for size, _ in self.factors(axis))

    def first(self, axis: AxisGroup, rank: int) -> int:
        """Return the first rank of the group that a rank is in."""
        return rank - sum(rank // stride % size * stride for size, stride in self.factors(axis))

    def name(self, axis: AxisGroup, rank: int) -> str:
        """Return the name of the group that a rank is in: a number, since ASTRA-sim reads one."""
        return str(1 + self.axes.index(axis) * self.num_ranks + self.first(axis, rank))

    def all(self) -> Mapping[str, Sequence[int]]:
        """Return the ranks of every group by its name."""
        found = {}
        for axis in self.axes:
            factors = self.factors(axis)
            for first in sorted({self.first(axis, rank) for rank in range(self.num_ranks)}):
                places = product(*(range(0, size * stride, stride) for size, stride in reversed(factors)))
                found[self.name(axis, first)] = [first + sum(place) for place in places]
        return found


@dataclass(frozen=True, slots=True)
class EncodedNode:
    """An encoded node; where `axis` or `peer` says so, an attribute of each rank's own is to be added."""

    data: bytes
    axis: AxisGroup = NO_AXES
    peer: int = -1
    receives: bool = False


def encoded(nodes: Sequence[TraceNode], groups: RankGroups) -> Iterator[EncodedNode]:
    """Encode the nodes of a stage.

    Times are whole microseconds there: each is rounded so that the sum up to it is right to half of one.
    """
    passed, said = 0.0, 0
    for number, node in enumerate(nodes):
        passed += node.time_s * 1e6
        micros = max(round(passed) - said, 0)
        said += micros
        head = _number(1, number) + _text(2, node.name.encode()) + _number(3, node.kind)
        head += _numbers(4, node.ctrl_deps) + _numbers(5, node.data_deps) + _number(7, micros)
        head += attribute("is_cpu_op", _BOOL, 0)
        size = round(node.num_bytes)
        if node.kind is NodeType.COLLECTIVE:
            # What a rank puts in: of a gather its own shard, else the whole vector.
            kind = COLLECTIVES[node.op]
            size = -(-size // groups.size(node.axis)) if kind == ALL_GATHER else size
            head += attribute("comm_type", _INT64, kind) + attribute("comm_size", _INT64, size)
        elif node.kind in (NodeType.SEND, NodeType.RECV):
            head += attribute("comm_size", _INT64, size) + attribute("comm_tag", _INT32, node.tag)
        else:
            head += attribute("num_ops", _INT64, round(node.flops)) + attribute("tensor_size", _UINT64, size)
        yield EncodedNode(head, node.axis, node.peer, node.kind is NodeType.RECV)


class RankFiles:
    """Writes the trace of each rank of a plan."""

    def __init__(self, answer: Estimate) -> None:
        """Lay the step on the clock."""
        plan = answer.plan
        self._timeline = timeline_of(answer)
        degrees = {name: float(degree) for name, degree in plan.mesh.items()}
        axes = sorted({axis_of(node) for r in answer.table.lowered.graph.regions for node in r.nodes} - {""})
        whole = RankGroups(plan.num_gpus, degrees, plan.family.order, tuple(axes))
        self.groups = RankGroups(whole.num_ranks, degrees, whole.order, tuple(a for a in axes if whole.size(a) > 1))
        ((self._stages, self._stride), *_) = [*whole.factors(PP.group), (1, 1)]

    def stage(self, rank: int) -> int:
        """Return the pipeline stage of a rank."""
        return rank // self._stride % self._stages

    def write(self, folder: Path, ranks: Sequence[int] | None = None) -> int:
        """Write the ranks asked for, or all, and the groups; return how many bytes.

        UsageError for a rank that there is not, and where all ranks would take more than 8 GiB.
        """
        wanted = range(self.groups.num_ranks) if ranks is None else ranks
        if beyond := [rank for rank in wanted if not 0 <= rank < self.groups.num_ranks]:
            raise UsageError(f"no rank {beyond[0]}: ranks are 0 to {self.groups.num_ranks - 1}")
        maker, written = StageTrace(self._timeline), 0
        for stage in sorted({self.stage(rank) for rank in wanted}):
            parts = list(encoded(maker.nodes(stage), self.groups))
            mine = [rank for rank in wanted if self.stage(rank) == stage]
            whole = sum(len(part.data) for part in parts) * len(wanted)
            if ranks is None and whole > MOST_BYTES:
                raise UsageError(
                    f"the traces of {len(wanted):,} ranks take some {whole / 2**30:,.0f} GiB; "
                    "name those that are needed with --ranks, as in --ranks 0:8"
                )
            for rank in mine:
                data = b"".join(self._messages(parts, stage, rank))
                write_atomically(folder / f"rank.{rank}.et", data)
                written += len(data)
        text = json_text(self.groups.all()) + "\n"
        write_atomically(folder / GROUPS, text.encode())
        return written + len(text)

    def _messages(self, parts: Sequence[EncodedNode], stage: int, rank: int) -> Iterator[bytes]:
        """Yield the messages of a rank's file."""
        named = {axis: attribute("pg_name", _STRING, self.groups.name(axis, rank)) for axis in self.groups.axes}
        first = _text(1, VERSION.encode())
        yield varint(len(first)) + first
        for part in parts:
            own = named.get(part.axis, b"")
            if part.peer >= 0:
                other = rank + (part.peer - stage) * self._stride
                source, goal = (other, rank) if part.receives else (rank, other)
                own = attribute("comm_src", _INT32, source) + attribute("comm_dst", _INT32, goal)
            yield varint(len(part.data) + len(own)) + part.data + own
