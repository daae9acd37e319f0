"""Norms in single steps to `norm`: x / sqrt(mean(x^2) + eps) times a weight, and the same of x less its mean."""

from __future__ import annotations

from ...ir.graph import Node
from ...ir.ops import Trait, has
from ...ir.ops.tensors.normalize import NormAttrs, ReduceAttrs
from ...ir.records import dataclass
from ...ir.types import DType, TensorType
from .rewrite import UNCHANGED, Draft, Look, fn_of


@dataclass(frozen=True, slots=True)
class Core:
    """What is normalised, how, and the value that holds the result before weight and bias."""

    x: int
    kind: str
    out: int
    inside: tuple[Node, ...]


def scaled_norm(look: Look, node: Node) -> Draft | None:
    """Find a norm with weight, and with bias for the layer norm, at the last of its steps."""
    bias = _affine(look, node, "add")
    if bias is not None:
        scale = look.made_by(bias[0], "mul")
        weight = None if scale is None else _affine(look, scale, "mul")
        if scale is not None and weight is not None and (core := _core(look, weight[0])) and core.kind == "layer":
            return _norm(look, node, core, (weight[1], bias[1]), (scale,))
    weight = _affine(look, node, "mul")
    core = None if weight is None else _core(look, weight[0])
    if weight is None or core is None or _gets_bias(look, node, core):
        return None
    return _norm(look, node, core, (weight[1],), ())


def bare_norm(look: Look, node: Node) -> Draft | None:
    """Find a norm without a weight."""
    core = _core(look, node.key) if fn_of(node) in ("mul", "div") else None
    return None if core is None else _norm(look, node, core, (), ())


def _affine(look: Look, node: Node, fn: str) -> tuple[int, int] | None:
    """Return rows and the vector they are multiplied with, or that is added: one number an entry of the last dim."""
    if fn_of(node) != fn or len(node.inputs) != 2:
        return None
    a, b = node.inputs
    rank = look.value(node.key).type.rank
    for rows, vector in ((a, b), (b, a)):
        base = _vector(look, vector)
        if base is not None and rank > 1 and look.value(rows).type.rank == rank:
            return look.base(rows), base
    return None


def _vector(look: Look, ident: int) -> int | None:
    """Follow a weight back through casts and an added one; None when it is no vector."""
    while True:
        ident = look.base(ident)
        shifted = look.made_by(ident, "add")
        if shifted is None or len(look.operands(shifted)) != 1:
            break
        (ident,) = look.operands(shifted)
    return ident if look.value(ident).type.rank == 1 and look.producer.get(ident) is None else None


def _gets_bias(look: Look, node: Node, core: Core) -> bool:
    """Whether the step behind the weight adds a bias: then the norm ends there."""
    reader = look.sole_reader(node.key)
    while reader is not None and has(reader, *UNCHANGED):
        reader = look.sole_reader(reader.key)
    return core.kind == "layer" and reader is not None and _affine(look, reader, "add") is not None


def _core(look: Look, ident: int) -> Core | None:
    """Return what x / sqrt(mean(x^2) + eps) normalises, spelled with a product or a quotient."""
    node = look.made_by(ident, "mul", "div")
    if node is None or len(node.inputs) != 2:
        return None
    a, b = node.inputs
    for rows, root in ((a, b), (b, a)) if fn_of(node) == "mul" else ((a, b),):
        square_root = _root(look, root, inverse=fn_of(node) == "mul")
        if square_root is not None:
            under, inside = square_root
            found = _variance(look, under, rows)
            if found is not None:
                x, kind, more = found
                return Core(x, kind, ident, (node, *inside, *more))
    return None


def _root(look: Look, ident: int, inverse: bool) -> tuple[int, tuple[Node, ...]] | None:
    """Return what stands under the root, eps taken off, and the nodes of the root."""
    node = look.made_by(look.base(ident), *(("rsqrt", "pow", "div", "reciprocal") if inverse else ("sqrt", "pow")))
    if node is None:
        return None
    nodes: tuple[Node, ...] = (node,)
    given = look.operands(node)
    if fn_of(node) in ("div", "reciprocal"):
        inner = look.made_by(given[0], "sqrt") if len(given) == 1 and _inverts(look, node) else None
        if inner is None:
            return None
        nodes, given = (node, inner), look.operands(inner)
    if len(given) != 1:
        return None
    eps = look.made_by(given[0], "add")
    if eps is None or len(look.operands(eps)) != 1:
        return given[0], nodes
    return look.operands(eps)[0], (*nodes, eps)


def _inverts(look: Look, node: Node) -> bool:
    """Whether the one operand is divided by, not divided."""
    return fn_of(node) == "reciprocal" or (len(node.inputs) == 2 and look.is_number(node.inputs[0]))


def _variance(look: Look, ident: int, rows: int) -> tuple[int, str, tuple[Node, ...]] | None:
    """Return x, the kind of norm and the nodes when a value is the mean square of `rows` (less their mean)."""
    mean = _over_last(look, ident, "mean", "var")
    if mean is None:
        return None
    source = mean.inputs[0]
    centred = _centred(look, rows)
    if isinstance(mean.attrs, ReduceAttrs) and mean.attrs.fn == "var":
        same = centred is not None and look.base(source) == centred[0]
        return (centred[0], "layer", (mean, *centred[1])) if centred is not None and same else None
    squared = _squared(look, source)
    if squared is None:
        return None
    base, square = squared
    if centred is not None:
        again = _centred(look, base)
        if again is not None and again[0] == centred[0]:
            return centred[0], "layer", (mean, square, *centred[1], *again[1])
    return (look.base(rows), "rms", (mean, square)) if look.base(base) == look.base(rows) else None


def _over_last(look: Look, ident: int, *fns: str) -> Node | None:
    node = look.made_by_op(look.base(ident), Trait.REDUCES)
    if node is None or not isinstance(node.attrs, ReduceAttrs) or node.attrs.fn not in fns:
        return None
    last = look.value(node.inputs[0]).type.rank - 1
    return node if node.attrs.dims == (last,) else None


def _squared(look: Look, ident: int) -> tuple[int, Node] | None:
    """Return x of x^2: a power, a square, or a product with itself."""
    node = look.made_by(look.base(ident), "pow", "mul", "square")
    if node is None:
        return None
    given = set(look.operands(node))
    if fn_of(node) == "pow" and look.number(node) not in (None, 2.0):
        return None
    is_square = fn_of(node) in ("pow", "square") or len(node.inputs) == 2
    return (given.pop(), node) if len(given) == 1 and is_square else None


def _centred(look: Look, ident: int) -> tuple[int, tuple[Node, ...]] | None:
    """Return x of x - mean(x), and the two nodes."""
    node = look.made_by(look.base(ident), "sub")
    if node is None or len(node.inputs) != 2:
        return None
    x, mean = node.inputs
    found = _over_last(look, mean, "mean")
    if found is None or look.base(found.inputs[0]) != look.base(x):
        return None
    return look.base(x), (node, found)


def _norm(look: Look, node: Node, core: Core, weights: tuple[int, ...], more: tuple[Node, ...]) -> Draft | None:
    root = look.ending(node, look.value(core.x).type.dtype)
    casts = () if root is node else (node,)
    if not look.is_closed((*core.inside, *more, *casts), root):
        return None
    draft = Draft(look, root)
    x = look.value(core.x).type
    row = x.with_dims((*x.dims[:-1], 1))
    # As the recorder has them: fp32 of an rms norm, of a layer norm in the type of x.
    statistics = [TensorType(row.dims, DType.FP32)] if core.kind == "rms" else [row, row]
    draft.add("norm", (core.x, *weights), [look.value(root.key).type, *statistics], NormAttrs(core.kind))
    return draft
