"""What a graph spells out in small operators, as the one operator it is: RMS norms and rotary embedding.

Looked at while a program runs again: when the last operator of a spelling has run, its result is made once more by the
semantic operator, from the same sources. The small operators are then read by nobody and fall away, forward and
backward.
"""

from __future__ import annotations

from torch import Tensor, fx

from ...ir.graph import Role
from .. import semantic
from ..fx_import import op_name
from ..record import Recorder


def respelled(result: object, recorder: Recorder) -> object:
    """Return the result of a semantic operator in place of one that was spelled out, else the result itself."""
    if not isinstance(result, Tensor) or not result.dtype.is_floating_point or result.dim() < 2:
        return result
    node = recorder.node_of(result)
    made = _rms_norm(node, result) if _is(node, "mul", "_to_copy") else None
    if made is None and _is(node, "add") and result.dim() == 4:
        made = _rope(node, result)
    return result if made is None else made


def _is(node: object, *names: str) -> bool:
    return isinstance(node, fx.Node) and op_name(node) in [f"aten.{n}" for n in names]


def _args(node: fx.Node) -> tuple[object, object]:
    return (node.args[0], node.args[1]) if len(node.args) > 1 else (None, None)


def _uncast(node: object) -> object:
    while _is(node, "_to_copy") and isinstance(node, fx.Node):
        node = node.args[0]
    return node


def _rms_norm(node: fx.Node, result: Tensor) -> Tensor | None:
    """`weight * cast(x * rsqrt(mean(x^2) + eps))`, or the same cast at the end, with x in fp32 or not."""
    scaled = _uncast(node)
    if not isinstance(scaled, fx.Node) or not _is(scaled, "mul"):
        return None
    for weight, normed in (_args(scaled), _args(scaled)[::-1]):
        x, w = _normalised(_uncast(normed)), _weight(weight)
        if x is not None and w is not None and x.dtype is result.dtype and x.shape[-1] == w.shape[0]:
            return semantic.rms_norm(x, w)[0]
    return None


def _weight(node: object) -> Tensor | None:
    """Return the parameter of one dim that a factor is, or is one more than."""
    node = _uncast(node)
    if _is(node, "add") and isinstance(node, fx.Node) and 1.0 in node.args:
        node = _uncast(next(a for a in node.args if isinstance(a, fx.Node)))
    if not isinstance(node, fx.Node) or node.meta.get("role") is not Role.PARAM:
        return None
    tensor: Tensor = node.meta["val"]
    return tensor if tensor.dim() == 1 else None


def _normalised(node: object) -> Tensor | None:
    """Return x where the node is `x * rsqrt(mean(x^2) + eps)`."""
    if not isinstance(node, fx.Node) or not _is(node, "mul"):
        return None
    for x, factor in (_args(node), _args(node)[::-1]):
        if isinstance(x, fx.Node) and _is_inverse_root_mean_square(factor, x):
            source = _uncast(x)
            assert isinstance(source, fx.Node)
            tensor: Tensor = source.meta["val"]
            return tensor
    return None


def _is_inverse_root_mean_square(node: object, x: fx.Node) -> bool:
    steps: list[fx.Node] = []
    while isinstance(node, fx.Node) and len(steps) < 4:
        steps.append(node)
        node = node.args[0] if node.args else None
    if [n for n, name in zip(steps, ("rsqrt", "add", "mean"), strict=False) if not _is(n, name)] or len(steps) < 4:
        return False
    square = steps[3]
    by_power = _is(square, "pow") and square.args == (x, 2)
    return by_power or (_is(square, "mul") and square.args == (x, x))


def _rope(node: fx.Node, result: Tensor) -> Tensor | None:
    """`x * cos + cat(-x2, x1) * sin` for x = (x1, x2), over x [b, h, s, d] and tables [b, 1, s, d]."""
    for plain, turned in (_args(node), _args(node)[::-1]):
        if (
            not isinstance(plain, fx.Node)
            or not isinstance(turned, fx.Node)
            or not (_is(plain, "mul") and _is(turned, "mul"))
        ):
            return None
        for rotated, sin in (_args(turned), _args(turned)[::-1]):
            x = _half_turned(rotated)
            if x is not None and isinstance(sin, fx.Node) and x in plain.args:
                cos = next((a for a in plain.args if a is not x), None)
                return _roped(x, cos, sin, result)
    return None


def _roped(x: fx.Node, cos: object, sin: fx.Node, result: Tensor) -> Tensor | None:
    tensor: Tensor = x.meta["val"]
    tables = [n.meta["val"] for n in (cos, sin) if isinstance(n, fx.Node)]
    if len(tables) < 2 or tensor.dtype is not result.dtype or any(t.dim() != 4 or t.shape[1] != 1 for t in tables):
        return None
    return semantic.rope(tensor, *tables)


def _half_turned(node: object) -> fx.Node | None:
    """Return x where the node is `cat(-x2, x1)` for its halves along the last dim."""
    if not isinstance(node, fx.Node) or not _is(node, "cat"):
        return None
    pieces = node.args[0]
    if not isinstance(pieces, list | tuple) or len(pieces) != 2 or not _is(pieces[0], "neg"):
        return None
    assert isinstance(pieces[0], fx.Node)
    second, first = _half(pieces[0].args[0]), _half(pieces[1])
    if second is None or first is None or second[0] is not first[0]:
        return None
    return first[0] if (first[1], second[1]) == (0, 1) else None


def _half(node: object) -> tuple[fx.Node, int] | None:
    """Return what a node is a half of along the last dim, and which half."""
    if not isinstance(node, fx.Node):
        return None
    source = node.args[0] if node.args else None
    if _is(source, "split", "split_with_sizes", "chunk") and isinstance(source, fx.Node):
        whole, index = source.args[0], node.args[1]
        return (whole, int(str(index))) if isinstance(whole, fx.Node) else None
    if not _is(node, "slice") or not isinstance(source, fx.Node):
        return None
    size, whole_size = node.meta["val"].shape[-1], source.meta["val"].shape[-1]
    if not isinstance(size, int) or size * 2 != whole_size or node.args[1] not in (-1, node.meta["val"].dim() - 1):
        return None
    return source, 0 if node.args[2] in (0, None) else 1


__all__ = ["respelled"]
