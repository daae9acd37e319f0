"""The rules that every graph keeps; runs between passes and names node, rule and module path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import TypeVar

from .errors import VerifyError
from .graph import Graph, Node, Phase, Region, Role
from .ops import OPS, complaints_of
from .ops.states import moved_states
from .text.printer import print_node

T = TypeVar("T", bound=Hashable)
_EARLY = (Phase.PREPARE, Phase.FORWARD)


def verify(graph: Graph, after: str = "", verified: Graph | None = None) -> None:
    """Raise VerifyError with every rule that the graph breaks; regions that a verified graph has, too, keep theirs.

    Rules: names are unique; values are made before they are read, once; ops exist and their calls type-check;
    forward nodes read nothing of the backward phase; a node runs in a kernel of its own or in that of one that does;
    ports have a source; the schedule names regions; gradients belong to parameters and, until the graph is sharded,
    have their shape; no collective inside a step moves a cache or a parameter, but where ZeRO gathers shards.
    """
    found = list(problems(graph, verified))
    if found:
        where = f" after pass '{after}'" if after else ""
        shown = "\n  ".join(found[:12])
        raise VerifyError(f"graph '{graph.name}'{where} breaks {len(found)} rule(s):\n  {shown}")


def problems(graph: Graph, verified: Graph | None = None) -> Iterator[str]:
    """Yield every broken rule; regions that are also in a verified graph are not looked at again."""
    known = set() if verified is None or verified.axes != graph.axes else set(map(id, verified.regions))
    names = [r.name for r in graph.regions]
    if len(set(names)) != len(names):
        yield f"region names are not unique: {names}"
    for run in graph.schedule:
        yield from (f"the schedule names '{n}', no such region" for n in run.regions if n not in names)
    for region in (r for r in graph.regions if id(r) not in known):
        yield from (f"{region.name}: {p}" for p in _region(region))
        yield from (f"{region.name}: {p}" for p in _grads(region, sharded=bool(graph.axes)))
        for node, state in moved_states(region):
            what = f"{state.role} '{state.name}', which stays where it is inside a step"
            yield f"{region.name}: '{node.op}' at {_place(node)} moves {what}"
    yield from _ports(graph)


def _region(region: Region) -> Iterator[str]:
    ids = [v.id for v in region.values]
    if len(set(ids)) != len(ids):
        yield "value ids are not unique"
        return
    known = {v.id for v in region.values if v.role is not Role.RESULT}
    for node in region.nodes:
        yield from _node(region, node, known)
        known.update(node.outputs)
    for v in region.values:
        if v.id not in known:
            yield f"value %{v.id} is made by no node"
        if v.storage not in region.by_id:
            yield f"value %{v.id} shares storage with %{v.storage}, no such value"
    yield from (f"output '{p.name}' is %{p.value}, no such value" for p in region.outputs if p.value not in known)
    ports = [p.name for p in region.outputs]
    yield from (f"output '{name}' is given {ports.count(name)} times" for name in repeated(ports))


def _node(region: Region, node: Node, known: set[int]) -> Iterator[str]:
    if node.op not in OPS:
        yield f"unknown op '{node.op}' at {_place(node)}"
        return
    unmade = [i for i in node.inputs if i not in known]
    again = [*(o for o in node.outputs if o in known), *repeated(node.outputs)]
    unlisted = [o for o in node.outputs if o not in region.by_id]
    if unmade or again or unlisted or not node.outputs:
        yield f"'{node.op}' at {_place(node)}: reads {unmade} before made, makes {again} again, {unlisted} unlisted"
        return
    for complaint in complaints_of(region, node):
        yield f"{complaint}  in  {print_node(region, node)}"
    if node.forward is not None and node.forward not in region.producer:
        yield f"'{node.op}' at {_place(node)} belongs to forward node %{node.forward}, no such node"
    home = None if node.kernel is None else region.producer.get(node.kernel)
    if node.kernel is not None and home is None:
        yield f"'{node.op}' at {_place(node)} runs in the kernel of %{node.kernel}, no such node"
    elif home is not None and home.kernel is not None:
        yield f"'{node.op}' at {_place(node)} runs in the kernel of %{node.kernel}, which runs in that of another"
    if node.phase is Phase.FORWARD and any(region.phase_of(i) not in _EARLY for i in node.inputs):
        yield f"forward node '{node.op}' at {_place(node)} reads a value that is made later"


def _place(node: Node) -> str:
    return node.scope or "the top"


def repeated(items: Sequence[T]) -> list[T]:
    """Return what occurs more than once.

    >>> repeated("abca")
    ['a']
    """
    return [item for item, times in Counter(items).items() if times > 1] if len(items) > 1 else []


def _grads(region: Region, sharded: bool) -> Iterator[str]:
    for param, grad in region.grads:
        p, g = region.by_id.get(param), region.by_id.get(grad)
        if p is None or g is None:
            yield f"gradient %{grad} of parameter %{param}: no such value"
        elif p.role is not Role.PARAM:
            yield f"%{param} has a gradient but is a {p.role}"
        elif p.type.dims != g.type.dims and not sharded:
            yield f"gradient %{grad} is {g.type}, its parameter '{p.name}' is {p.type}"


def _ports(graph: Graph) -> Iterator[str]:
    made = {p.name for r in graph.regions for p in r.outputs}
    for region in graph.regions:
        for v in region.of_role(Role.PORT):
            if v.name not in made:
                yield f"{region.name}: port '{v.name}' (%{v.id}) has no source"
