"""A clock for every op that reaches PyTorch's dispatcher, by class of op."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from ...frontend.record.adapter import DispatchMode
from ...ir.ops import OpClass
from .device import Device
from .stopwatch import clock_of

# Ops that tell their class; what else runs is told by the module it runs in, else it is elementwise.
_BY_OP: Mapping[str, OpClass] = MappingProxyType(
    {
        "mm": OpClass.MATMUL,
        "addmm": OpClass.MATMUL,
        "bmm": OpClass.MATMUL,
        "embedding": OpClass.MEMORY,
        "embedding_dense_backward": OpClass.MEMORY,
        "_log_softmax": OpClass.LOSS,
        "_log_softmax_backward_data": OpClass.LOSS,
        "nll_loss_forward": OpClass.LOSS,
        "nll_loss_backward": OpClass.LOSS,
    }
)
# What makes a view of a tensor does no work; its time is between ops.
_VIEWS = frozenset(
    ("_unsafe_view", "alias", "as_strided", "detach", "expand", "permute", "select", "slice", "split", "squeeze", "t",
     "transpose", "unsqueeze", "view")
)  # fmt: skip


class OpClock(DispatchMode):
    """Times every op, and adds the times up by class."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self.times_s: dict[OpClass, float] = {}
        self._now_s = clock_of(device)
        self._in_norm = False

    def watch_norm(self, module: nn.Module) -> None:
        """Count what runs in a module, and in the backward of it, as norm."""
        module.register_forward_pre_hook(self._enter)
        module.register_forward_hook(self._leave)

    def run(self, func: torch._ops.OpOverload, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Run one op and time it, unless it makes a view."""
        op = func.overloadpacket.__name__
        if op in _VIEWS:
            return func(*args, **kwargs)
        start = self._now_s()
        out = func(*args, **kwargs)
        kind = self._class_of(op)
        self.times_s[kind] = self.times_s.get(kind, 0.0) + self._now_s() - start
        return out

    def _class_of(self, op: str) -> OpClass:
        if "scaled_dot_product" in op:
            return OpClass.ATTENTION
        return _BY_OP.get(op, OpClass.NORM if self._in_norm else OpClass.ELEMENTWISE)

    def _enter(self, module: nn.Module, args: tuple[Tensor, ...]) -> None:
        self._in_norm = True

    def _leave(self, module: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> None:
        self._in_norm = False
        for node in _between(out.grad_fn, [x.grad_fn for x in args]):
            node.register_prehook(self._enter_backward)
            node.register_hook(self._leave_backward)

    def _enter_backward(self, grads: Sequence[Tensor]) -> None:
        self._in_norm = True

    def _leave_backward(self, before: Sequence[Tensor], after: Sequence[Tensor]) -> None:
        self._in_norm = False


def _between(last: Node | None, before: Sequence[Node | None]) -> Iterator[Node]:
    """Yield the nodes of a backward that lie behind some others; sums of gradients in leaves are not among them."""
    todo, seen = [last], set(before)
    while todo:
        node = todo.pop()
        if node is None or node in seen or node.name().endswith("AccumulateGrad"):
            continue
        seen.add(node)
        yield node
        todo += [following for following, _ in node.next_functions]
