"""States and kept activations moved to host memory, with the copies down and up that this takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import ClassVar

from ..ir.editing.rewriter import RegionRewriter
from ..ir.errors import PlanError
from ..ir.graph import Graph, Node, Phase, Port, Region, Role, Value, Workload
from ..ir.layers import layer_names
from ..ir.ops import OpClass, Trait, has
from ..ir.ops.host import DOWN, UP, UPDATE
from ..ir.plan import check_offload
from ..ir.records import dataclass
from ..ir.saved import mark_saved
from ..ir.types import TensorType
from .base import Pass, PassResult, require_sharded
from .gathers import gathers_parameter
from .recompute.modules import check_names, named_results
from .recompute.rerun import needed

# The name of a port that hands on what lies in host memory.
HOST = ".host"
_LATER = (Phase.RECOMPUTE, Phase.BACKWARD)


@dataclass(frozen=True, slots=True)
class Offload(Pass):
    """Keep in host memory what is named.

    | option | meaning                                                                                              |
    |--------|------------------------------------------------------------------------------------------------------|
    | what   | optimizer: its states, and the update; activations: what layers keep; params: weights, where ZeRO 3  |
    | modules| of activations, results by name; default all that layers keep                                        |

    optimizer: gradients go down in the type of their parameter, the host updates, weights come up (ZeRO-Offload,
    arXiv 2101.06840). activations: what a layer keeps goes down together when its forward phase ends and comes up
    together before its backward phase. params: they come up before each of a region's two phases (ZeRO-Infinity,
    arXiv 2104.07857). With `modules`, of activations only these results go, named as in `recompute`.
    """

    name: ClassVar[str] = "offload"
    workloads: ClassVar[tuple[Workload, ...]] = (Workload.TRAIN,)
    what: tuple[str, ...] = ("optimizer",)
    modules: tuple[str, ...] = ()

    def requires(self, graph: Graph) -> None:
        """What a rank holds comes from `shard`."""
        check_offload(self.what)
        if graph.workload is Workload.TRAIN:
            require_sharded(self.name, graph, sharded=True)

    def unchanged(self, graph: Graph) -> None:
        """Refuse to offload what a graph has nothing of."""
        if graph.workload is Workload.TRAIN:
            raise PlanError(f"offload of {', '.join(self.what)} changes nothing in {graph.name}: leave it out")

    def apply(self, graph: Graph) -> PassResult:
        """Add the copies."""
        made = _activations(graph, self.modules) if "activations" in self.what else graph
        if "optimizer" in self.what:
            made = made.with_regions(tuple(_update_on_host(r, "params" in self.what) for r in made.regions))
        if "params" in self.what:
            made = made.with_regions(tuple(_params(r) for r in made.regions))
        return PassResult(graph, changed=False) if made == graph else PassResult(mark_saved(made), changed=True)


class _Draft(RegionRewriter):
    """A region of which some tensors lie in host memory."""

    def like(self, old: int, kind: TensorType | None = None) -> int:
        """Add a value like another one."""
        v = self.region.by_id[old]
        return self.add(Value(0, kind or v.type, 0, placements=v.placements))

    def port(self, old: int) -> int:
        """Add the port through which the host's copy of what another port hands on comes."""
        v = self.region.by_id[old]
        return self.add(replace(v, name=v.name + HOST, saved=False))


def _activations(graph: Graph, modules: Sequence[str]) -> Graph:
    """Move what layers keep: what they make and what enters them from the layer before, or some of it by name."""
    own = layer_names(graph)
    layers = [r for r in graph.regions if r.name in own]
    ports = {p.name for r in layers for p in r.outputs if _kept_by_itself(r, p.value, saved=False)}
    broken = {p.name for r in graph.regions for p in r.outputs if not _kept_by_itself(r, p.value, saved=False)}
    moved = ports - broken
    if not modules:
        return graph.with_regions(tuple(_moved(r, moved, _own(r) if r.name in own else set()) for r in graph.regions))
    check_names(layers, modules)
    named = {r.name: named_results(r, modules) for r in layers}
    chosen = {
        r.name: {r.by_id[o].storage for n in r.nodes if n.key in named[r.name] for o in n.outputs} for r in layers
    }
    moved &= {p.name for r in layers for p in r.outputs if r.by_id[p.value].storage in chosen[r.name]}
    return graph.with_regions(tuple(_moved(r, moved, _own(r) & chosen.get(r.name, set())) for r in graph.regions))


def _own(region: Region) -> set[int]:
    """Storages that a region keeps."""
    return {v.storage for v in region.values if v.saved}


def _kept_by_itself(region: Region, value: int, saved: bool = True) -> bool:
    """Whether a value is a forward result with a storage of its own, kept for later if asked."""
    node, v = region.producer.get(value), region.by_id[value]
    return node is not None and node.phase is Phase.FORWARD and v.storage == v.id and (v.saved or not saved)


def _content(region: Region, storage: int) -> int:
    """The value that a storage holds when the forward phase ends: what was written into it last."""
    written = (n for n in region.nodes if n.phase is Phase.FORWARD and not has(n, OpClass.FREE))
    values = [o for n in written for o in n.outputs if region.by_id[o].storage == storage]
    return values[-1] if values else storage


def _moved(region: Region, ports: Set[str], owners: Set[int]) -> Region:
    """One region: a copy down behind its forward phase, a copy up in front of its backward phase."""
    leaving = {p.value: p.name for p in region.outputs if p.name in ports and _kept_by_itself(region, p.value)}
    # Parameters that stay gathered are no activations.
    whole = {o for n in region.nodes if gathers_parameter(region, n) for o in n.outputs}
    down = [s for s in sorted({*leaving, *owners} - whole) if _kept_by_itself(region, s)]
    draft, content = _Draft(region), {s: _content(region, s) for s in down}
    host = {s: draft.like(content[s]) for s in down}
    later = [n for n in region.nodes if n.phase in _LATER]
    read = {region.by_id[i].storage for n in later for i in n.inputs}
    entering = [v for v in region.of_role(Role.PORT) if v.name in ports and v.id in read]
    host_ports = {v.id: draft.port(v.id) for v in entering}
    up = {s: host[s] for s in down if s in read} | host_ports
    _fetch(draft, up, _LATER, Phase.BACKWARD)
    if down:
        last = [n for n in region.nodes if n.phase is Phase.FORWARD][-1]
        draft.insert_after(last, Node(DOWN, tuple(content.values()), tuple(host.values()), phase=Phase.FORWARD))
    draft.outputs = (*region.outputs, *(Port(name + HOST, host[v]) for v, name in leaving.items()))
    return draft.finish()


def _fetch(draft: _Draft, sources: Mapping[int, int], phases: Sequence[Phase], phase: Phase) -> None:
    """Copy up, in front of the first node of some phases, what `sources` says; those nodes read the copies.

    `sources` names, for each storage, the value that lies in host memory. Views of the storage are made anew.
    """
    if not sources:
        return
    region = draft.region
    fresh = {s: draft.like(_content(region, s)) for s in sources}
    names = fresh | {_content(region, s): copy for s, copy in fresh.items()}
    readers = [n for n in region.nodes if n.phase in phases]
    wanted = {i for n in readers for i in n.inputs}
    views = [n for n in region.nodes if has(n, OpClass.FREE) and region.by_id[n.key].storage in sources]
    earlier = [n for n in views if n.phase is Phase.FORWARD and Phase.FORWARD not in phases]
    again = draft.copies(needed(earlier, {n.key for n in earlier}, wanted), region, names)
    for v in (region.by_id[o] for n in readers for o in n.outputs if region.by_id[o].storage in sources):
        draft.values[v.id] = replace(v, storage=fresh[v.storage])
    for node in readers:
        draft.rewire(node, names)
    copy = Node(UP, tuple(sources.values()), tuple(fresh.values()), phase=phase)
    put = (copy, *(replace(n, phase=phase, forward=None) for n in again))
    draft.insert_before(readers[0], *put) if readers else draft.append(*put)


def _update_on_host(region: Region, params_stay: bool) -> Region:
    """Gradients down, the update there, and the new weights up unless they live there too."""
    draft = _Draft(region)
    for node in region.nodes:
        if has(node, Trait.UPDATES):
            draft.replace(node, *_host_step(draft, node, params_stay))
    return draft.finish()


def _host_step(draft: _Draft, node: Node, params_stay: bool) -> list[Node]:
    half = len(node.inputs) // 2
    params, grads = node.inputs[:half], list(node.inputs[half:])
    kinds = {g: _narrow(draft.region, p, g) for p, g in zip(params, grads, strict=True)}
    casts = {g: draft.like(g, kind) for g, kind in kinds.items() if kind != draft.region.by_id[g].type}
    sent = tuple(casts.get(g, g) for g in grads)
    there = tuple(draft.like(g, kinds[g]) for g in grads)
    new = node.outputs if params_stay else tuple(draft.like(o, draft.region.by_id[o].type) for o in node.outputs)
    made = [Node("cast", (g,), (c,), phase=node.phase) for g, c in casts.items()]
    made.append(Node(DOWN, sent, there, phase=node.phase))
    made.append(Node(UPDATE, (*params, *there), new, node.attrs, phase=node.phase))
    return made if params_stay else [*made, Node(UP, new, node.outputs, phase=node.phase)]


def _narrow(region: Region, param: int, grad: int) -> TensorType:
    """The type in which a gradient travels: its parameter's."""
    return replace(region.by_id[grad].type, dtype=region.by_id[param].type.dtype)


def _params(region: Region) -> Region:
    """Fetch the weights that a phase reads in front of it, once for forward and once for what comes later."""
    # What comes later first: it must not read views of what the forward phase fetched.
    for phases, phase in ((_LATER, Phase.BACKWARD), ((Phase.FORWARD,), Phase.FORWARD)):
        draft = _Draft(region)
        read = {region.by_id[i].storage for n in region.nodes if n.phase in phases for i in n.inputs}
        weights = {v.id: v.id for v in region.of_role(Role.PARAM) if v.id in read}
        _fetch(draft, weights, phases, phase)
        region = draft.finish()
    return region
