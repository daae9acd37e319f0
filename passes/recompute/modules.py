"""The modules of a layer that recomputation names: which forward nodes each is, and whether its results stay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from ...ir.errors import NotBuiltError, UnknownNameError
from ...ir.graph import Node, Phase, Region, Role
from ...ir.ops import OpClass, has
from ...ir.plan.training.wildcards import matches
from ...ir.records import dataclass

_PRODUCTS = (OpClass.MATMUL, OpClass.ATTENTION, OpClass.EXPERTS)
_LATENT_UP = ("q_b_proj", "kv_b_proj")


@dataclass(frozen=True, slots=True)
class RecomputedPiece:
    """Forward nodes that run again together.

    A checkpoint keeps its results where others need them; a piece that `discards` forgets them too, and all that
    comes later reads them anew.
    """

    nodes: frozenset[int]
    discards: bool


def pieces(region: Region, names: Sequence[str]) -> list[RecomputedPiece]:
    """Return the connected pieces of what the names mean in a layer: checkpoints, then from the end what discards."""
    found = [
        RecomputedPiece(part, name in _DISCARDING)
        for name in names
        for part in _connected(region, _nodes(region, name))
    ]
    place = {n.key: k for k, n in enumerate(region.nodes)}
    return sorted(found, key=lambda p: (p.discards, -max(place[k] for k in p.nodes)))


def check_names(regions: Sequence[Region], names: Sequence[str]) -> None:
    """Raise UnknownNameError for a name or wildcard that no layer has anything of."""
    for name in names:
        if name == "moe_act":
            raise NotBuiltError("recompute module moe_act: the activation of experts is inside their kernel; try moe")
        if not any(_nodes(r, name) for r in regions):
            scopes = {_inner(n.scope) for r in regions for n in r.nodes if n.phase is Phase.FORWARD}
            if ":" in name:
                scopes |= {f"{_inner(n.scope)}:{n.op}" for r in regions for n in _forward(r)}
            known = [m for m in MODULES if any(_nodes(r, m) for r in regions)]
            allowed = dict.fromkeys((*known, *sorted(scopes - {"", *MODULES})))
            if name in MODULES:
                raise UnknownNameError(
                    f"no layer has what Megatron-Core calls '{name}'; allowed: {', '.join(allowed)}, or wildcards"
                )
            raise UnknownNameError.of("module to recompute in these layers", name, allowed)


def named_results(region: Region, names: Sequence[str]) -> frozenset[int]:
    """Return keys of the forward nodes whose results some names mean in a layer.

    A message is meant by its operator alone: what brings the input of a module together is none of its results.
    """
    found = frozenset[int]().union(*(_nodes(region, name) for name in names))
    asked = [name for name in names if ":" in name]
    return frozenset(
        n.key
        for n in _forward(region)
        if n.key in found and (not has(n, OpClass.COMMUNICATION) or any(_means(n, name) for name in asked))
    )


def result_name(region: Region, node: Node) -> str:
    """Return a name by which `named_results` finds a forward node: its module, with its operator where there are more.

    Views and messages count as nothing of their own. Two nodes of one operator in one module have one name.
    """
    same = [n for n in _forward(region) if n.scope == node.scope and not has(n, OpClass.FREE, OpClass.COMMUNICATION)]
    inner = _inner(node.scope)
    return inner if inner and len({n.op for n in same}) == 1 else f"{inner}:{node.op}"


def attention_core(region: Region) -> frozenset[int]:
    """Keys of fused attention, and of all that lies between one product of two activations and the next."""
    forward = _forward(region)
    products = _products_of_activations(region)
    inside = [n for n in forward if n.key in products or not has(n, *_PRODUCTS)]
    after = _downstream(inside, products)
    before = _upstream(inside, products)
    core = {n.key for n in forward if has(n, OpClass.ATTENTION)}
    for node in inside:
        first, last = before.intersection(node.outputs), after.intersection(node.inputs)
        if (first or last) if node.key in products else (first and last):
            core.add(node.key)
    return frozenset(core)


def weight_products(region: Region) -> list[Node]:
    """Return the matrix products of a weight, in order."""
    activations = _products_of_activations(region)
    matmuls = (n for n in _forward(region) if has(n, OpClass.MATMUL))
    return [n for n in matmuls if n.key not in activations]


def _forward(region: Region) -> list[Node]:
    return [n for n in region.nodes if n.phase is Phase.FORWARD]


def _downstream(nodes: Iterable[Node], sources: Iterable[int]) -> set[int]:
    """Values that come of the nodes with these keys."""
    starts, reached = set(sources), set[int]()
    for node in nodes:
        if node.key in starts or reached.intersection(node.inputs):
            reached.update(node.outputs)
    return reached


def _upstream(nodes: Sequence[Node], targets: Iterable[int]) -> set[int]:
    """Values that the nodes with these keys come of."""
    ends, reached = set(targets), set[int]()
    for node in reversed(nodes):
        if node.key in ends or reached.intersection(node.outputs):
            reached.update(node.inputs)
    return reached


def _products_of_activations(region: Region) -> set[int]:
    weights = {v.id for v in region.of_role(Role.PARAM)}
    for node in (n for n in region.nodes if n.phase in (Phase.PREPARE, Phase.FORWARD)):
        if node.inputs and weights.issuperset(node.inputs):
            weights.update(node.outputs)
    matmuls = (n for n in _forward(region) if has(n, OpClass.MATMUL))
    return {n.key for n in matmuls if not weights.intersection(n.inputs[:2])}


def _inner(scope: str) -> str:
    """The module path inside of the layer.

    >>> _inner("model.layers.*.mlp.act_fn"), _inner("model.layers.*")
    ('mlp.act_fn', '')
    """
    _, star, rest = scope.partition("*")
    return rest.removeprefix(".") if star else scope


def _children(region: Region) -> Mapping[str, list[Node]]:
    """Forward nodes by the module of the layer they are in; the layer's own are under no name."""
    found: dict[str, list[Node]] = {}
    for node in _forward(region):
        found.setdefault(_inner(node.scope).split(".")[0], []).append(node)
    return found


def _with_kind(region: Region, kind: OpClass) -> list[Node]:
    """Nodes of the children in which there is an op of a kind."""
    children = [nodes for name, nodes in _children(region).items() if name]
    return [n for nodes in children if any(has(m, kind) for m in nodes) for n in nodes]


def _norms(region: Region) -> list[Node]:
    """Norms that are children of the layer itself: not those of queries, keys or latent vectors.

    Spelled out, a norm is a child that reads a parameter and multiplies no matrices.
    """
    outer = [n for n in _forward(region) if _inner(n.scope).count(".") == 0]
    found = [n for n in outer if has(n, OpClass.NORM)]
    if found:
        return found
    own = {n.scope for n in outer if any(region.by_id[i].role is Role.PARAM for i in n.inputs)}
    busy = {n.scope for n in outer if has(n, *_PRODUCTS)}
    return [n for n in outer if _inner(n.scope) and n.scope in own - busy]


def _mlp(region: Region) -> list[Node]:
    """Children with products of weights, without experts and without attention."""
    core = attention_core(region)
    weights = {n.key for n in weight_products(region)}
    found: list[Node] = []
    for name, nodes in _children(region).items():
        keys = {n.key for n in nodes}
        experts = any(has(n, OpClass.EXPERTS) for n in nodes)
        if name and keys & weights and not keys & core and not experts:
            found += nodes
    return found


def _pointwise(nodes: Iterable[Node]) -> list[Node]:
    return [n for n in nodes if has(n, OpClass.ELEMENTWISE)]


def _shared_experts(region: Region) -> list[Node]:
    return [n for n in _with_kind(region, OpClass.EXPERTS) if "shared_expert" in n.scope]


def _latent_up(region: Region) -> list[Node]:
    """From the up-projections of latent attention to the attention, both ends but the attention included."""
    forward = _forward(region)
    ups = {n.key for n in weight_products(region) if n.scope.endswith(_LATENT_UP)}
    after = _downstream(forward, ups)
    before = _upstream(forward, attention_core(region))
    core = attention_core(region)
    return [n for n in forward if n.key not in core and after & {*n.outputs} and before & {*n.outputs}]


# Megatron-Core's names for what `recompute_modules` lists, and `mlp_act`.
_NAMED: Mapping[str, Callable[[Region], Iterable[Node]]] = MappingProxyType(
    {
        "layernorm": _norms,
        "mlp": _mlp,
        "mlp_act": lambda region: _pointwise(_mlp(region)),
        "moe": lambda region: _with_kind(region, OpClass.EXPERTS),
        "shared_experts": _shared_experts,
        "mla_up_proj": _latent_up,
    }
)
MODULES = ("core_attn", *_NAMED)
_DISCARDING = ("layernorm", "mlp_act", "mla_up_proj")


def _nodes(region: Region, name: str) -> frozenset[int]:
    """Keys of the forward nodes that a name, a module path inside of the layer, or a wildcard means."""
    if name == "core_attn":
        return attention_core(region)
    chosen = _NAMED[name](region) if name in _NAMED else [n for n in _forward(region) if _means(n, name)]
    keys = {n.key for n in chosen}
    return frozenset(_with_views(region, keys) if name in _DISCARDING else keys)


def _means(node: Node, name: str) -> bool:
    """Whether a module path, or a path and an operator, means a node."""
    path, colon, op = name.rpartition(":")
    if not colon:
        inner = _inner(node.scope)
        return matches(node.scope, name) or matches(inner, name) or f".{name}." in f".{inner}."
    return matches(node.op, op) and (matches(_inner(node.scope), path) or matches(node.scope, path))


def _with_views(region: Region, keys: set[int]) -> set[int]:
    """Add the views of the results, which would keep them."""
    made, found = {o for n in region.nodes if n.key in keys for o in n.outputs}, set(keys)
    for node in _forward(region):
        if has(node, OpClass.FREE) and made.intersection(node.inputs):
            found.add(node.key)
            made.update(node.outputs)
    return found


def _connected(region: Region, keys: frozenset[int]) -> list[frozenset[int]]:
    """Split nodes into those that hang together by what they make and read."""
    found: list[tuple[set[int], set[int]]] = []
    for node in (n for n in _forward(region) if n.key in keys):
        touching = [f for f in found if f[1].intersection(node.inputs)]
        found = [f for f in found if f not in touching]
        joined = ({node.key}.union(*(f[0] for f in touching)), {*node.outputs}.union(*(f[1] for f in touching)))
        found.append(joined)
    return [frozenset(nodes) for nodes, _ in found]
