"""Fused attention, forward and backward, and the append to a KV cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..expr import Expr, as_expr, total
from .base import AttentionShape, Attrs, OpCall, OpClass, OpDef, Work, same_dims

SOFTMAX_FLOPS = 7  # a score: exponential 4, subtract 1, scale 1, sum 1 (models of the softmax in the literature)
SOFTMAX_BACKWARD_FLOPS = 8
_VALUES = 2  # their place among the inputs


@dataclass(frozen=True, slots=True)
class AttentionAttrs(Attrs):
    """`causal` masks the future, `window` > 0 keeps only that many keys, `sinks` adds a learned score a head.

    `balanced` says that the queries are one rank's even share of all positions (zig-zag), not the last ones. `latent`
    says that values are part of the keys: one cached tensor is both, and is read once.
    """

    causal: bool = True
    window: int = 0
    sinks: bool = False
    dropout: float = 0.0
    balanced: bool = False
    latent: bool = False


@dataclass(frozen=True, slots=True)
class KvAppendAttrs(Attrs):
    """`dim` is the sequence dim of the cache."""

    dim: int = 2


def attention_shape(call: OpCall) -> AttentionShape:
    """Read the sizes off q [batch, heads, q_len, d], k [batch, kv_heads, kv_len, d], v [.., d_v]."""
    forward = call.op == "attention"
    q, k, v = call.inputs[:3] if forward else call.inputs[1:4]
    attrs = call.attrs_as(AttentionAttrs)
    return AttentionShape(
        batch=as_expr(q.dims[0]), heads=as_expr(q.dims[1]), kv_heads=as_expr(k.dims[1]),
        q_len=as_expr(q.dims[2]), kv_len=as_expr(k.dims[2]), qk_dim=_fixed(q.dims[3]), v_dim=_fixed(v.dims[3]),
        causal=attrs.causal, window=attrs.window, balanced=attrs.balanced, num_gemms=2 if forward else 5,
        latent=attrs.latent,
    )  # fmt: skip


def _fixed(dim: int | Expr) -> int:
    if not isinstance(dim, int):
        raise TypeError(f"the head dim of attention must be a number, is '{dim}'")
    return dim


def _check(call: OpCall) -> Iterator[str]:
    q, k, v = call.inputs[:3]
    if {q.rank, k.rank, v.rank} != {4}:
        yield "q, k and v must have the dims [batch, heads, length, head dim]"
        return
    yield from same_dims((*k.dims[:3],), (*v.dims[:3],), "batch, heads and length of k and v")
    yield from same_dims((q.dims[0], q.dims[3]), (k.dims[0], k.dims[3]), "batch and head dim of q and k")
    out = (q.dims[0], q.dims[2], q.dims[1], v.dims[3])
    yield from same_dims(call.outputs[0].dims, out, "result [batch, length, heads, head dim]")
    yield from same_dims(call.outputs[1].dims, q.dims[:3], "log-sum-exp [batch, heads, length]")


def _work(call: OpCall) -> Work:
    """Flash attention: 2 GEMMs over all pairs; q, k, v read once, result and statistics written once."""
    a = attention_shape(call)
    read = (t for i, t in enumerate(call.inputs) if not (a.latent and i == _VALUES))
    pairs = a.batch * a.heads * a.q_len * a.kv_len
    return Work(
        tensor_flops=pairs * 2 * (a.qk_dim + a.v_dim),
        vector_flops=pairs * SOFTMAX_FLOPS,
        read_bytes=total(t.num_bytes for t in read),
        write_bytes=total(t.num_bytes for t in call.outputs),
        attention=a,
    )


def _check_bwd(call: OpCall) -> Iterator[str]:
    if {t.rank for t in call.inputs[1:4]} != {4}:
        yield "q, k and v must have the dims [batch, heads, length, head dim]"
        return
    for name, given, grad in zip("qkv", call.inputs[1:4], call.outputs, strict=False):
        yield from same_dims(grad.dims, given.dims, f"gradient of {name}")


def _work_bwd(call: OpCall) -> Work:
    """Five GEMMs (scores again, dV, dP, dQ, dK), of which the first is the kernel's own recomputation."""
    a = attention_shape(call)
    pairs = a.batch * a.heads * a.q_len * a.kv_len
    flops = 2 * (3 * a.qk_dim + 2 * a.v_dim)
    return Work(
        tensor_flops=pairs * flops,
        vector_flops=pairs * SOFTMAX_BACKWARD_FLOPS,
        read_bytes=total(t.num_bytes for t in call.inputs),
        write_bytes=total(t.num_bytes for t in call.outputs),
        model_share=1 - 2 * a.qk_dim / flops,
        attention=a,
    )


def _check_append(call: OpCall) -> Iterator[str]:
    dim = call.attrs_as(KvAppendAttrs).dim
    new, out = call.inputs[-1], call.outputs[0]
    if not 0 <= dim < min(t.rank for t in call.inputs):
        yield f"dim {dim} is not a dim of {new}"
        return
    held = call.inputs[0].dims[dim] if len(call.inputs) == 2 else 0
    want = tuple(as_expr(d) + held if i == dim else as_expr(d) for i, d in enumerate(new.dims))
    yield from same_dims(tuple(as_expr(d) for d in out.dims), want, "the cache after the append")


def _work_append(call: OpCall) -> Work:
    """Only the new tokens move, into the type of the cache; the cache itself is not copied."""
    new, kept = call.inputs[-1], call.outputs[0].dtype
    return Work(read_bytes=new.num_bytes, write_bytes=new.numel * kept.num_bytes)


OPS = (
    OpDef(
        "attention", OpClass.ATTENTION, _work,
        "fused attention; inputs: q, k, v and sinks; outputs: result [batch, length, heads, d_v], log-sum-exp",
        _check, AttentionAttrs, min_inputs=3, max_inputs=4, num_outputs=2,
    ),
    OpDef(
        "attention_bwd", OpClass.ATTENTION, _work_bwd,
        "backward of fused attention; inputs: dO, q, k, v, O, log-sum-exp, sinks; outputs: dQ, dK, dV, dSinks",
        _check_bwd, AttentionAttrs, min_inputs=6, max_inputs=7, num_outputs=None,
    ),
    OpDef(
        "kv_append", OpClass.MEMORY, _work_append,
        "write new keys or values behind a cache; inputs: cache (may be absent), new; output: the longer cache",
        _check_append, KvAppendAttrs, min_inputs=1, max_inputs=2,
    ),
)  # fmt: skip
