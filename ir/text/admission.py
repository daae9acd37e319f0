"""The one door for graphs that come in: they keep the rules of `verify` and those that passes count on, or go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields

from ..errors import InternalError, ParseError, SlipstickError, VerifyError
from ..graph import Graph, Node, Phase, Region, Role
from ..ops import work_of
from ..sizes.expr import Expr
from ..verify import repeated, verify
from .limits import limits, too_much

_EARLY = (Phase.PREPARE, Phase.FORWARD)
# What code stumbles with over a graph that makes no sense.
_UNLAWFUL = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)
# Of one dim; the largest of a model, of all tokens times all experts, has some 10 ** 9.
MOST_SIZE = 10**12


def admit(graph: Graph) -> None:
    """Raise ParseError for a graph that breaks a rule, that passes cannot lower, or whose work cannot be told."""
    try:
        verify(graph)
    except VerifyError as error:
        raise ParseError(str(error)) from error
    if found := list(admission_problems(graph)):
        raise ParseError("\n  ".join(["the graph cannot be lowered:", *found[:12]]))


@contextmanager
def refuse_incoming(origin: str, what: str = "graph") -> Iterator[None]:
    """Turn what a graph or an answer that comes in stumbles over into an error of its file: ours has not touched it."""
    try:
        yield
    except InternalError as error:
        raise ParseError(f"'{origin}': {error}") from error
    except SlipstickError:
        raise
    except _UNLAWFUL as error:
        words = " ".join(str(error).split())[:300]
        raise ParseError(f"'{origin}': no {what} can be made of it ({type(error).__name__}: {words})") from error


def admission_problems(graph: Graph) -> Iterator[str]:
    """Yield why a graph of a file, which keeps the rules of `verify`, cannot be lowered."""
    if not graph.schedule:
        yield "it has no schedule"
    if sum(run.count * len(run.regions) for run in graph.schedule) > limits().runs:
        yield str(too_much("the schedule", f"regions run more than {limits().runs:,} times"))
    yield from (
        f"the schedule runs '{run.regions[0]}' no time" for run in graph.schedule if not run.count + len(graph.axes)
    )
    yield from (f"the schedule runs no region '{name}'" for name in _left_out(graph))
    yield from (
        f"hint {axis} of '{path}' is given twice" for axis, path in repeated([(h.axis, h.path) for h in graph.hints])
    )
    for region in graph.regions:
        yield from (f"{region.name}: {problem}" for problem in _region(region, bool(graph.axes)))
    if not graph.axes:
        yield from _ports(graph)
        yield from _symbols(graph)


def _left_out(graph: Graph) -> list[str]:
    named = {name for run in graph.schedule for name in run.regions}
    return [region.name for region in graph.regions if region.name not in named]


def _region(region: Region, is_sharded: bool) -> Iterator[str]:
    for value in region.values:
        # What is computed from larger sizes would overflow.
        if wrong := [dim for dim in value.type.dims if isinstance(dim, int) and not 0 <= dim <= MOST_SIZE]:
            yield f"%{value.id} has a dim of {str(wrong[0])[:40]}; 0 to {MOST_SIZE:,} are allowed"
    place = {node.key: number for number, node in enumerate(region.nodes)}
    # Shards have the sizes that degrees leave them.
    for value in () if is_sharded else region.of_role(Role.PARAM, Role.BUFFER):
        if sizes := [str(dim) for dim in value.type.dims if not isinstance(dim, int)]:
            yield f"{value.role} '{value.name}' (%{value.id}) has a size that a plan says: {', '.join(sizes)}"
    for number, node in enumerate(region.nodes):
        yield from _node(region, node, number, place)
        try:
            work_of(region, node)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            yield f"the work of '{node.op}' (%{node.key}) cannot be told: {type(error).__name__}: {error}"
    yield from (f"parameter %{one} is given several gradients" for one in repeated([p for p, _ in region.grads]))
    shapes = {(value.name, value.type) for value in region.of_role(Role.PARAM)}
    yield from (f"parameter '{name}' has several types" for name in repeated([name for name, _ in shapes]))
    for param, grad in region.grads:
        if grad not in region.producer:
            yield f"gradient %{grad} of parameter %{param} is made by no node"


def _symbols(graph: Graph) -> Iterator[str]:
    """Yield sizes that no input has, which no plan gives a number; and inputs that have their samples twice."""
    known = {"batch", "seq", "kv"}
    for region in graph.regions:
        for value in region.of_role(Role.INPUT, Role.CACHE):
            dims = [dim for dim in value.type.dims if isinstance(dim, Expr)]
            known |= {name for dim in dims for name in dim.symbols}
            if sum("batch" in dim.symbols for dim in dims) > 1:
                yield f"{region.name}: input '{value.name}' (%{value.id}) has more than one dim of samples"
    for region in graph.regions:
        of_values = [dim for value in region.values for dim in value.type.dims]
        of_nodes = [getattr(node.attrs, field.name) for node in region.nodes for field in fields(node.attrs)]
        sizes = [size for size in (*of_values, *of_nodes) if isinstance(size, Expr)]
        if unknown := {name for size in sizes for name in size.symbols} - known:
            told = ", ".join(sorted(known))
            yield f"{region.name}: no input has the size {', '.join(sorted(unknown))}; known: {told}"


def _node(region: Region, node: Node, number: int, place: dict[int, int]) -> Iterator[str]:
    if node.forward is None:
        return
    made = region.producer[node.forward]
    if node.phase in _EARLY:
        yield f"'{node.op}' (%{node.key}) runs forward and belongs to forward node %{node.forward}"
    elif made.phase not in _EARLY or place[made.key] > number:
        yield f"'{node.op}' (%{node.key}) belongs to %{node.forward}, which is no forward node before it"


def _ports(graph: Graph) -> Iterator[str]:
    """Walk forward and back again: what a region reads, one that ran before it has made."""
    order = [graph.by_name[name] for name in graph.sequence_once()]
    made = set[str]()
    for forward, regions in ((True, order), (False, order[::-1])):
        for region in regions:
            read = {i for node in region.nodes if (node.phase in _EARLY) == forward for i in node.inputs}
            for port in region.of_role(Role.PORT):
                if port.id in read and port.name not in made:
                    yield f"{region.name}: no region that ran before it makes port '{port.name}' (%{port.id})"
            made |= {p.name for p in region.outputs if (region.phase_of(p.value) in _EARLY) == forward}
