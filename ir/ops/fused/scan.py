"""Recurrences along the sequence as one op: state spaces, gated delta rules, linear attention, gated recurrences.

A scan keeps a state S [n, p] a head, which each token decays and adds to, and reads its result off it. Long sequences
run in chunks of c tokens, whose products matrix units do; what is left between chunks is one state each.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...records import dataclass
from ...sizes.expr import Dim, Expr, as_expr, total
from ...types import TensorType
from ..base import ZERO, Attrs, GemmShape, OpCall, OpClass, OpDef, ShardChoice, Work, free, same_dims
from ..index_map import IndexMap, Tensor, lacking, tensor
from ..tensors.pointwise import map_unary
from ..traits import Trait

SELECTIVE, SSD, DELTA, LINEAR, GATED = KINDS = ("selective", "ssd", "delta", "linear", "gated")
STEPWISE = (SELECTIVE, GATED)  # kinds that have no form in chunks of their own
# A score inside a chunk is decayed by exp(a - b): subtract 1, exponential 4, multiply by it and by the step 2.
DECAY_FLOPS = 7
STATE_BYTES = 4  # states between chunks are kept in fp32
# What a serving step leaves behind for the next token, by the op that says so.
KEEP_STATE = "keep_state"


@dataclass(frozen=True, slots=True)
class ScanAttrs(Attrs):
    """`kind` is selective (Mamba), ssd (Mamba-2), delta (gated delta rule), linear (decayed linear attention), gated.

    `chunk` tokens run together; 0 is one step after another, as in decode. `has_state` says that the last input is
    the state to begin with.
    """

    kind: str
    chunk: int = 0
    has_state: bool = False


@dataclass(frozen=True, slots=True)
class ScanShape:
    """The sizes of one scan: `heads` states of [n, p] over batch x length tokens; `groups` of heads share q and k."""

    tokens: Expr
    batch: Expr
    heads: Expr
    groups: Expr
    n: Expr
    p: Expr
    chunk: int

    @property
    def state(self) -> Expr:
        """Elements of the state that a token meets."""
        return self.heads * self.n * self.p

    @property
    def chunks(self) -> Expr:
        """Chunks in all sequences."""
        return self.tokens / self.chunk


def scan_shape(call: OpCall) -> ScanShape:
    """Read the sizes off v [b, L, h, p], the state [b, h, n, p] and whatever q and k [b, L, g, n] there are."""
    attrs = call.attrs_as(ScanAttrs)
    v, others = _operands(call)
    b, length, h, p = (as_expr(d) for d in v.dims)
    n = as_expr(_state_dim(call))
    shared = [as_expr(t.dims[2]) for t in others if t.rank == 4 and as_expr(t.dims[3]) == n]
    return ScanShape(b * length, b, h, shared[0] if shared else h, n, p, attrs.chunk)


def _operands(call: OpCall) -> tuple[TensorType, tuple[TensorType, ...]]:
    """The values, and what else is read but for the state and, in the backward phase, the gradient."""
    first = 0 if call.op == "scan" else 1
    stop = len(call.inputs) - call.attrs_as(ScanAttrs).has_state
    return call.inputs[first], call.inputs[first + 1 : stop]


def _state_dim(call: OpCall) -> Dim:
    if call.op == "scan":
        return call.outputs[1].dims[2]
    if call.attrs_as(ScanAttrs).has_state:
        return call.inputs[-1].dims[2]
    return call.attrs_as(ScanBwdAttrs).state_dim


@dataclass(frozen=True, slots=True)
class ScanBwdAttrs(ScanAttrs):
    """As forward; `state_dim` is n, which no tensor of the backward phase need have."""

    state_dim: Dim = 1


def _check(call: OpCall) -> Iterator[str]:
    attrs = call.attrs_as(ScanAttrs)
    yield from _check_attrs(attrs)
    v, (y, state) = call.inputs[0], call.outputs
    if v.rank != 4 or state.rank != 4:
        yield f"values must be [batch, length, heads, p] and the state [batch, heads, n, p], are {v} and {state}"
        return
    yield from same_dims(y.dims, v.dims, "result and values")
    want = (v.dims[0], v.dims[2], state.dims[2], v.dims[3])
    yield from same_dims(state.dims, want, "state [batch, heads, n, p]")
    if attrs.has_state:
        yield from same_dims(call.inputs[-1].dims, state.dims, "state before and behind")
    yield from _check_others(call, v)


def _check_attrs(attrs: ScanAttrs) -> Iterator[str]:
    if attrs.kind not in KINDS:
        yield f"kind '{attrs.kind}' is none of {', '.join(KINDS)}"
    if attrs.chunk < 0 or (attrs.chunk and attrs.kind in STEPWISE):
        yield f"chunk {attrs.chunk} for kind {attrs.kind}: 0, or, but for {' and '.join(STEPWISE)}, a positive number"


def _check_others(call: OpCall, v: TensorType) -> Iterator[str]:
    for t in _operands(call)[1]:
        if t.rank > 2 and t.dims[:2] != v.dims[:2]:
            yield f"operand {t} does not begin with the batch and length of the values {v}"
        if t.rank in (1, 2) and t.dims[0] != v.dims[2]:
            yield f"parameter {t} does not begin with the heads of the values {v}"


def _check_bwd(call: OpCall) -> Iterator[str]:
    yield from _check_attrs(call.attrs_as(ScanAttrs))
    v, others = _operands(call)
    if v.rank != 4:
        yield f"values must be [batch, length, heads, p], are {v}"
        return
    yield from same_dims(call.inputs[0].dims, v.dims, "gradient of the result")
    for given, grad in zip((v, *others), call.outputs, strict=False):
        yield from same_dims(grad.dims, given.dims, f"gradient of {given}")


def _gates(call: OpCall) -> Expr:
    """Elements of steps, decays and output gates: what has a value for each token and head but is neither q nor k."""
    n = as_expr(_state_dim(call))
    return total(t.numel for t in _operands(call)[1] if t.rank == 3 or (t.rank == 4 and as_expr(t.dims[3]) != n))


# FLOPs of one token and one element of the state, forward and backward, one step after another.
# Decay 1, outer product 2 and readout 2 make 5. Backward: the state again 3, its gradient back through decay and
# readout 3, gradients of q, k, v and of the decay 2 each: 14.
# Selective adds step x A 1, exp 1, step x B x u 2: 9, as its authors count (state-spaces/mamba, issue 110). Backward:
# those again 4, and through exp 1, to A 2 and to the step 1 more than the decay alone: 22.
# The delta rule reads what the state holds under k before it writes: 2 more. Backward: the state again 5, and twice
# each of its three products and decay with a sum: 15.
# A gated recurrence decays and adds: 2; backward the state again 2, the gradient back 1, of the decay 1.
_STEP_FLOPS = {SELECTIVE: (9, 22), SSD: (5, 14), DELTA: (7, 20), LINEAR: (5, 14), GATED: (2, 4)}


def _work(call: OpCall) -> Work:
    """Operands read once, results written once; in chunks, states between them written and read in fp32."""
    kind, s = call.attrs_as(ScanAttrs).kind, scan_shape(call)
    read, write = (total(t.num_bytes for t in ts) for ts in (call.inputs, call.outputs))
    if not s.chunk:
        flops = s.tokens * s.state * _STEP_FLOPS[kind][0] + _gates(call)
        return Work(vector_flops=flops, read_bytes=read, write_bytes=write)
    gemms, between = _products(kind, s), s.chunks * s.state * STATE_BYTES
    # T = (I + tril(K K^T))^-1 of the delta rule: c^3 / 3 FLOPs a chunk, those of inverting a triangular matrix.
    solve = s.tokens * s.heads * (s.chunk**2 / 3) if kind == DELTA else ZERO
    return Work(
        tensor_flops=_flops(gemms) + solve,
        vector_flops=_decays(kind, s) + s.chunks * s.state * 2 + _gates(call),
        read_bytes=read + between,
        write_bytes=write + between,
        gemms=gemms,
    )


def _work_bwd(call: OpCall) -> Work:
    """Twice the products of forward, behind those whose results it makes again: scores, and the states of chunks.

    In Mamba-2's kernels (arXiv 2405.21060, section 6 and its code) and those of the delta rule (arXiv 2412.06464) only
    operands are kept. `model_share` is the part that is no such repetition.
    """
    kind, s = call.attrs_as(ScanAttrs).kind, scan_shape(call)
    read, write = (total(t.num_bytes for t in ts) for ts in (call.inputs, call.outputs))
    if not s.chunk:
        flops = s.tokens * s.state * _STEP_FLOPS[kind][1] + _gates(call) * 2
        return Work(vector_flops=flops, read_bytes=read, write_bytes=write)
    forward, again = _products(kind, s), _repeated(kind, s)
    between = s.chunks * s.state * STATE_BYTES * 2
    # The gradient of an inverse, -T^T dT T^T: two products of c x c matrices a chunk.
    new = _flops(forward) * 2 + (s.tokens * s.heads * (4 * s.chunk**2) if kind == DELTA else ZERO)
    repeated = _flops(again)
    return Work(
        tensor_flops=new + repeated,
        vector_flops=_decays(kind, s) * 2 + s.chunks * s.state * 4 + _gates(call) * 2,
        read_bytes=read + between,
        write_bytes=write + between,
        model_share=_share(new, repeated),
        gemms=(
            *again,
            *(g for f in forward for g in (GemmShape(f.batch, f.m, f.k, f.n), GemmShape(f.batch, f.k, f.n, f.m))),
        ),
    )


def _products(kind: str, s: ScanShape) -> tuple[GemmShape, ...]:
    """The products of the form in chunks; per token and head, c the chunk.

    ssd (arXiv 2405.21060, listing 1): scores C B^T 2 c n, once a group; scores times values 2 c p; states B^T V 2 n p;
    readout C S 2 n p. linear (arXiv 2307.14995, 2312.06635): the same with scores a head.
    delta (arXiv 2406.06484, 2412.06464) adds K K^T 2 c n, W = T K 2 c n, U = T V 2 c p and U - W S 2 n p.
    """
    scores = _inside(s, s.groups if kind == SSD else s.heads, s.n, True)
    common = (scores, _inside(s, s.heads, s.p, False), _states(s), _readout(s))
    if kind != DELTA:
        return common
    keys, solved = _inside(s, s.heads, s.n, True), _inside(s, s.heads, s.n, False)
    return (*common, keys, solved, _inside(s, s.heads, s.p, False), _readout(s))


def _repeated(kind: str, s: ScanShape) -> tuple[GemmShape, ...]:
    """What backward makes again: scores and states; of the delta rule W, U and U - W S as well, but not T."""
    scores = _inside(s, s.groups if kind == SSD else s.heads, s.n, True)
    if kind != DELTA:
        return (scores, _states(s))
    return (scores, _states(s), _inside(s, s.heads, s.n, False), _inside(s, s.heads, s.p, False), _readout(s))


def _inside(s: ScanShape, heads: Expr, width: Expr, scores: bool) -> GemmShape:
    """A product inside of chunks: scores [c, width] x [width, c], or scores times rows [c, c] x [c, width]."""
    c = as_expr(s.chunk)
    return GemmShape(s.chunks * heads, c, c, width) if scores else GemmShape(s.chunks * heads, c, width, c)


def _states(s: ScanShape) -> GemmShape:
    return GemmShape(s.chunks * s.heads, s.n, s.p, as_expr(s.chunk))


def _readout(s: ScanShape) -> GemmShape:
    return GemmShape(s.chunks * s.heads, as_expr(s.chunk), s.p, s.n)


def _flops(gemms: tuple[GemmShape, ...]) -> Expr:
    return total(g.batch * g.m * g.n * g.k * 2 for g in gemms)


def _decays(kind: str, s: ScanShape) -> Expr:
    """Decays of the scores of a chunk, in each of its matrices of scores: the delta rule has two."""
    return s.tokens * s.heads * (s.chunk * DECAY_FLOPS * (2 if kind == DELTA else 1))


def _share(new: Expr, repeated: Expr) -> float:
    """The part of new work, which no size that is open takes part in: all terms grow alike with the tokens."""
    ones = dict.fromkeys(new.symbols | repeated.symbols, 1.0)
    first, second = float(new.evaluate(ones)), float(repeated.evaluate(ones))
    return first / (first + second)


def _check_keep(call: OpCall) -> Iterator[str]:
    yield from same_dims(call.outputs[0].dims, call.inputs[0].dims, "what is kept")


def _index_map(call: OpCall, _axis: str) -> IndexMap:
    """Batch and heads; along the sequence each step needs the one before."""
    operands = _factors(call, 0)
    return IndexMap(operands, (operands[0], _STATE))


def _index_map_bwd(call: OpCall, _axis: str) -> IndexMap:
    """As forward; gradients are summed over what their operand does not have. Linear in the gradient."""
    operands = _factors(call, 1)
    outputs = operands[: len(call.outputs)]
    return IndexMap((operands[0], *operands), outputs, lacking(outputs, "bh"), linear=((0,),))


_STATE = tensor(("b", "h", None, None))


def _factors(call: OpCall, first: int) -> tuple[Tensor, ...]:
    """Return the factors of operands; groups of heads that share an operand are cut with the heads."""
    given, has_state = call.inputs[first:], call.attrs_as(ScanAttrs).has_state
    heads = given[0].dims[2]

    def factors(kind: TensorType) -> Tensor:
        if kind.rank < 3:
            return tensor(("h", *(None,) * (kind.rank - 1)))
        head = None if kind.dims[2] == 1 and heads != 1 else "h"
        return tensor(("b", "s!", head, *(None,) * (kind.rank - 3)))

    return (*map(factors, given[: len(given) - has_state]), *(_STATE,) * has_state)


OPS = (
    OpDef(
        "scan", OpClass.SCAN, _work,
        "recurrence along the sequence; inputs: v, then q, k, gates and parameters, and the state before; outputs: "
        "result [batch, length, heads, p], state [batch, heads, n, p]",
        _check, ScanAttrs, min_inputs=2, max_inputs=None, num_outputs=2, index_map=_index_map,
        shard=ShardChoice(instead=("s", "h")),
    ),
    OpDef(
        "scan_bwd", OpClass.SCAN, _work_bwd,
        "backward of a scan; inputs: dResult, then those of the scan; outputs: their gradients, but for the state",
        _check_bwd, ScanBwdAttrs, min_inputs=3, max_inputs=None, num_outputs=None, traits=frozenset({Trait.BACKWARD}),
        index_map=_index_map_bwd,
        shard=ShardChoice(follows=(0, 1), instead=("s", "h")),
    ),
    OpDef(
        KEEP_STATE, OpClass.FREE, free,
        "a state that stays for the next token: what the kernel before wrote is part of the cache from here on",
        _check_keep, max_inputs=1, traits=frozenset({Trait.SAME_VALUES, Trait.WRITES_CACHE}), index_map=map_unary,
    ),
)  # fmt: skip
