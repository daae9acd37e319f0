"""What a mask of attention means: the operators that made it are run for real, at a small size, and looked at."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, fx

from ...ir.graph import Role
from ...ir.records import dataclass
from ...ir.sizes.expr import Expr
from ..record.adapter import undisturbed
from .targets import is_checked

_PROBE = 7  # a window this long is seen at every example size
_HIDDEN = -1e4  # additive masks put at least this onto what must not be seen
_MOST_ELEMENTS = 1 << 26
_LARGEST_CONSTANT = 1 << 31


@dataclass(frozen=True, slots=True)
class ReplayMask:
    """What may be seen: all, or (`causal`) the past only, of it the last `window` keys where that is not 0."""

    causal: bool
    window: int = 0


def meaning_of(mask: fx.Node, hints: Mapping[str, int]) -> ReplayMask | None:
    """Return what a recorded mask means; None when it depends on data or is no band along the diagonal.

    Inputs that mark padding are taken as all ones, positions as counting up. A window longer than the example size
    shows when the constant that sets it is replaced by a short one.
    """
    steps = list(_ancestors(mask))
    if any(not _is_plain(n) for n in steps):
        return None
    found = _seen(steps, hints, None, 0)
    if found is None or not found.causal or found.window:
        return found
    longest = max(hints.values())
    for constant in sorted({c for n in steps for c in _constants(n) if longest <= c < _LARGEST_CONSTANT}):
        probed = _seen(steps, hints, constant, _PROBE)
        if probed is not None and probed.window:
            return ReplayMask(True, constant + probed.window - _PROBE)
    return found


def _ancestors(node: fx.Node) -> Iterator[fx.Node]:
    needed, stack = {node}, [node]
    while stack:
        for source in stack.pop().all_input_nodes:
            if source not in needed:
                needed.add(source)
                stack.append(source)
    return (n for n in node.graph.nodes if n in needed)


def _is_plain(node: fx.Node) -> bool:
    """Whether a node can be run for real: a checked operator, or an input that stands for padding or positions."""
    if node.op != "placeholder":
        return is_checked(node.target)
    return node.meta.get("role") is Role.INPUT and not node.meta["val"].dtype.is_floating_point


def _constants(node: fx.Node) -> Iterator[int]:
    for arg in (*node.args, *node.kwargs.values()):
        for a in arg if isinstance(arg, list | tuple) else (arg,):
            if isinstance(a, int) and not isinstance(a, bool):
                yield abs(a)


def _seen(steps: list[fx.Node], hints: Mapping[str, int], constant: int | None, instead: int) -> ReplayMask | None:
    def value(arg: object) -> object:
        if isinstance(arg, fx.Node):
            return made[arg]
        if isinstance(arg, list | tuple):
            return [value(a) for a in arg]
        if isinstance(arg, Expr):
            return int(float(str(arg.evaluate(dict(hints)))))
        if isinstance(arg, int) and not isinstance(arg, bool) and constant is not None and abs(arg) == constant:
            return instead if arg > 0 else -instead
        return arg

    made: dict[fx.Node, object] = {}
    with undisturbed():
        for node in steps:
            if node.op == "placeholder":
                made[node] = _example(node, hints)
                continue
            if _num_elements(node.meta.get("val")) > _MOST_ELEMENTS:
                return None
            assert callable(node.target)
            func: Callable[..., object] = node.target
            try:
                made[node] = func(*(value(a) for a in node.args), **{k: value(v) for k, v in node.kwargs.items()})
            except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
                return None
            if _num_elements(made[node]) > _MOST_ELEMENTS:
                return None
        last = made[steps[-1]]
        return _band(last) if isinstance(last, Tensor) else None


def _num_elements(made: object) -> int:
    """The size of a tensor, of a recorded one at the example sizes; 0 of anything else."""
    if not isinstance(made, Tensor):
        return 0
    return math.prod(s if isinstance(s, int) else int(s.node.hint or 0) for s in made.shape)


def _example(node: fx.Node, hints: Mapping[str, int]) -> Tensor:
    tensor: Tensor = node.meta["val"]
    sizes = [s if isinstance(s, int) else int(s.node.hint) for s in tensor.shape]
    if "position" in str(node.meta.get("name")):
        return torch.arange(sizes[-1], dtype=tensor.dtype).expand(sizes)
    return torch.ones(sizes, dtype=tensor.dtype)


def _band(mask: Tensor) -> ReplayMask | None:
    """Read a mask [.., queries, keys]: booleans say what is seen, numbers are added to scores."""
    if mask.dim() < 2:
        return None
    seen = mask if mask.dtype is torch.bool else mask > _HIDDEN
    if mask.dtype is not torch.bool and bool((mask[seen] != 0).any()):
        return None
    rows = seen.reshape(-1, *seen.shape[-2:])
    one = rows[0]
    if bool((rows != one).any()):
        return None
    if bool(one.all()):
        return ReplayMask(causal=False)
    num_queries, num_keys = one.shape
    distance = torch.arange(num_queries)[:, None] + (num_keys - num_queries) - torch.arange(num_keys)[None, :]
    causal = distance >= 0
    if torch.equal(one, causal):
        return ReplayMask(causal=True)
    window = int(one[-1].sum())
    return ReplayMask(True, window) if torch.equal(one, causal & (distance < window)) else None
