"""Index maps of views and data movement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from ....ir.ops import OpCall, Trait, has
from ....ir.ops.tensors.images import ChannelNormAttrs, WindowAttrs
from ....ir.ops.tensors.layout import ConcatAttrs, PermuteAttrs, SliceAttrs
from ....ir.ops.tensors.lookup import LookupAttrs
from ....ir.placement import PARTIAL, REPLICATE, Shard
from ....ir.sizes.expr import Dim, as_expr
from ..entries import SAMPLES, IndexMap, Labels, Law, PlacementEntry

_ALL_LINEAR = [((0,), ())]


def reshape(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Blocks of equal size on both sides keep their leading dim; an inner dim that is flattened is packed.

    A dim of several tensors side by side, or a flattened inner dim, unflattens to its inner dim; or, where each of the
    tensors has whole entries of the leading dim, to these.
    """
    del axis
    yield PlacementEntry((REPLICATE,), (REPLICATE,))
    yield PlacementEntry((PARTIAL,), (PARTIAL,))
    source, result = call.inputs[0].dims, call.outputs[0].dims
    for ins, outs in blocks(source, result):
        lead_in, lead_out = ins[0], outs[0]
        yield PlacementEntry((Shard(lead_in),), (Shard(lead_out),), plain=len(ins) > 1 or len(outs) > 1)
        if len(outs) == 1:
            yield from (PlacementEntry((Shard(i),), (Shard(lead_out, packed=True),)) for i in ins[1:])
        if len(ins) > 1 or len(outs) > 1:  # of tensors side by side, each of whole entries
            yield PlacementEntry((Shard(lead_in, packed=True),), (Shard(lead_out, packed=True),))
        if len(ins) == 1:
            yield from (PlacementEntry((Shard(lead_in, packed=True),), (Shard(o),)) for o in outs[1:])


def blocks(source: Sequence[Dim], result: Sequence[Dim]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the smallest runs of dims (those of one entry left out) that have equally many entries on both sides.

    >>> list(blocks((2, 8, 1, 6), (16, 2, 3)))
    [([0, 1], [0]), ([3], [1, 2])]
    """
    left = [i for i, d in enumerate(source) if d != 1]
    right = [o for o, d in enumerate(result) if d != 1]
    while left and right:
        found = _smallest(source, result, left, right)
        if found is None:
            return
        ins, outs = found
        yield ins, outs
        left, right = left[len(ins) :], right[len(outs) :]


def _smallest(
    source: Sequence[Dim], result: Sequence[Dim], left: Sequence[int], right: Sequence[int]
) -> tuple[list[int], list[int]] | None:
    """The shortest runs at the front with equal products."""
    made = as_expr(1)
    products: dict[str, int] = {}
    for k, o in enumerate(right):
        made = made * result[o]
        products.setdefault(str(made), k + 1)
    given = as_expr(1)
    for k, i in enumerate(left):
        given = given * source[i]
        if str(given) in products:
            return list(left[: k + 1]), list(right[: products[str(given)]])
    return None


def permute(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Dims in another order."""
    del axis
    dims = call.attrs_as(PermuteAttrs).dims
    yield from IndexMap([_numbered(len(dims))], [[str(d) for d in dims]], linear=_ALL_LINEAR).entries()


def expand(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """New dims are the same for all; so are those that had one entry, which a rank may repeat as often as it needs."""
    del axis
    shift = call.outputs[0].rank - call.inputs[0].rank
    made = _numbered(call.outputs[0].rank)
    given: Labels = [
        None if d == 1 and call.outputs[0].dims[i + shift] != 1 else str(i + shift)
        for i, d in enumerate(call.inputs[0].dims)
    ]
    yield from IndexMap([given], [made], linear=_ALL_LINEAR).entries()


def slice_(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Other dims stay; of a packed dim one of the tensors is taken, which is whole in itself or packed again."""
    del axis
    attrs = call.attrs_as(SliceAttrs)
    whole, part = _cut(call, call.inputs[0].rank)
    yield from IndexMap([whole], [part], linear=_ALL_LINEAR).entries()
    if not attrs.drop:
        given = (Shard(attrs.dim, packed=True),)
        yield PlacementEntry(given, (Shard(attrs.dim),))
        yield PlacementEntry(given, (Shard(attrs.dim, packed=True),))
        if attrs.start != 0:  # one behind the others of which every rank holds a copy: `copies_complaints`
            yield PlacementEntry(given, (REPLICATE,))


def pad(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """The adjoint of slice: zeros stand in the place of the other tensors of a packed dim."""
    del axis
    attrs = call.attrs_as(SliceAttrs)
    whole, part = _cut(call, call.outputs[0].rank)
    yield from IndexMap([part], [whole], linear=_ALL_LINEAR).entries()
    if not attrs.drop:
        made = (Shard(attrs.dim, packed=True),)
        yield PlacementEntry((Shard(attrs.dim),), made)
        yield PlacementEntry((Shard(attrs.dim, packed=True),), made)
        if attrs.start != 0:
            yield PlacementEntry((PARTIAL,), made)  # of the gradient of a copy, each rank has a part


def _cut(call: OpCall, rank: int) -> tuple[Labels, Labels]:
    attrs = call.attrs_as(SliceAttrs)
    whole = [None if i == attrs.dim else str(i) for i in range(rank)]
    return whole, [c for i, c in enumerate(whole) if i != attrs.dim or not attrs.drop]


def concat(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Other dims stay; pieces that are each in shards along the concat dim make a packed one."""
    del axis
    along, count = call.attrs_as(ConcatAttrs).dim, len(call.inputs)
    labels = [None if i == along else str(i) for i in range(call.outputs[0].rank)]
    everything = [(tuple(range(count)), ())]
    yield from IndexMap([labels] * count, [labels], linear=everything).entries()
    whole = Shard(along)
    for copies in range(1, count):
        yield PlacementEntry((*(whole,) * (count - copies), *(PARTIAL,) * copies), (Shard(along, packed=True),))
    for flags in product((False, True), repeat=min(count, 6)):
        packed = (*flags, *(False,) * (count - len(flags)))
        yield PlacementEntry(tuple(Shard(along, packed=p) for p in packed), (Shard(along, packed=True),))


def embedding(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Ids pick rows: rows of other ranks are zeros in a partial sum; columns and ids stay. Linear in the table."""
    del axis
    ids = _numbered(call.inputs[0].rank)
    form = IndexMap([ids, ["v", "h"]], [[*ids, "h"]], sums={"v": (0,)}, linear=[((1,), ())])
    yield from form.entries()


def embedding_bwd(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Rows of dy are added where their id says: a sum over ids, for all rows of the table or for some of them."""
    del axis
    ids = _numbered(call.inputs[1].rank)
    sums = dict.fromkeys(ids, (0,))
    yield from IndexMap([[*ids, "h"], ids], [["v", "h"]], sums, linear=[((0,), ())]).entries()


def gather(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Letters: one of the result is handed on, or new; one of operands alone is looked up, or counted over.

    Entries are moved and not changed: linear in what they are taken from.
    """
    del axis
    attrs = call.attrs_as(LookupAttrs)
    unknown: list[Labels] = [[None] * t.rank for t in (*call.inputs, *call.outputs)]
    letters: list[Labels] = [list(word) for word in attrs.letters] or unknown
    counted = {c for word in letters[:-1] for c in word if c is not None} - set(letters[-1]) if attrs.adds else set()
    sums = dict.fromkeys(sorted(counted), (0,))
    yield from IndexMap(letters[:-1], letters[-1:], sums, linear=[] if attrs.adds else _ALL_LINEAR).entries()


def scatter(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Letters: of one that is written at indices a rank takes what falls into its part; what is added over is a sum.

    Linear in base and source together.
    """
    del axis
    attrs, last = call.attrs_as(LookupAttrs), len(call.inputs) - 1
    unknown: list[Labels] = [[None] * t.rank for t in (*call.inputs, *call.outputs)]
    letters: list[Labels] = [list(word) for word in attrs.letters] or unknown
    added = {c for word in letters[:-1] for c in word if c is not None} - set(letters[-1]) if attrs.adds else set()
    sums = dict.fromkeys(sorted(added), (0,))
    linear = [((0, last), ())] if last else _ALL_LINEAR
    yield from IndexMap(letters[:-1], letters[-1:], sums, added=[0] if sums else [], linear=linear).entries()


def images(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Letters: one of what is worked on and of the results is handed on; the way back is linear in the gradient.

    There a result without the letter is a sum, unless a statistic is taken over it. Samples of a data axis are a
    replica's own: statistics of them, too.
    """
    attrs, back = call.attrs, has(call, Trait.BACKWARD)
    assert isinstance(attrs, WindowAttrs | ChannelNormAttrs)
    count = len(call.inputs)
    known = set(attrs.letters[0])
    letters: list[Labels] = [[c if c in known else None for c in word] for word in attrs.letters]
    given, made = letters[:count], letters[count:]
    first, replicas = attrs.letters[0][0], axis in SAMPLES
    if isinstance(attrs, WindowAttrs) or attrs.given:
        summed = known
    else:
        summed = {first} if attrs.kind == "group" or replicas else set()
    lacking = {c: [k for k, word in enumerate(made) if c not in word] for c in summed if c in made[0]}
    linear = [((0,), ())] if back else []
    own = {c: ks for c, ks in lacking.items() if replicas and c == first}
    yield from IndexMap(given, made, lacking if back else {}, {} if back else own, linear=linear).entries()


def _numbered(rank: int) -> list[str]:
    return [str(i) for i in range(rank)]


LAWS: Mapping[str, Law] = {
    "reshape": reshape,
    "permute": permute,
    "expand": expand,
    "slice": slice_,
    "pad": pad,
    "concat": concat,
    "embedding": embedding,
    "embedding_bwd": embedding_bwd,
    "gather": gather,
    "scatter": scatter,
    **dict.fromkeys(("window", "window_bwd", "channel_norm", "channel_norm_bwd"), images),
}
