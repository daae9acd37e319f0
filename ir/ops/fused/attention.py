"""Fused attention, forward and backward, and the append to a KV cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...placement import CP
from ...records import dataclass
from ...sizes.expr import Dim, Expr, as_expr, total
from ...types import TensorType
from ..base import AttentionShape, Attrs, OpCall, OpClass, OpDef, ShardChoice, Work, makes, same_dims
from ..index_map import IndexMap, Tensor, lacking, numbered, tensor
from ..traits import Trait

SOFTMAX_FLOPS = 7  # a score: exponential 4, subtract 1, scale 1, sum 1 (models of the softmax in the literature)
SOFTMAX_BACKWARD_FLOPS = 8
BIAS_FLOPS = 1  # a score: the addition; its gradient is the scores' own, summed where the bias is broadcast
SOFTCAP_FLOPS = 10  # a score: c tanh(s / c) is a tanh (8, as the op `tanh` counts it) and two products
SOFTCAP_BACKWARD_FLOPS = 13  # the same again, and g (1 - t^2)
_FORWARD, _BACKWARD = 3, 6  # inputs that every call has
_VALUES = 2  # their place among the inputs


@dataclass(frozen=True, slots=True)
class AttentionAttrs(Attrs):
    """`causal` masks the future, `window` > 0 keeps only that many keys, `sinks` adds a learned score a head.

    `balanced` says that the queries are one rank's even share of all positions (zig-zag), not the last ones. `latent`
    says that values are part of the keys: one cached tensor is both, and is read once. `bias` adds a tensor
    [batch or 1, heads or 1, queries or 1, keys] to the scores. `softcap` > 0 bends scores to softcap tanh(s / softcap).
    `keys` > 0 lets each query read only that many keys, whose places come as ids [batch, queries, keys].
    """

    causal: bool = True
    window: int = 0
    sinks: bool = False
    dropout: float = 0.0
    balanced: bool = False
    latent: bool = False
    bias: bool = False
    softcap: float = 0.0
    keys: int = 0

    @property
    def extras(self) -> tuple[str, ...]:
        """Inputs behind those that every call has, in their order."""
        given = (("sinks", self.sinks), ("bias", self.bias), ("ids", self.keys > 0))
        return tuple(name for name, is_given in given if is_given)


@dataclass(frozen=True, slots=True)
class KvAppendAttrs(Attrs):
    """`dim` is the sequence dim of the cache."""

    dim: int = 2


def extra_inputs(op: str, attrs: AttentionAttrs, inputs: Sequence[int]) -> Mapping[str, int]:
    """Return sinks, bias and ids among the inputs of `attention` or `attention_bwd`, those that there are.

    >>> dict(extra_inputs("attention", AttentionAttrs(bias=True), (5, 6, 7, 9)))
    {'bias': 9}
    """
    return dict(zip(attrs.extras, inputs[_FORWARD if op == "attention" else _BACKWARD :], strict=True))


def attention_shape(call: OpCall) -> AttentionShape:
    """Read the sizes off q [batch, heads, q_len, d], k [batch, kv_heads, kv_len, d], v [.., d_v]."""
    forward = call.op == "attention"
    q, k, v = call.inputs[:3] if forward else call.inputs[1:4]
    attrs = call.attrs_as(AttentionAttrs)
    # Bytes of what is read beside queries, keys and values, and of its gradients; a few sinks are no traffic.
    first, grads = (_FORWARD, 0) if call.op == "attention" else (_BACKWARD, 3)
    given = zip(attrs.extras, call.inputs[first:], strict=False)
    read = total(t.num_bytes for name, t in given if name != "sinks")
    extra_bytes = read + total(t.num_bytes for t in call.outputs[grads + attrs.sinks :]) if grads else read
    return AttentionShape(
        batch=as_expr(q.dims[0]), heads=as_expr(q.dims[1]), kv_heads=as_expr(k.dims[1]),
        q_len=as_expr(q.dims[2]), kv_len=as_expr(k.dims[2]), qk_dim=_fixed(q.dims[3]), v_dim=_fixed(v.dims[3]),
        causal=attrs.causal, window=attrs.window, balanced=attrs.balanced, num_gemms=2 if forward else 5,
        latent=attrs.latent, keys=attrs.keys, softcap=attrs.softcap > 0, extra_bytes=extra_bytes,
    )  # fmt: skip


def _fixed(dim: int | Expr) -> int:
    if not isinstance(dim, int):
        raise TypeError(f"the head dim of attention must be a number, is '{dim}'")
    return dim


def _result(call: OpCall) -> tuple[Dim, ...]:
    q, _, v = (t.dims for t in call.inputs[:3])
    return q[0], q[2], q[1], v[3]


@makes(_result)
def _check(call: OpCall) -> Iterator[str]:
    q, k, v = call.inputs[:3]
    if {q.rank, k.rank, v.rank} != {4}:
        yield "q, k and v must have the dims [batch, heads, length, head dim]"
        return
    yield from same_dims((*k.dims[:3],), (*v.dims[:3],), "batch, heads and length of k and v")
    yield from same_dims((q.dims[0], q.dims[3]), (k.dims[0], k.dims[3]), "batch and head dim of q and k")
    yield from same_dims(call.outputs[0].dims, _result(call), "result [batch, length, heads, head dim]")
    yield from same_dims(call.outputs[1].dims, q.dims[:3], "log-sum-exp [batch, heads, length]")
    yield from _check_extras(call, q, k, call.inputs[_FORWARD:])


def _check_extras(call: OpCall, q: TensorType, k: TensorType, extras: Sequence[TensorType]) -> Iterator[str]:
    attrs = call.attrs_as(AttentionAttrs)
    if len(extras) != len(attrs.extras):
        yield f"takes {' and '.join(attrs.extras) or 'nothing'} behind its tensors, has {len(extras)} inputs there"
        return
    given = dict(zip(attrs.extras, extras, strict=True))
    if "bias" in given:
        yield from _check_bias(given["bias"].dims, (*q.dims[:3], k.dims[2]))
    if "ids" in given:
        yield from same_dims(given["ids"].dims, (q.dims[0], q.dims[2], attrs.keys), "ids [batch, queries, keys]")


def _check_bias(given: tuple[Dim, ...], scores: tuple[Dim, ...]) -> Iterator[str]:
    fits = len(given) == len(scores) and all(d in (1, s) for d, s in zip(given, scores, strict=True))
    if not fits:
        yield from same_dims(given, scores, "bias, or 1 where it is the same for all, and scores")


def _pairs(a: AttentionShape) -> Expr:
    return a.batch * a.heads * a.q_len * a.kv_len


def _work(call: OpCall) -> Work:
    """Flash attention: 2 GEMMs over all pairs; every input read once, result and statistics written once."""
    a, attrs = attention_shape(call), call.attrs_as(AttentionAttrs)
    read = (t for i, t in enumerate(call.inputs) if not (a.latent and i == _VALUES))
    pairs = _pairs(a)
    return Work(
        tensor_flops=pairs * 2 * (a.qk_dim + a.v_dim),
        vector_flops=pairs * (SOFTMAX_FLOPS + BIAS_FLOPS * attrs.bias + SOFTCAP_FLOPS * a.softcap),
        read_bytes=total(t.num_bytes for t in read),
        write_bytes=total(t.num_bytes for t in call.outputs),
        attention=a,
    )


def _check_bwd(call: OpCall) -> Iterator[str]:
    if {t.rank for t in call.inputs[1:4]} != {4}:
        yield "q, k and v must have the dims [batch, heads, length, head dim]"
        return
    attrs = call.attrs_as(AttentionAttrs)
    yield from _check_extras(call, call.inputs[1], call.inputs[2], call.inputs[_BACKWARD:])
    learned = ("sinks",) * attrs.sinks + ("bias",) * attrs.bias
    given = (*call.inputs[1:4], *call.inputs[_BACKWARD:])
    for name, source, grad in zip((*"qkv", *learned), given, call.outputs, strict=False):
        yield from same_dims(grad.dims, source.dims, f"gradient of {name}")


def _work_bwd(call: OpCall) -> Work:
    """Five GEMMs (scores again, dV, dP, dQ, dK), of which the first is the kernel's own recomputation."""
    a, attrs = attention_shape(call), call.attrs_as(AttentionAttrs)
    pairs = _pairs(a)
    flops = 2 * (3 * a.qk_dim + 2 * a.v_dim)
    sums = BIAS_FLOPS * (len(call.outputs) - 3 - attrs.sinks)
    return Work(
        tensor_flops=pairs * flops,
        vector_flops=pairs
        * (SOFTMAX_BACKWARD_FLOPS + BIAS_FLOPS * attrs.bias + sums + SOFTCAP_BACKWARD_FLOPS * a.softcap),
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


def _index_map(call: OpCall, axis: str) -> IndexMap:
    """Batch, heads, and queries where their positions do not count or are told; keys are summed in a softmax."""
    q, k, out, lse = _factors(call, 0)
    return IndexMap((q, k, k, *_extras(call, 3)), (out, lse), only=_only(call, axis), exact=True)


def _index_map_bwd(call: OpCall, axis: str) -> IndexMap:
    """As forward; gradients are summed over what their tensor does not have. Linear in dO."""
    q, k, out, lse = _factors(call, 1)
    extras = _extras(call, 6)
    outputs = (q, k, k, *extras[: len(call.outputs) - 3])
    inputs = (out, q, k, k, out, lse, *extras)
    return IndexMap(inputs, outputs, lacking(outputs, "bhs"), linear=((0,),), only=_only(call, axis), exact=True)


def _only(call: OpCall, axis: str) -> str:
    """Queries distributed evenly over `cp` lie there in shards and in no other way."""
    return "s" if axis == CP and call.attrs_as(AttentionAttrs).balanced else ""


def _factors(call: OpCall, first: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the factors of queries, keys, result and statistics."""
    attrs, (q, k) = call.attrs_as(AttentionAttrs), call.inputs[first : first + 2]
    s = "s" if attrs.balanced or not (attrs.causal or attrs.window) else None
    heads = None if k.dims[1] == 1 and q.dims[1] != 1 else "h"
    words = ("b", "h", s, None), ("b", heads, None, None), ("b", s, "h", None), ("b", "h", s)
    queries, keys, result, statistics = map(tensor, words)
    return queries, keys, result, statistics


def _extras(call: OpCall, first: int) -> tuple[Tensor, ...]:
    words: list[Tensor] = []
    for name, kind in zip(call.attrs_as(AttentionAttrs).extras, call.inputs[first:], strict=False):
        if name == "bias":
            words.append(tensor(f if d != 1 else None for f, d in zip(("b", "h", "s", None), kind.dims, strict=True)))
        else:
            words.append(tensor(("h",) if name == "sinks" else ("b", "s", None)))
    return tuple(words)


def _map_append(call: OpCall, _axis: str) -> IndexMap:
    """All dims but that along which the cache grows; that one too where there is no cache yet."""
    grows = (call.attrs_as(KvAppendAttrs).dim,) if len(call.inputs) > 1 else ()
    alike = tensor(numbered(call.outputs[0].rank, *grows))
    return IndexMap((alike,) * len(call.inputs), (alike,))


OPS = (
    OpDef(
        "attention", OpClass.ATTENTION, _work,
        "fused attention; inputs: q, k, v, then sinks, bias and ids of keys where the attributes say so; outputs: "
        "result [batch, length, heads, d_v], log-sum-exp",
        _check, AttentionAttrs, min_inputs=3, max_inputs=6, num_outputs=2, traits=frozenset({Trait.ATTENDS}),
        index_map=_index_map, by_axis=True,
        shard=ShardChoice(instead=("s", "h")),
    ),
    OpDef(
        "attention_bwd", OpClass.ATTENTION, _work_bwd,
        "backward of fused attention; inputs: dO, q, k, v, O, log-sum-exp, then as forward; outputs: dQ, dK, dV, "
        "dSinks, and dBias where the bias is learned",
        _check_bwd, AttentionAttrs, min_inputs=6, max_inputs=9, num_outputs=None,
        traits=frozenset({Trait.ATTENDS, Trait.BACKWARD}), index_map=_index_map_bwd, by_axis=True,
        shard=ShardChoice(names=(1, 2, 3), follows=(0, 1), instead=("s", "h")),
    ),
    OpDef(
        "kv_append", OpClass.MEMORY, _work_append,
        "write new keys or values behind a cache; inputs: cache (may be absent), new; output: the longer cache",
        _check_append, KvAppendAttrs, min_inputs=1, max_inputs=2, traits=frozenset({Trait.WRITES_CACHE, Trait.APPENDS}),
        index_map=_map_append,
        shard=ShardChoice(names=(0,)),
    ),
)  # fmt: skip
