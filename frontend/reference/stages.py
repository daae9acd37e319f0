"""Pipeline stages on simulated ranks: a stage reads what it made, what its neighbour sends, and what all can make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from ...ir.graph import Node, Phase, Region, Role
from ...ir.stages import BOUNDARY
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

    @property
    def boundary(self) -> Region | None:
        """The region of what two stages exchange."""
        return self.layout.graph.by_name.get(BOUNDARY)

    def stage(self, place: int, count: int) -> int:
        """Return the stage of a round: layers in even parts; what is before or behind them with the first or last."""
        inner = max(1, count - 2)
        return min(self.num_stages - 1, max(0, min(place - 1, inner - 1)) * self.num_stages // inner)

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
        made_here = phase is Phase.FORWARD and self._made_anywhere(name)
        sent = None if made_here else self._sent(name, stage, phase)
        if sent is not None:
            self.held[name] = sent, stage
            return sent
        if made_here:
            return parts
        if phase is Phase.BACKWARD and self._is_shared(reader, name):
            return parts
        raise LayoutMismatchError(f"stage {stage} reads '{name}' of stage {home}, which is not sent ({phase})")

    def _sent(self, name: str, stage: int, phase: Phase) -> list[Local] | None:
        region = self.boundary
        if region is None:
            return None
        parts = self.held[name][0]
        start = self._message(region, name, stage, phase)
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

    def _message(self, region: Region, name: str, stage: int, phase: Phase) -> Node | None:
        """The message that brings a value: that of its name, else one that nothing else at this cut takes.

        Layers of two kinds in turns hand their state on under two names, of which one crosses a cut.
        """
        sends = [n for n in region.nodes if n.op == "send" and n.phase is phase]
        names = [region.by_id[n.inputs[0]].name for n in sends]
        free = [n for n in sends if self.taken.get((stage, phase, n.key), name) == name]
        found = next((n for n in free if region.by_id[n.inputs[0]].name == name), None)
        found = found if found is not None or name in names else next(iter(free), None)
        if found is not None:
            self.taken[stage, phase, found.key] = name
        return found

    def _is_shared(self, reader: Region, name: str) -> bool:
        """Whether a port brings a part of the gradient of a parameter whose sums stages exchange."""
        port = next(v for v in reader.of_role(Role.PORT) if v.name == name)
        todo, seen = [port.id], set[int]()
        while todo:
            i = todo.pop()
            seen.add(i)
            todo += [o for n in reader.users.get(i, ()) for o in n.outputs if o not in seen]
        made = {reader.by_id[p].name for p, g in reader.grads if g in seen}
        fixed = all(isinstance(d, int) or not d.symbols & {"mbs", "seq"} for d in port.type.dims)
        return fixed and bool(made & self._exchanged)

    @property
    def _exchanged(self) -> set[str]:
        """Parameters whose gradients stages exchange once a step."""
        if self.boundary is None:
            return set()
        return {self.boundary.by_id[i].name for n in self.boundary.nodes if n.phase is Phase.REDUCE for i in n.inputs}

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
