"""What a prediction says of every node, as a report keeps it: sizes by which kernels are known, and seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...ir.errors import ParseError
from ...ir.placement import AxisGroup
from ...ir.records import dataclass

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
# Phases of a graph that run within the backward pass of every micro-batch.
_BEHIND = (BACKWARD, "recompute")
_ONCE = ("prepare", "reduce")


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """A matrix product C[m, n] = A[m, k] B[k, n], `batch` times."""

    batch: int
    m: int
    n: int
    k: int


@dataclass(frozen=True, slots=True)
class HeadSizes:
    """The sizes of a call of attention."""

    batch: int
    heads: int
    queries: int
    keys: int
    width: int


@dataclass(frozen=True, slots=True)
class Sent:
    """A message: how many ranks take part, along which axis of the plan, and its bytes."""

    axis: AxisGroup
    ranks: int
    num_bytes: float


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """One node of the compiled graph, for one run of its region on one device.

    `kind` is the class of its op, `products` and `heads` are the sizes of what it multiplies. `kernel_s` is what its
    kernel takes where the host takes longer to issue it, which is then `time_s`.
    """

    node: str
    op: str
    kind: str
    scope: str
    phase: str
    time_s: float
    products: tuple[MatrixProduct, ...] = ()
    heads: HeadSizes | None = None
    sent: Sent | None = None
    kernel_s: float | None = None

    @property
    def alone_s(self) -> float:
        """What its kernel takes by itself, however long the host is about it."""
        return self.time_s if self.kernel_s is None else self.kernel_s

    @property
    def region(self) -> str:
        """The region that it is of."""
        return self.node.partition("/")[0]

    @property
    def part(self) -> str:
        """Which part of a step runs it: forward, backward, what runs once a step, or the optimizer."""
        if self.phase in _BEHIND:
            return BACKWARD
        return "once" if self.phase in _ONCE else self.phase

    @property
    def label(self) -> str:
        """What people call it: its op and the end of its module path."""
        short = ".".join([p for p in self.scope.split(".") if p != "*"][-2:])
        return f"{self.op} {short}".strip()


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """Stages that are alike: the first of them, and its chunks as regions with numbers of layers, -1 for none."""

    first: int
    chunks: tuple[tuple[tuple[str, int], ...], ...]


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step as it was predicted: its nodes in the order of the graph, and how they fall on stages."""

    nodes: tuple[PlannedNode, ...]
    stages: tuple[PlannedStage, ...]
    num_stages: int
    micro_batches: int

    def stage(self, number: int) -> PlannedStage:
        """Return the stage of that number, as it is or as one that it is like."""
        return max((s for s in self.stages if s.first <= number), key=lambda s: s.first)

    def in_order(self, stage: int) -> Iterator[tuple[int, int, int]]:
        """Yield what a stage runs in a step in the order of a micro-batch: node, layer, micro-batch."""
        by_region: dict[tuple[str, str], list[int]] = {}
        for k, node in enumerate(self.nodes):
            by_region.setdefault((node.region, node.part), []).append(k)
        rows = [row for chunk in self.stage(stage).chunks for row in chunk]
        for batch in range(self.micro_batches):
            for region, layer in rows:
                yield from ((k, layer, batch) for k in by_region.get((region, FORWARD), ()))
            for region, layer in reversed(rows):
                yield from ((k, layer, batch) for k in by_region.get((region, BACKWARD), ()))
        for part in ("once", OPTIMIZER):
            for region, layer in rows:
                yield from ((k, layer, 0) for k in by_region.get((region, part), ()))


def planned_record(step: PlannedStep) -> dict[str, object]:
    """Return a step as a report keeps it; `planned_of` reads it back."""
    return {
        "micro_batches": step.micro_batches,
        "num_stages": step.num_stages,
        "stages": [
            {"first": s.first, "chunks": [[list(row) for row in chunk] for chunk in s.chunks]} for s in step.stages
        ],
        "rows": [_record(node) for node in step.nodes],
    }


def _record(node: PlannedNode) -> dict[str, object]:
    found: dict[str, object] = {
        "node": node.node,
        "op": node.op,
        "kind": node.kind,
        "scope": node.scope,
        "phase": node.phase,
        "time_s": node.time_s,
    }
    if node.products:
        found["products"] = [[p.batch, p.m, p.n, p.k] for p in node.products]
    if node.heads is not None:
        h = node.heads
        found["attention"] = [h.batch, h.heads, h.queries, h.keys, h.width]
    if node.kernel_s is not None:
        found["kernel_s"] = node.kernel_s
    if node.sent is not None:
        found["message"] = [node.sent.axis, node.sent.ranks, node.sent.num_bytes]
    return found


def planned_of(tree: object, path: str) -> PlannedStep:
    """Read a step from a report; ParseError for what this version does not write."""
    try:
        record = _mapping(tree)
        stages = tuple(
            PlannedStage(
                _whole(s["first"]),
                tuple(tuple((str(r[0]), _whole(r[1])) for r in _rows(c)) for c in _list(s["chunks"])),
            )
            for s in map(_mapping, _list(record["stages"]))
        )
        return PlannedStep(
            tuple(_node(_mapping(row)) for row in _list(record["rows"])),
            stages,
            _whole(record["num_stages"]),
            _whole(record["micro_batches"]),
        )
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ParseError(f"'{path}' has nodes that cannot be read: {error!r}; write it with this version") from None


def _node(row: Mapping[str, object]) -> PlannedNode:
    heads, sent = row.get("attention"), row.get("message")
    axis, ranks, num_bytes = _list(sent) if sent is not None else ("", 0, 0.0)
    return PlannedNode(
        str(row["node"]),
        str(row["op"]),
        str(row["kind"]),
        str(row["scope"]),
        str(row["phase"]),
        _number(row["time_s"]),
        tuple(MatrixProduct(*map(_whole, p)) for p in _rows(row.get("products", []))),
        None if heads is None else HeadSizes(*map(_whole, _list(heads))),
        None if sent is None else Sent(AxisGroup(str(axis)), _whole(ranks), _number(num_bytes)),
        None if row.get("kernel_s") is None else _number(row["kernel_s"]),
    )


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{type(value).__name__} for an object")
    return value


def _list(value: object) -> Sequence[object]:
    if not isinstance(value, list):
        raise TypeError(f"{type(value).__name__} for a list")
    return value


def _rows(value: object) -> list[Sequence[object]]:
    return [_list(row) for row in _list(value)]


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{type(value).__name__} for a number")
    return float(value)


def _whole(value: object) -> int:
    return round(_number(value))
