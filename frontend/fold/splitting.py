"""One region as several in a row: each node goes to a place, and values that cross places pass through ports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...ir.errors import InternalError
from ...ir.graph import Node, Phase, Port, Region, Role, Value


class NotInOrderError(InternalError):
    """A part of a region reads what only a later part makes: they cannot run one behind the other."""


def split(region: Region, places: Sequence[int], names: Mapping[int, str], fresh: Iterator[int]) -> tuple[Region, ...]:
    """Return the parts of a region that runs once, in the order of their places.

    Args:
        region: what is split; its values keep their numbers.
        places: the place of each node.
        names: what the part at each place is called.
        fresh: numbers that no port of the graph has.

    Raises:
        NotInOrderError: a part would read what none before it, in the running direction, has made.
    """
    home = {o: place for n, place in zip(region.nodes, places, strict=True) for o in n.outputs}
    reads: dict[int, set[int]] = {}
    for node, place in zip(region.nodes, places, strict=True):
        reads.setdefault(place, set()).update(i for i in node.inputs if home.get(i, place) != place)
    work = _Split(region, places, home, {})
    for place, values in reads.items():
        for value in sorted(values):
            early = region.phase_of(value) is Phase.FORWARD
            if (home[value] > place) == early:
                raise NotInOrderError(f"{region.name}: %{value} is made behind its reader")
            if value not in work.ports:
                work.ports[value] = f"{'x' if early else 'd'}{next(fresh)}"
    work.check_carried()
    return tuple(work.part(place, names[place]) for place in sorted(set(places)))


@dataclass(frozen=True)
class _Split:
    """A region with the place of each node and result, and the ports of values that cross places."""

    region: Region
    places: Sequence[int]
    home: Mapping[int, int]
    ports: dict[int, str]

    def check_carried(self) -> None:
        """Refuse a port that comes in and goes out under one name where a part behind the maker reads the old value."""
        made = {p.name: p.value for p in self.region.outputs}
        for v in self.region.of_role(Role.PORT):
            if v.name not in made or made[v.name] not in self.home:
                continue
            maker, early = self.home[made[v.name]], self.region.phase_of(made[v.name]) is Phase.FORWARD
            readers = [p for n, p in zip(self.region.nodes, self.places, strict=True) if v.id in n.inputs]
            if any((p > maker) if early else (p < maker) for p in readers):
                raise NotInOrderError(f"{self.region.name}: '{v.name}' is read behind what takes its place")

    def part(self, place: int, name: str) -> Region:
        """Return one part: its nodes, what they read, and what others read of it."""
        nodes = [n for n, at in zip(self.region.nodes, self.places, strict=True) if at == place]
        made = {o for n in nodes for o in n.outputs}
        grads = tuple((p, g) for p, g in self.region.grads if g in made)
        read = {i for n in nodes for i in n.inputs} | {p for p, _ in grads}
        first = place == min(self.places)
        outputs = [p for p in self.region.outputs if p.value in made or (first and p.value not in self.home)]
        outputs += [Port(port, value) for value, port in self.ports.items() if value in made]
        held = made | read | {p.value for p in outputs}
        return Region(name, self._values(held, made), tuple(self._node(n, made) for n in nodes), tuple(outputs), grads)

    def _node(self, node: Node, made: set[int]) -> Node:
        return replace(node, forward=node.forward if node.forward in made else None)

    def _values(self, held: set[int], made: set[int]) -> tuple[Value, ...]:
        """The values of a part; a view of what another part holds lies where the port lies that it came through."""
        values = [v for v in self.region.values if v.id in held]
        home = {v.storage: v.id for v in reversed(values) if v.id not in made}
        found = (self._value(v, made) for v in values)
        return tuple(replace(v, storage=v.storage if v.storage in held else home.get(v.storage, v.id)) for v in found)

    def _value(self, v: Value, made: set[int]) -> Value:
        if v.id in made or v.id not in self.home:
            return v
        return replace(v, role=Role.PORT, name=self.ports[v.id], saved=False)
