"""The indexer of sparse attention: light heads score all keys, and the best ones are chosen for each query."""

from __future__ import annotations

from collections.abc import Iterator

from ...records import dataclass
from ...sizes.expr import as_expr, total
from ...types import DType
from ..base import AttentionShape, Attrs, OpCall, OpClass, OpDef, Work, ranks, same_dims
from ..index_map import SEQUENCE_AXES, IndexMap, spec

SCORE_FLOPS = 3  # a score of a head: rectified, weighted, summed over heads


@dataclass(frozen=True, slots=True)
class IndexAttrs(Attrs):
    """`keys` chosen for each query, among those that it may see when `causal`."""

    keys: int
    causal: bool = True


def _check(call: OpCall) -> Iterator[str]:
    if wrong := list(ranks(call, (4, 4, 3), "q, k and the weights of heads")):
        yield from wrong
        return
    q, k, weights = call.inputs
    b, h, s, d = q.dims
    yield from same_dims((k.dims[0], k.dims[1], k.dims[3]), (b, 1, d), "batch, heads (one) and head dim of k")
    yield from same_dims(weights.dims, (b, s, h), "weights [batch, queries, heads]")
    yield from same_dims(call.outputs[0].dims, (b, s, call.attrs_as(IndexAttrs).keys), "ids [batch, queries, keys]")


def _work(call: OpCall) -> Work:
    """One product over all pairs; summed scores [batch, queries, keys] in fp32 are written, and read to choose.

    What the published kernels do: DeepGEMM `fp8_mqa_logits`, then a top-k over the logits (DeepSeek-V3.2-Exp).
    """
    q, k, _ = call.inputs
    b, h, s, t = (as_expr(d) for d in (*q.dims[:3], k.dims[2]))
    width, attrs = q.dims[3], call.attrs_as(IndexAttrs)
    if not isinstance(width, int):
        raise TypeError(f"the head dim of an indexer must be a number, is '{width}'")
    scores_bytes = b * s * t * DType.FP32.num_bytes
    read = total(x.num_bytes for x in call.inputs)
    return Work(
        tensor_flops=b * h * s * t * (2 * width),
        vector_flops=b * h * s * t * SCORE_FLOPS,
        read_bytes=read + scores_bytes,
        write_bytes=call.outputs[0].num_bytes + scores_bytes,
        attention=AttentionShape(
            batch=b,
            heads=h,
            kv_heads=as_expr(1),
            q_len=s,
            kv_len=t,
            qk_dim=width,
            v_dim=0,
            causal=attrs.causal,
            window=0,
            num_gemms=1,
            extra_bytes=scores_bytes * 2 + call.outputs[0].num_bytes,
        ),
    )


def _index_map(call: OpCall, axis: str) -> IndexMap:
    """Batch, and queries where positions are told (axes of the sequence) or do not count; heads meet in a choice."""
    s = "s" if axis in SEQUENCE_AXES or not call.attrs_as(IndexAttrs).causal else "."
    return IndexMap(*spec(f"b . {s} ., b . . ., b {s} . -> b {s} ."))


OPS = (
    OpDef(
        "index_keys",
        OpClass.ATTENTION,
        _work,
        "choice of keys for sparse attention; inputs: q [batch, heads, queries, d], k [batch, 1, keys, d], weights of "
        "heads [batch, queries, heads]; output: ids [batch, queries, chosen]",
        _check,
        IndexAttrs,
        min_inputs=3,
        max_inputs=3,
        index_map=_index_map,
        by_axis=True,
    ),
)
