"""Layout laws of what runs along rows: norms, softmax, reductions, the loss, scans, lookups in a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ....ir.ops.tensors.normalize import ALONG_DIM, DimAttrs, ReduceAttrs
from ..lay import PARTIAL, REPLICATE, SAMPLES, Law, Lay, Partial, Placement, Shard, input_is, no_sums, result_is

_ADDS = ("sum", "mean")


def norm(lay: Lay) -> Iterator[str]:
    """The last dim is whole, and the weight; the result lies as x does."""
    yield from no_sums(lay)
    yield from _whole_along(lay, 0, lay.call.inputs[0].rank - 1)
    yield from result_is(lay, 0, lay.outs[0], lay.ins[0])


def norm_bwd(lay: Lay) -> Iterator[str]:
    """Gradient and x lie alike; the weight's gradient sums over what is cut."""
    yield from no_sums(lay)
    yield from _whole_along(lay, 1, lay.call.inputs[1].rank - 1)
    yield from input_is(lay, 0, _plain(lay.ins[0]), _plain(lay.ins[1]))
    yield from result_is(lay, 0, _plain(lay.outs[0]), _plain(lay.ins[1]))
    want: Placement = PARTIAL if isinstance(lay.ins[1], Shard) else REPLICATE
    for i in range(1, len(lay.outs)):
        yield from result_is(lay, i, lay.outs[i], want)


def along_dim(lay: Lay) -> Iterator[str]:
    """The dim that the op runs along is whole, or ranks exchange its statistics; all operands and results lie alike."""
    attrs = lay.call.attrs_as(DimAttrs)
    yield from no_sums(lay)
    if lay.axis not in SAMPLES and not attrs.across:
        yield from _whole_along(lay, 0, attrs.dim)
    for i, p in enumerate(lay.ins[1:], 1):
        yield from input_is(lay, i, p, lay.ins[0])
    for i, p in enumerate(lay.outs):
        yield from result_is(lay, i, p, lay.ins[0])


def reduce(lay: Lay) -> Iterator[str]:
    """A sum over a dim that is cut is partial; other functions need it whole."""
    attrs, p = lay.call.attrs_as(ReduceAttrs), lay.ins[0]
    if attrs.fn not in _ADDS:
        yield from no_sums(lay)
    if isinstance(p, Partial):
        want: Placement = PARTIAL
    elif isinstance(p, Shard) and p.dim in attrs.dims:
        want = PARTIAL
        if attrs.fn not in _ADDS and lay.axis not in SAMPLES:
            yield f"{attrs.fn} runs along a dim that is cut: {lay.input(0)}"
    elif isinstance(p, Shard):
        want = Shard(p.dim - (0 if attrs.keepdim else sum(d < p.dim for d in attrs.dims)), p.packed)
    else:
        want = p
    if attrs.fn in _ADDS or want != PARTIAL:
        yield from result_is(lay, 0, lay.outs[0], want)


def cross_entropy(lay: Lay) -> Iterator[str]:
    """Over a cut vocabulary the statistics of rows are partial, over cut rows the mean."""
    yield from no_sums(lay)
    p = lay.ins[0]
    vocabulary = isinstance(p, Shard) and p.dim == lay.call.inputs[0].rank - 1
    want: Placement = PARTIAL if isinstance(p, Shard) and not vocabulary else REPLICATE
    yield from result_is(lay, 0, lay.outs[0], want)


def embedding(lay: Lay) -> Iterator[str]:
    """Rows of a table cut over the vocabulary are partial sums."""
    ids, table = lay.ins
    want = table if table == REPLICATE else PARTIAL if table == Shard(0) else Shard(lay.call.outputs[0].rank - 1)
    if table != REPLICATE and ids != REPLICATE:
        yield f"ids and table are both cut: {lay.input(0)} and {lay.input(1)}"
    else:
        yield from result_is(lay, 0, lay.outs[0], ids if table == REPLICATE else want)


def not_linear(lay: Lay) -> Iterator[str]:
    """Nothing is known of how the op is cut but that it reads no partial sums."""
    yield from no_sums(lay)


def _whole_along(lay: Lay, index: int, dim: int) -> Iterator[str]:
    p = lay.ins[index]
    if isinstance(p, Shard) and p.dim == dim:
        yield f"{lay.call.op} runs along a dim that is cut: {lay.input(index)}; wanted whole along {lay.axis}"


def _plain(p: Placement) -> Placement:
    return Shard(p.dim) if isinstance(p, Shard) else p


LAWS: Mapping[str, Law] = {
    "norm": norm,
    "norm_bwd": norm_bwd,
    "reduce": reduce,
    "cross_entropy": cross_entropy,
    "embedding": embedding,
    **dict.fromkeys(ALONG_DIM, along_dim),
    **dict.fromkeys(("cross_entropy_bwd", "scan", "scan_bwd", "conv", "conv_bwd", "index_keys"), not_linear),
}
