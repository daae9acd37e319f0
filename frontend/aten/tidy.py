"""The flat graph made canonical: products seen through views, chains of views shortened, what nobody reads left out.

PyTorch flattens [batch, seq, hidden] to two dims for every linear layer. Sharding needs batch and sequence apart, so
each operand is followed back through reshapes and permutes to a value whose dims the product can name one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product as combinations
from string import ascii_lowercase

from ...ir.graph import Node, Phase, Role, Value
from ...ir.ops import OpClass, Trait, has
from ...ir.ops.tensors.layout import PermuteAttrs
from ...ir.ops.tensors.matmul import MatmulAttrs
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim, product
from .flat import Flat


@dataclass(frozen=True, slots=True)
class DimGroups:
    """A value as groups of dims of `base`: each dim of the value is one group, flattened in order."""

    base: int
    groups: tuple[tuple[int, ...], ...]
    rank: int
    depth: int


@dataclass(frozen=True, slots=True)
class Folded:
    """A product over real dims: its operands, its spec and the dims of its result."""

    left: int
    right: int
    spec: str
    dims: tuple[Dim, ...]


def fold(node: Node, values: Mapping[int, Value], producer: Mapping[int, Node]) -> Folded | None:
    """Return the product over the dims of the operands' bases, or None when it is best as it is."""
    if not _is_plain(node):
        return None
    a, b, *biases = node.inputs
    num_batch = 1 if values[a].type.rank == 3 else 0
    lefts = sorted(_forms(a, values, producer), key=_preference)
    rights = sorted(_forms(b, values, producer), key=_preference)
    for left, right in combinations(lefts, rights):
        found = _match(left, right, num_batch, values)
        if found is not None and all(values[bias].type.dims[-1] == found.dims[-1] for bias in biases):
            return found
    return None


def _is_plain(node: Node) -> bool:
    """Whether a product is rows times columns, of matrices or of batches of them, and no weight in it is widened."""
    assert isinstance(node.attrs, MatmulAttrs)
    left, right, out = node.attrs.letters
    if len(left) != len(right) or len(left) not in (2, 3) or node.attrs.scales:
        return False
    return right[:-2] == left[:-2] and right[-2] == left[-1] and out == left[:-1] + right[-1]


def _preference(form: DimGroups) -> tuple[bool, int, int]:
    """Three and more dims first, the fewest of them, then the furthest back."""
    return form.rank < 3, form.rank, -form.depth


def _forms(value: int, values: Mapping[int, Value], producer: Mapping[int, Node]) -> Iterator[DimGroups]:
    """Yield the value itself, then everything it is a flattening or a permutation of."""
    dims = values[value].type.dims
    groups: tuple[tuple[int, ...], ...] = tuple((i,) for i in range(len(dims)))
    yield DimGroups(value, groups, len(dims), 0)
    depth = 0
    while (node := producer.get(value)) is not None and has(node, Trait.RESHAPES, Trait.PERMUTES):
        source = node.inputs[0]
        step = through(node, values[source].type.dims, values[value].type.dims)
        if step is None:
            return
        groups = tuple(tuple(a for d in g for a in step[d]) for g in groups)
        value, depth = source, depth + 1
        yield DimGroups(value, groups, values[value].type.rank, depth)


def through(node: Node, source: Sequence[Dim], result: Sequence[Dim]) -> tuple[tuple[int, ...], ...] | None:
    """Return, for each dim of the result, the dims of the source it flattens; None when it splits one."""
    if isinstance(node.attrs, PermuteAttrs):
        return tuple((d,) for d in node.attrs.dims)
    groups: list[tuple[int, ...]] = []
    position = 0
    for index, want in enumerate(result):
        end = _end_of_group(source, position, want)
        if end is None:
            return None
        # Dims of size one that nothing in the result asks for stay with the group before them.
        end += max(0, _ones(source, end) - _ones(result, index + 1))
        groups.append(tuple(range(position, end)))
        position = end
    return tuple(groups) if position == len(source) else None


def _end_of_group(source: Sequence[Dim], start: int, want: Dim) -> int | None:
    """Return where the dims end that multiply to `want`, from `start` on; None when there are none."""
    if want == 1:
        return start + min(1, _ones(source, start))
    end = start
    while product(source[start:end]) != want:
        if end == len(source):
            return None
        end += 1
    return end


def _ones(dims: Sequence[Dim], start: int) -> int:
    """Count the dims of size one in a row."""
    end = start
    while end < len(dims) and dims[end] == 1:
        end += 1
    return end - start


def _match(left: DimGroups, right: DimGroups, num_batch: int, values: Mapping[int, Value]) -> Folded | None:
    a, b = values[left.base].type.dims, values[right.base].type.dims
    *batch_a, m, k_a = left.groups
    *batch_b, k_b, n = right.groups
    shared_a = [d for g in (*batch_a, k_a) for d in g]
    shared_b = [d for g in (*batch_b, k_b) for d in g]
    if [a[d] for d in shared_a] != [b[d] for d in shared_b] or len(batch_a) != num_batch:
        return None
    letters = iter(ascii_lowercase)
    name_a = {d: next(letters) for d in range(len(a))}
    name_b = {d: name_a[e] for d, e in zip(shared_b, shared_a, strict=True)}
    name_b |= {d: next(letters) for d in n}
    if len(name_b) != len(b):
        return None
    out = [(name_a[d], a[d]) for g in (*batch_a, m) for d in g] + [(name_b[d], b[d]) for d in n]
    spec = f"{''.join(name_a.values())},{''.join(name_b[d] for d in range(len(b)))}->{''.join(c for c, _ in out)}"
    return Folded(left.base, right.base, spec, tuple(d for _, d in out))


def permuted(attrs: MatmulAttrs, dims: Sequence[int]) -> MatmulAttrs:
    """Return the spec whose result comes out with its dims in another order."""
    left, right, out = attrs.letters
    return replace(attrs, spec=f"{left},{right}->{''.join(out[d] for d in dims)}")


_VIEWS = ("cast", "permute", "reshape", "slice")


def tidy(flat: Flat) -> Flat:
    """Return the canonical form; results, gradients and the work of every operator stay the same."""
    flat = _fold_matmuls(flat)
    flat = _shorten_views(flat)
    flat = _absorb_permutes(flat)
    flat = _sweep(flat)
    return _repair_links(flat)


def _fold_matmuls(flat: Flat) -> Flat:
    out = Flat(dict(flat.values), [], list(flat.results), dict(flat.grads), said=flat.said)
    producer: dict[int, Node] = {}
    for node in flat.nodes:
        found = fold(node, out.values, producer) if has(node, OpClass.MATMUL) else None
        made = [node] if found is None else _folded_nodes(out, node, found.left, found.right, found.spec, found.dims)
        for new in made:
            out.nodes.append(new)
            producer.update(dict.fromkeys(new.outputs, new))
    return out


def _folded_nodes(out: Flat, node: Node, left: int, right: int, spec: str, dims: tuple[Dim, ...]) -> list[Node]:
    old = out.values[node.key]
    matmul = replace(node, inputs=(left, right, *node.inputs[2:]), attrs=MatmulAttrs(spec))
    if dims == old.type.dims:
        return [matmul]
    new = out.value(old.type.with_dims(dims), None)
    out.values[old.id] = replace(old, storage=new)
    out.renamed[old.id] = new
    for ident, v in out.values.items():
        if v.storage == old.id:
            out.values[ident] = replace(v, storage=new)
    view = Node("reshape", (new,), (old.id,), scope=node.scope, phase=node.phase, forward=node.forward)
    return [replace(matmul, outputs=(new,)), view]


def _shorten_views(flat: Flat) -> Flat:
    """Reshape of reshape and permute of permute become one; a view that changes nothing disappears."""
    out = Flat(dict(flat.values), [], [], {}, dict(flat.renamed), flat.said)
    producer: dict[int, Node] = {}
    alias: dict[int, int] = {}
    for given in flat.nodes:
        is_moved = not alias.keys().isdisjoint(given.inputs)
        node = replace(given, inputs=tuple(alias.get(i, i) for i in given.inputs)) if is_moved else given
        node = _merge_with_source(node, producer)
        if _changes_nothing(node, out):
            alias[node.key] = out.renamed[node.key] = node.inputs[0]
            continue
        out.nodes.append(node)
        producer.update(dict.fromkeys(node.outputs, node))
    out.results = [alias.get(i, i) for i in flat.results]
    out.grads = {p: alias.get(g, g) for p, g in flat.grads.items()}
    return out


def _merge_with_source(node: Node, producer: dict[int, Node]) -> Node:
    source = producer.get(node.inputs[0]) if has(node, Trait.RESHAPES, Trait.PERMUTES) else None
    if source is None or source.op != node.op:
        return node
    if isinstance(node.attrs, PermuteAttrs) and isinstance(source.attrs, PermuteAttrs):
        dims = tuple(source.attrs.dims[d] for d in node.attrs.dims)
        return replace(node, inputs=source.inputs, attrs=PermuteAttrs(dims))
    return replace(node, inputs=source.inputs)


def _changes_nothing(node: Node, flat: Flat) -> bool:
    if isinstance(node.attrs, PermuteAttrs):
        return node.attrs.dims == tuple(range(len(node.attrs.dims)))
    if not has(node, Trait.RESHAPES):
        return False
    return flat.values[node.key].type.dims == flat.values[node.inputs[0]].type.dims


def _absorb_permutes(flat: Flat) -> Flat:
    """A product that is only read permuted comes out permuted."""
    uses: dict[int, int] = {}
    for i in [i for n in flat.nodes for i in n.inputs] + flat.results + list(flat.grads.values()):
        uses[i] = uses.get(i, 0) + 1
    producer = {n.key: n for n in flat.nodes}
    swallowed: dict[int, Node] = {}
    for node in flat.nodes:
        source = producer.get(node.inputs[0]) if has(node, Trait.PERMUTES) else None
        if source is not None and has(source, OpClass.MATMUL) and uses[source.key] == 1:
            swallowed[source.key] = node
    out = Flat(flat.values, [], flat.results, flat.grads, flat.renamed, flat.said)
    gone = {n.key for n in swallowed.values()}
    for node in flat.nodes:
        if node.key in gone:
            continue
        view = swallowed.get(node.key)
        if view is not None and isinstance(view.attrs, PermuteAttrs) and isinstance(node.attrs, MatmulAttrs):
            out.renamed[node.key] = view.key
            node = replace(node, outputs=view.outputs, attrs=permuted(node.attrs, view.attrs.dims))
            out.values[view.key] = replace(out.values[view.key], storage=view.key)
        out.nodes.append(node)
    return out


def _sweep(flat: Flat) -> Flat:
    """Keep what results, gradients, KV appends and kept states need, and what ran again, needed or not.

    A layer that nobody reads runs all the same: its products with parameters stay, and what they read.
    """
    needed = set(flat.results) | set(flat.grads.values())
    weights = _weights(flat)
    kept: list[Node] = []
    for node in reversed(flat.nodes):
        multiplies = (
            has(node, OpClass.MATMUL, OpClass.CONV)
            and node.phase is Phase.FORWARD
            and not weights.isdisjoint(node.inputs)
        )
        runs = node.phase is Phase.RECOMPUTE or multiplies
        if needed.intersection(node.outputs) or has(node, Trait.WRITES_CACHE) or runs:
            needed.update(node.inputs)
            kept.append(node)
    kept.reverse()
    made = {o for n in kept for o in n.outputs}
    needed |= made | set(flat.grads)
    values = {i: v for i, v in flat.values.items() if i in needed and (i in made or v.role is not Role.RESULT)}
    return Flat(values, kept, flat.results, flat.grads, flat.renamed, flat.said)


def _weights(flat: Flat) -> set[int]:
    """Parameters, and views and casts of them."""
    found = {i for i, v in flat.values.items() if v.role is Role.PARAM}
    for node in flat.nodes:
        if node.op in _VIEWS and node.phase is Phase.FORWARD and found.issuperset(node.inputs):
            found.update(node.outputs)
    return found


def _repair_links(flat: Flat) -> Flat:
    """Forward links name nodes that still exist; storages are owned by values that still exist."""
    owner: dict[int, int] = {}
    for ident, v in sorted(flat.values.items()):
        owner.setdefault(v.storage, v.storage if v.storage in flat.values else ident)
    values = {
        i: v if owner[v.storage] == v.storage else replace(v, storage=owner[v.storage]) for i, v in flat.values.items()
    }
    key_of = {o: n.key for n in flat.nodes for o in n.outputs if n.phase is Phase.FORWARD}
    nodes = [n if n.forward is None else replace(n, forward=key_of.get(_now(flat, n.forward))) for n in flat.nodes]
    return Flat(values, nodes, flat.results, flat.grads, said=flat.said)


def _now(flat: Flat, key: int) -> int:
    while key in flat.renamed:
        key = flat.renamed[key]
    return key
