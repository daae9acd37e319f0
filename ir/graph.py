"""The workload graph: regions that repeat, each a DAG of nodes over values.

Regions run in the order of the schedule for the forward phase and in reverse for the backward phase. A region reads
what another one made through ports: an input port takes the value of the nearest earlier region (in the running
direction) that has an output port of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from enum import StrEnum
from functools import cached_property, lru_cache

from .errors import InternalError
from .meaning import Argument, Meaning
from .placement import AxisGroup, MeshAxis, Placement
from .records import dataclass
from .sizes.expr import Dim, Expr, as_expr, product, symbol, total
from .types import DType, TensorType


class Phase(StrEnum):
    """When a node runs: forward, backward and recompute once a micro-batch, the others once a step.

    `prepare` comes before the first forward phase, `reduce` and `optimizer` behind the last backward phase.
    """

    PREPARE = "prepare"
    FORWARD = "forward"
    BACKWARD = "backward"
    RECOMPUTE = "recompute"
    REDUCE = "reduce"
    OPTIMIZER = "optimizer"

    @property
    def is_forward_work(self) -> bool:
        """Whether its nodes do the work of the forward phase, for the first time or again."""
        return self in (Phase.FORWARD, Phase.RECOMPUTE)


class Workload(StrEnum):
    """What the whole graph computes."""

    TRAIN = "train"
    PREFILL = "prefill"
    DECODE = "decode"


class Role(StrEnum):
    """Where a value comes from."""

    RESULT = "result"
    PARAM = "param"
    BUFFER = "buffer"
    INPUT = "input"
    CACHE = "cache"
    PORT = "port"


@dataclass(frozen=True, slots=True)
class Attrs:
    """The options of an op; every op that has some declares a frozen subclass."""


NO_ATTRS = Attrs()
ONCE_A_STEP = frozenset({Phase.PREPARE, Phase.REDUCE, Phase.OPTIMIZER})


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor: its type, the storage it shares with its views, and its placements once sharded.

    `name` is the parameter's path, the input's name or the port's name. `saved` marks what the forward phase keeps
    for the backward phase.
    """

    id: int
    type: TensorType
    storage: int
    role: Role = Role.RESULT
    name: str = ""
    saved: bool = False
    placements: tuple[tuple[MeshAxis, Placement], ...] = ()

    def placement(self, axis: str) -> Placement | None:
        """Return the placement along one axis, None when the graph is not sharded over it."""
        for name, lies in self.placements:
            if name == axis:
                return lies
        return None


@dataclass(frozen=True, slots=True)
class Node:
    """One operator call. Its key is its first output; `forward` is the key of the forward node it belongs to.

    `kernel` is the key of the node in whose kernel it runs, where that is not its own: see `ir/kernels.py`. `meaning`
    is what was recorded of the call; nodes that compute alike are equal whatever it says.
    """

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attrs: Attrs = NO_ATTRS
    scope: str = ""
    phase: Phase = Phase.FORWARD
    forward: int | None = None
    kernel: int | None = None
    meaning: Meaning | None = field(default=None, compare=False, repr=False)

    @property
    def key(self) -> int:
        """The id of the first output; unique in the region."""
        return self.outputs[0]


@dataclass(frozen=True, slots=True)
class Port:
    """A value that a region hands to others, under a name."""

    name: str
    value: int


@dataclass(frozen=True)
class Region:
    """A DAG of nodes in running order, with the values they use, its output ports and its weight gradients.

    Values stand in one order whatever the order given: what comes from outside, then results as nodes make them.
    """

    name: str
    values: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Port, ...] = ()
    grads: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        # One order makes regions that say the same equal, and equal again after printing and parsing.
        place = {o: k for k, o in enumerate((o for n in self.nodes for o in n.outputs), 1)}
        order = sorted(self.values, key=lambda v: 0 if v.role is not Role.RESULT else place.get(v.id, len(place) + 1))
        object.__setattr__(self, "values", tuple(order))

    def __hash__(self) -> int:
        """Hash all of it, once: what is worked out of a region is kept under it."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.values, self.nodes, self.outputs, self.grads))

    @cached_property
    def by_id(self) -> Mapping[int, Value]:
        """Values by id."""
        return {v.id: v for v in self.values}

    @cached_property
    def fresh_id(self) -> int:
        """An id that no value has, nor any above it."""
        return max(self.by_id, default=-1) + 1

    @cached_property
    def producer(self) -> Mapping[int, Node]:
        """The node that makes each value."""
        return {o: n for n in self.nodes for o in n.outputs}

    def phase_of(self, value: int) -> Phase:
        """Return the phase in which a value is made; what no node makes is there from the forward phase on."""
        node = self.producer.get(value)
        return Phase.FORWARD if node is None else node.phase

    @cached_property
    def users(self) -> Mapping[int, tuple[Node, ...]]:
        """The nodes that read each value."""
        found: dict[int, list[Node]] = {}
        for node in self.nodes:
            for i in dict.fromkeys(node.inputs):
                found.setdefault(i, []).append(node)
        return {i: tuple(nodes) for i, nodes in found.items()}

    def types(self, ids: tuple[int, ...]) -> tuple[TensorType, ...]:
        """The types of several values."""
        return tuple(self.by_id[i].type for i in ids)

    def of_role(self, *roles: Role) -> tuple[Value, ...]:
        """Values of the given roles, in order."""
        return tuple(v for v in self.values if v.role in roles)

    @property
    def saved_bytes(self) -> Expr:
        """Bytes kept for the backward phase: each storage once, where it is made.

        Parameters, buffers, ports and views of them are not counted: they live anyway, or count in another region.
        A view that is smaller than its storage keeps the whole storage, as an allocator does.
        """
        kept = {v.storage for v in self.values if v.saved}
        owners = (self.by_id[s] for s in sorted(kept))
        return total(v.type.num_bytes for v in owners if v.role in (Role.RESULT, Role.INPUT))


@dataclass(frozen=True, slots=True)
class Run:
    """Regions that repeat together: `count` times the sequence of names.

    Zero times: no pass over the model runs them, a plan says how often a pipeline stage does. They are what crosses
    each border between layers, or the exchange of gradients of weights, and behind it the regions that read these.
    """

    regions: tuple[str, ...]
    count: int = 1


@dataclass(frozen=True, slots=True)
class Constraint:
    """A dim that a degree must divide: `dim % axis == 0`, with the place that needs it, or what it counts there.

    Several axes divide it together: experts are sharded over `tp+ep`. `copied` things may also be held
    by several ranks each: the degree divides the dim or is a multiple of it.
    """

    dim: Dim
    axis: AxisGroup
    where: str
    copied: bool = False

    @property
    def axes(self) -> tuple[MeshAxis, ...]:
        """The mesh axes, innermost first."""
        return self.axis.axes

    @property
    def binds(self) -> bool:
        """Whether it says anything: a dim that has the axes as factors is divided by them anyway."""
        return _binds(self.dim, self.axes)


# Lowerings of one model ask it of the same few dims again and again.
@lru_cache(maxsize=2048)
def _binds(dim: Dim, axes: tuple[MeshAxis, ...]) -> bool:
    degrees = product(map(symbol, axes))
    return not degrees.symbols.isdisjoint((as_expr(dim) / degrees).symbols)


@dataclass(frozen=True, slots=True)
class Hint:
    """What a model says of its own layers: over `axis` (tp or ep), the layer at `path` is split in this style.

    Paths have stars for layer numbers; styles are words of the model's library.
    """

    axis: MeshAxis
    path: str
    style: str


@dataclass(frozen=True, slots=True)
class LengthBound:
    """The lengths for which a recording holds: `name` from `low` to `high` (0: no limit) in steps, without `gaps`.

    `where` is the line of code that asks for it, `file:line`, or empty.
    """

    name: str
    low: int
    high: int
    step: int = 1
    gaps: tuple[int, ...] = ()
    where: str = ""

    def holds(self, size: int) -> bool:
        """Whether a size is one of them.

        >>> [LengthBound("seq", 16, 64, 16).holds(n) for n in (16, 40, 64, 80)]
        [True, False, True, False]
        """
        inside = size >= self.low and (not self.high or size <= self.high)
        return inside and (size - self.low) % self.step == 0 and size not in self.gaps

    @property
    def legal(self) -> str:
        """The sizes in words.

        >>> LengthBound("seq", 16, 64, 16).legal, LengthBound("seq", 33, 0).legal, LengthBound("seq", 512, 512).legal
        ('16 to 64 in steps of 16', '33 or more', '512')
        """
        if self.low == self.high:
            return str(self.low)
        ends = f"{self.low} to {self.high}" if self.high else f"{self.low} or more"
        steps = f" in steps of {self.step}" if self.step > 1 else ""
        return f"{ends}{steps}" + (f" but {', '.join(map(str, self.gaps))}" if self.gaps else "")


@dataclass(frozen=True)
class Graph:
    """A workload: regions in schedule order, symbolic over batch, sequence and (once sharded) mesh degrees.

    `max_positions` is the longest sequence the model was made for, 0 when it does not say; `hints` is the model's own
    plan for splitting its layers, if it has one. `spelled_out` says that norms, rotary embeddings and activations are
    the operators that the model's own code runs, not one kernel each. `bounds` are the lengths that it holds for, where
    the code asks for some. `constants` are the numbers of tensors that the
    model's code makes and keeps under no name, by the names that they have here; `origin` is the file of a user that it
    was read from. Neither is part of the text.
    """

    name: str
    workload: Workload
    dtype: DType
    regions: tuple[Region, ...]
    schedule: tuple[Run, ...]
    constraints: tuple[Constraint, ...] = ()
    axes: tuple[MeshAxis, ...] = ()
    notes: tuple[str, ...] = field(default=())
    max_positions: int = 0
    hints: tuple[Hint, ...] = ()
    spelled_out: bool = False
    bounds: tuple[LengthBound, ...] = ()
    constants: tuple[tuple[str, Argument], ...] = field(default=(), compare=False, repr=False)
    origin: str = field(default="", compare=False, repr=False)

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """How often each region runs in one pass over the model."""
        counts = {r.name: 0 for r in self.regions}
        for run in self.schedule:
            for name in run.regions:
                counts[name] += run.count
        return counts

    @cached_property
    def by_name(self) -> Mapping[str, Region]:
        """Regions by name."""
        return {r.name: r for r in self.regions}

    def region(self, name: str) -> Region:
        """Return one region; InternalError when there is none."""
        if name not in self.by_name:
            raise InternalError(f"no region '{name}' in graph '{self.name}'")
        return self.by_name[name]

    def sequence(self) -> Iterator[str]:
        """Region names in forward order, unrolled (only for small things: tests and exports)."""
        for run in self.schedule:
            for _ in range(run.count):
                yield from run.regions

    def sequence_once(self) -> tuple[str, ...]:
        """Distinct region names in the order in which forward first meets them."""
        return tuple(dict.fromkeys(name for run in self.schedule if run.count for name in run.regions))

    def with_regions(self, regions: tuple[Region, ...]) -> Graph:
        """Return the graph with other regions of the same names."""
        return replace(self, regions=regions)

    @property
    def num_parameters(self) -> Expr:
        """Parameters of the whole model; a tied one counts once, and so does one without a star that layers share."""
        return total(kind.numel * count for _, kind, count in self.distinct_parameters())

    @property
    def parameter_bytes(self) -> Expr:
        """Bytes of the parameters of the whole model, each in its own type."""
        return total(kind.num_bytes * count for _, kind, count in self.distinct_parameters())

    def distinct_parameters(self) -> Iterable[tuple[str, TensorType, int]]:
        """Return each parameter's name and type, and how many of them there are."""
        seen: dict[tuple[str, str], tuple[str, TensorType, int]] = {}
        for region in self.regions:
            for v in region.of_role(Role.PARAM):
                each_layer = "*" in v.name
                key = (region.name if each_layer else "", v.name)
                seen.setdefault(key, (v.name, v.type, self.counts[region.name] if each_layer else 1))
        return seen.values()

    @property
    def saved_bytes(self) -> Expr:
        """Bytes that one micro-batch keeps for the backward phase, over all regions."""
        return total(r.saved_bytes * self.counts[r.name] for r in self.regions)
