"""Pipeline stages on simulated ranks: a stage reads what it made, what its neighbour sends, and what all can make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from torch import Tensor

from ...ir.graph import Node, Phase, Region, Role, Value
from ...ir.layers import layer_row
from ...ir.ops import Trait, has
from ...ir.plan.layout.stages import SHARED, chunk_borders
from .collectives import Exchange, cut
from .layout import Layout
from .tensors import LayoutMismatchError, Local


@dataclass
class Ports:
    """What regions hand to one another: by name the parts of all ranks, and the stage where they are.

    Without `num_stages` there is one stage, and everything is there.
    """

    layout: Layout
    num_stages: int = 1
    held: dict[str, tuple[list[Local], int]] = field(default_factory=dict)
    taken: dict[tuple[int, Phase, int], str] = field(default_factory=dict)

    @cached_property
    def borders(self) -> tuple[str, ...]:
        """The regions of what each stage but the last and the one behind it exchange."""
        units = layer_row(self.layout.graph).units
        stages = [self._stage(k, len(units)) for k in range(len(units))]
        return chunk_borders(self.layout.graph, [stages.count(k) for k in range(self.num_stages)])[1:]

    def stage(self, place: int) -> int:
        """Return the stage of a round: layers in even parts; what is before or behind them with the first or last."""
        row = layer_row(self.layout.graph)
        ends = list(accumulate(map(len, row.units), initial=len(row.head)))
        unit = sum(end <= place for end in ends) - 1
        return self._stage(max(0, min(unit, len(row.units) - 1)), len(row.units))

    def _stage(self, unit: int, count: int) -> int:
        return unit * self.num_stages // max(1, count)

    def put(self, name: str, parts: list[Local], stage: int) -> None:
        """Hand on a value."""
        self.held[name] = parts, stage

    def get(self, reader: Region, name: str, stage: int, phase: Phase) -> list[Local] | None:
        """Return a value where a stage needs it; LayoutMismatchError where nobody sends it there.

        Parts of the gradient of a parameter that two stages hold meet where both exchange their sums, once a step.
        """
        if name not in self.held:
            return None
        parts, home = self.held[name]
        if home == stage:
            return parts
        if phase is Phase.FORWARD and self._made_anywhere(name):
            return parts
        port = next(v for v in reader.of_role(Role.PORT) if v.name == name)
        if phase is Phase.BACKWARD and self._is_shared(reader, port):
            return parts
        sent = self._passed_on(port, home, stage, phase)
        if sent is not None:
            self.held[name] = sent, stage
            return sent
        raise LayoutMismatchError(f"stage {stage} reads '{name}' of stage {home}, which is not sent ({phase})")

    def _passed_on(self, port: Value, home: int, stage: int, phase: Phase) -> list[Local] | None:
        """Bring a value through every border on the way; None where one of them has no message for it."""
        found: list[Local] | None = self.held[port.name][0]
        crossed = range(home, stage) if home < stage else range(stage, home)[::-1]
        for border in crossed if self.borders else ():
            if found is not None:
                found = self._sent(self.layout.graph.region(self.borders[border]), port, found, border, phase)
        return found if self.borders else None

    def _sent(self, region: Region, port: Value, parts: list[Local], border: int, phase: Phase) -> list[Local] | None:
        start = self._message(region, port, border, phase)
        if start is None:
            return None
        value = region.by_id[start.inputs[0]]
        exchange = Exchange(self.layout, region, start, _no_experts)
        for dim in range(value.type.rank):
            whole = parts[0].axes[dim].length != self.layout.share(value, dim)
            over = self.layout.cutting(value, dim) if whole else []
            if over:
                parts = [cut(exchange, part, rank, value, dim, over) for rank, part in enumerate(parts)]
        now = {start.inputs[0]: list(parts)}
        for node in region.nodes:
            if all(i in now for i in node.inputs):
                made = Exchange(self.layout, region, node, _no_experts).run([now[i] for i in node.inputs])
                now.update(zip(node.outputs, made, strict=True))
        return now[max(now)]

    def _message(self, region: Region, port: Value, border: int, phase: Phase) -> Node | None:
        """The message that brings a value: that of its name, else one of its sizes that nothing else at this cut takes.

        Borders that are alike have one region with the names of the first of them.
        """
        name, outer = port.name, port.type.dims[:-1]
        sends = [n for n in region.nodes if has(n, Trait.SENDS) and n.phase is phase]
        sends = [n for n in sends if region.by_id[n.inputs[0]].type.dims[:-1] == outer]
        names = [region.by_id[n.inputs[0]].name for n in sends]
        free = [n for n in sends if self.taken.get((border, phase, n.key), name) == name]
        found = next((n for n in free if region.by_id[n.inputs[0]].name == name), None)
        found = found if found is not None or name in names else next(iter(free), None)
        if found is not None:
            self.taken[border, phase, found.key] = name
        return found

    def _is_shared(self, reader: Region, port: Value) -> bool:
        """Whether a port brings a part of the gradient of a parameter whose sums stages exchange."""
        if any(not isinstance(d, int) and d.symbols & {"mbs", "seq"} for d in port.type.dims):
            return False
        todo, seen = [(reader, port.id)], set[tuple[str, int]]()
        while todo:
            region, i = todo.pop()
            if (region.name, i) not in seen:
                seen.add((region.name, i))
                todo += [(region, o) for n in region.users.get(i, ()) for o in n.outputs]
                names = {p.name for p in region.outputs if p.value == i}
                todo += [(r, v.id) for r in self.layout.graph.regions for v in r.of_role(Role.PORT) if v.name in names]
        made = {r.by_id[p].name for r in self.layout.graph.regions for p, g in r.grads if (r.name, g) in seen}
        return bool(made & self._exchanged)

    @property
    def _exchanged(self) -> set[str]:
        """Parameters whose gradients stages exchange once a step."""
        shared = (r for r in self.layout.graph.regions if r.name.startswith(SHARED))
        return {v.name for r in shared for v in r.of_role(Role.INPUT)}

    def _made_anywhere(self, name: str) -> bool:
        """Whether every stage can make a value by itself: the first region makes it of no parameter."""
        first = self.layout.graph.region(self.layout.graph.sequence_once()[0])
        port = next((p for p in first.outputs if p.name == name), None)
        return port is not None and not _parameters(first, port.value)

    def check_shared(self, stages: Mapping[str, set[int]]) -> None:
        """Raise LayoutMismatchError when stages that hold one parameter never see one another's gradients of it."""
        for name, found in stages.items():
            if len(found) > 1 and name not in self._exchanged:
                raise LayoutMismatchError(f"stages {sorted(found)} hold '{name}' and do not exchange its gradients")


def _no_experts(rank: int) -> Tensor:
    raise NotImplementedError(f"stages exchange no rows of experts (rank {rank})")


def _parameters(region: Region, value: int) -> bool:
    """Whether a value depends on a parameter."""
    todo, seen = [value], set[int]()
    while todo:
        i = todo.pop()
        if i in seen:
            continue
        seen.add(i)
        if region.by_id[i].role is Role.PARAM:
            return True
        node: Node | None = region.producer.get(i)
        todo += list(node.inputs) if node is not None else []
    return False


__all__ = ["Ports"]
