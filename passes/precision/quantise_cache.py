"""Keys and values kept in low precision: written so, and read so by attention."""

from __future__ import annotations

from dataclasses import field, replace
from typing import ClassVar

from ...ir.errors import PlanError, UnknownNameError
from ...ir.graph import Graph, Node, Region, Value, Workload
from ...ir.ops import OpClass, Trait, has
from ...ir.plan.low_inference import KV_DTYPES
from ...ir.records import dataclass
from ...ir.types import DType
from ..base import Pass, PassResult, require_sharded, rewritten


@dataclass(frozen=True, slots=True)
class QuantiseCache(Pass):
    """Keep the KV cache in low precision; queries and the products of attention stay in the model's type.

    A decode step reads the cache as it is kept; what else reads it, as products that make keys from latents, reads it
    cast back. A prompt attends to its own keys and values as they were made, and only writes them so.

    | option | meaning        |
    |--------|----------------|
    | dtype  | fp8, int8, fp4 |
    """

    name: ClassVar[str] = "quantise_cache"
    dtype: str = "fp8"

    def requires(self, graph: Graph) -> None:
        """Training has no cache; a rank's heads are known once the graph is sharded."""
        if self.dtype not in KV_DTYPES:
            raise UnknownNameError.of("type of the KV cache", self.dtype, KV_DTYPES)
        if graph.workload is Workload.TRAIN:
            raise PlanError(f"kv-dtype={self.dtype}: of inference only; training keeps no KV cache: leave it out")
        require_sharded(self.name, graph, sharded=True)

    def apply(self, graph: Graph) -> PassResult:
        """Rewrite the regions that write a cache."""
        if not any(has(n, Trait.APPENDS) for r in graph.regions for n in r.nodes):
            raise PlanError(f"kv-dtype={self.dtype}: {graph.name} keeps no KV cache; use --kv-dtype same")
        return rewritten(graph, lambda r: _rewritten(r, KV_DTYPES[self.dtype]))


def _rewritten(region: Region, dtype: DType) -> Region:
    appends = [n for n in region.nodes if has(n, Trait.APPENDS)]
    if not appends:
        return region
    draft = _Draft(region, dtype)
    for node in appends:
        draft.append(node)
    return draft.made()


@dataclass
class _Draft:
    """A region in the making: types that change, nodes behind appends, and what nodes read now."""

    region: Region
    dtype: DType
    kinds: dict[int, DType] = field(default_factory=dict)
    storages: dict[int, int] = field(default_factory=dict)
    behind: dict[int, Node] = field(default_factory=dict)
    values: list[Value] = field(default_factory=list)
    now: dict[tuple[int, int], int] = field(default_factory=dict)

    def append(self, node: Node) -> None:
        """Let one append write in low precision, and its readers read what they can."""
        *past, new = node.inputs
        self.kinds |= dict.fromkeys((*past, node.key), self.dtype)
        if not past:
            self.storages[node.key] = node.key
            self.now |= {(user.key, node.key): new for user in self.region.users.get(node.key, ())}
            return
        others = [u for u in self.region.users.get(node.key, ()) if not self._attends(u)]
        for user in self.region.users.get(node.key, ()):
            self._below(user)
        if others:
            # Cast the cache back to the type of what was appended.
            old = self.region.by_id[node.key]
            ident = self.region.fresh_id + len(self.values)
            self.values.append(Value(ident, old.type, ident, placements=old.placements))
            self.behind[node.key] = Node("cast", (node.key,), (ident,), scope=node.scope, phase=node.phase)
            wide = ident
            self.now |= {(user.key, node.key): wide for user in others}

    def _attends(self, user: Node) -> bool:
        """Whether attention alone reads what a node hands on of the cache."""
        if has(user, Trait.ATTENDS):
            return True
        later = self.region.users.get(user.key, ())
        return _sees(user) and bool(later) and all(map(self._attends, later))

    def _below(self, user: Node) -> None:
        if _sees(user) and self._attends(user):
            self.kinds[user.key] = self.dtype
            for later in self.region.users[user.key]:
                self._below(later)

    def made(self) -> Region:
        nodes: list[Node] = []
        for node in self.region.nodes:
            nodes.append(replace(node, inputs=tuple(self.now.get((node.key, i), i) for i in node.inputs)))
            nodes += [self.behind[node.key]] if node.key in self.behind else []
        return replace(self.region, values=(*map(self._retyped, self.region.values), *self.values), nodes=tuple(nodes))

    def _retyped(self, value: Value) -> Value:
        if value.id not in self.kinds:
            return value
        kind = replace(value.type, dtype=self.kinds[value.id])
        return replace(value, type=kind, storage=self.storages.get(value.id, value.storage))


def _sees(node: Node) -> bool:
    return has(node, OpClass.FREE) and len(node.inputs) == 1
