"""States and kept activations moved to host memory, with the copies down and up that this takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import field, replace
from typing import ClassVar

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
from .gathers import gathers_parameter, renamed
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
    what: tuple[str, ...] = ("optimizer",)
    modules: tuple[str, ...] = ()

    def requires(self, graph: Graph) -> None:
        """What a rank holds comes from `shard`."""
        if graph.workload is Workload.TRAIN:
            require_sharded(self.name, graph, sharded=True)

    def unchanged(self, graph: Graph) -> None:
        """Refuse to offload what a graph has nothing of."""
        if graph.workload is Workload.TRAIN:
            raise PlanError(f"offload of {', '.join(self.what)} changes nothing in {graph.name}: leave it out")

    def apply(self, graph: Graph) -> PassResult:
        """Add the copies; inference graphs stay as they are."""
        check_offload(self.what)
        if graph.workload is not Workload.TRAIN:
            return PassResult(graph, changed=False)
        made = _activations(graph, self.modules) if "activations" in self.what else graph
        if "optimizer" in self.what:
            made = made.with_regions(tuple(_update_on_host(r, "params" in self.what) for r in made.regions))
        if "params" in self.what:
            made = made.with_regions(tuple(_params(r) for r in made.regions))
        return PassResult(graph, changed=False) if made == graph else PassResult(mark_saved(made), changed=True)


@dataclass
class _Draft:
    """A region in the making."""

    region: Region
    values: list[Value] = field(default_factory=list)
    homes: dict[int, int] = field(default_factory=dict)

    def like(self, old: int, kind: TensorType | None = None, storage: int | None = None) -> int:
        """Add a value like another one; a storage of its own unless told."""
        v = self.region.by_id[old]
        ident = self.region.fresh_id + len(self.values)
        home = ident if storage is None else storage
        self.values.append(Value(ident, v.type if kind is None else kind, home, placements=v.placements))
        return ident

    def port(self, old: int) -> int:
        """Add the port through which the host's copy of what another port hands on comes."""
        v = self.region.by_id[old]
        ident = self.like(old)
        self.values[-1] = replace(v, id=ident, storage=ident, name=v.name + HOST, saved=False)
        return ident

    def made(self, nodes: Sequence[Node], outputs: Sequence[Port] = ()) -> Region:
        old = (replace(v, storage=self.homes.get(v.id, v.storage)) for v in self.region.values)
        return replace(
            self.region, values=(*old, *self.values), nodes=tuple(nodes), outputs=(*self.region.outputs, *outputs)
        )


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
    nodes = list(region.nodes)
    if up:
        nodes = _fetched(draft, nodes, up, _LATER, Phase.BACKWARD)
    if down:
        end = max(k for k, n in enumerate(nodes) if n.phase is Phase.FORWARD)
        nodes.insert(end + 1, Node(DOWN, tuple(content.values()), tuple(host.values()), phase=Phase.FORWARD))
    return draft.made(nodes, [Port(name + HOST, host[v]) for v, name in leaving.items()]) if up or down else region


def _fetched(
    draft: _Draft, nodes: Sequence[Node], sources: Mapping[int, int], phases: Sequence[Phase], phase: Phase
) -> list[Node]:
    """Copy up, in front of the first node of some phases, what `sources` says; those nodes read the copies.

    `sources` names, for each storage, the value that lies in host memory. Views of the storage are made anew.
    """
    region = draft.region
    fresh = {s: draft.like(_content(region, s)) for s in sources}
    new = fresh | {_content(region, s): copy for s, copy in fresh.items()}
    wanted = {i for n in nodes if n.phase in phases for i in n.inputs}
    views = [n for n in nodes if has(n, OpClass.FREE) and region.by_id[n.key].storage in sources]
    earlier = [n for n in views if n.phase is Phase.FORWARD and Phase.FORWARD not in phases]
    again = needed(earlier, {n.key for n in earlier}, wanted)
    for node in again:
        for o in node.outputs:
            new[o] = draft.like(o, storage=fresh[region.by_id[o].storage])
    for o in (o for n in nodes if n.phase in phases for o in n.outputs if region.by_id[o].storage in sources):
        draft.homes[o] = fresh[region.by_id[o].storage]
    made = [
        replace(renamed(n, new), outputs=tuple(new[o] for o in n.outputs), phase=phase, forward=None) for n in again
    ]
    read = [renamed(n, new) if n.phase in phases else n for n in nodes]
    first = next((k for k, n in enumerate(nodes) if n.phase in phases), len(read))
    copy = Node(UP, tuple(sources.values()), tuple(fresh.values()), phase=phase)
    return [*read[:first], copy, *made, *read[first:]]


def _update_on_host(region: Region, params_stay: bool) -> Region:
    """Gradients down, the update there, and the new weights up unless they live there too."""
    draft, nodes = _Draft(region), list[Node]()
    for node in region.nodes:
        nodes += _host_step(draft, node, params_stay) if has(node, Trait.UPDATES) else [node]
    return draft.made(nodes) if draft.values or params_stay else region


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
        if weights:
            region = draft.made(_fetched(draft, region.nodes, weights, phases, phase))
    return region
