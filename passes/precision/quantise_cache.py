"""Keys and values kept in low precision: written so, and read so by attention."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import ClassVar

from ...ir.editing.rewriter import RegionRewriter
from ...ir.errors import PlanError, UnknownNameError
from ...ir.graph import Graph, Node, Region, Value, Workload
from ...ir.ops import OpClass, Trait, has
from ...ir.plan.low_inference import KV_DTYPES
from ...ir.records import dataclass
from ..base import PassResult, RegionPass, require_sharded


@dataclass(frozen=True, slots=True)
class QuantiseCache(RegionPass[Node]):
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
        return RegionPass.apply(self, graph)

    def matches(self, region: Region) -> Iterable[Node]:
        """Yield what appends to a cache."""
        return (n for n in region.nodes if has(n, Trait.APPENDS))

    def rewrite(self, region: RegionRewriter, match: Node) -> None:
        """Let one append write in low precision, and its readers read what they can."""
        *past, new = match.inputs
        old, dtype = region.region, KV_DTYPES[self.dtype]
        users = old.users.get(match.key, ())
        region.retype(dtype, *past, match.key)
        wide = new
        if not past:
            region.values[match.key] = replace(region.values[match.key], storage=match.key)
            others = users
        else:
            for user in users:
                region.retype(dtype, *_below(old, user))
            others = tuple(u for u in users if not _attends(old, u))
            if others:
                # Cast the cache back to the type of what was appended.
                v = old.by_id[match.key]
                wide = region.add(Value(0, v.type, 0, placements=v.placements))
                region.insert_after(match, Node("cast", (v.id,), (wide,), scope=match.scope, phase=match.phase))
        for user in others:
            region.rewire(user, {match.key: wide})


def _attends(region: Region, user: Node) -> bool:
    """Whether attention alone reads what a node hands on of the cache."""
    if has(user, Trait.ATTENDS):
        return True
    later = region.users.get(user.key, ())
    return _sees(user) and bool(later) and all(_attends(region, n) for n in later)


def _below(region: Region, user: Node) -> Iterator[int]:
    """What attention sees of the cache behind a node."""
    if _sees(user) and _attends(region, user):
        yield user.key
        for later in region.users[user.key]:
            yield from _below(region, later)


def _sees(node: Node) -> bool:
    return has(node, OpClass.FREE) and len(node.inputs) == 1
