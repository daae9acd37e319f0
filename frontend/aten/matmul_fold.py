"""Products seen through views: `view -> mm -> view` becomes one matmul over the real dims.

PyTorch flattens [batch, seq, hidden] to two dims for every linear layer. Sharding needs batch and sequence apart, so
each operand is followed back through reshapes and permutes to a value whose dims the product can name one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product as combinations
from string import ascii_lowercase

from ...ir.graph import Node, Value
from ...ir.ops import Trait, has
from ...ir.ops.tensors.layout import PermuteAttrs
from ...ir.ops.tensors.matmul import MatmulAttrs
from ...ir.sizes.expr import Dim, product


@dataclass(frozen=True, slots=True)
class Form:
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


def _preference(form: Form) -> tuple[bool, int, int]:
    """Three and more dims first, the fewest of them, then the furthest back."""
    return form.rank < 3, form.rank, -form.depth


def _forms(value: int, values: Mapping[int, Value], producer: Mapping[int, Node]) -> Iterator[Form]:
    """Yield the value itself, then everything it is a flattening or a permutation of."""
    dims = values[value].type.dims
    groups: tuple[tuple[int, ...], ...] = tuple((i,) for i in range(len(dims)))
    yield Form(value, groups, len(dims), 0)
    depth = 0
    while (node := producer.get(value)) is not None and has(node, Trait.RESHAPES, Trait.PERMUTES):
        source = node.inputs[0]
        step = through(node, values[source].type.dims, values[value].type.dims)
        if step is None:
            return
        groups = tuple(tuple(a for d in g for a in step[d]) for g in groups)
        value, depth = source, depth + 1
        yield Form(value, groups, values[value].type.rank, depth)


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


def _match(left: Form, right: Form, num_batch: int, values: Mapping[int, Value]) -> Folded | None:
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
