"""A module run eagerly on fake tensors to a torch.fx graph: forward, loss and backward, with every node's origin.

Each node carries in `meta`: `val` (the fake tensors it made), `scope` (module path), `phase`, and `forward` (the
forward node a backward node belongs to). Placeholders carry `role` and `name`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from types import TracebackType
from typing import TypeAlias, cast

import torch
from torch import Tensor, fx, nn
from torch.fx.node import Argument, map_aggregate

from ...ir.errors import TraceError
from ...ir.graph import Phase, Role
from ...ir.records import dataclass
from ...ir.sizes.expr import Expr
from ..aten.fx_import import STEPS
from ..aten.math import POINTWISE_STEPS
from ..aten.table import HANDLERS
from .adapter import FakeWorld, autograd_origin, depends_on_data, is_noise, layout_key, runs_again
from .again import checkpoints_followed, place_again
from .decompose import CallParts, RecordedCall
from .failures import explained
from .memo import Memo

Tensors: TypeAlias = tuple[Tensor, ...]
Backward: TypeAlias = Callable[[Tensors], tuple[Tensors, Mapping[str, Tensor]]]


@dataclass
class Recording:
    """What one run left behind: the fx graph, the nodes that are results, and the gradient of each parameter.

    `calls` say for each call of a module from where it was called.
    """

    graph: fx.Graph
    results: tuple[fx.Node, ...] = ()
    grads: Mapping[str, fx.Node] = field(default_factory=dict)
    calls: Mapping[int, str] = field(default_factory=dict)


class Recorder(CallParts):
    """Writes every operator that reaches the dispatcher into an fx graph, those without a rule as their steps."""

    def __init__(self, module: nn.Module, inputs: Mapping[str, Tensor], world: FakeWorld) -> None:
        """Know the parameters, buffers and inputs by identity, before anything runs."""
        super().__init__(HANDLERS, POINTWISE_STEPS)
        self._world = world
        self._memo = Memo(world)
        self.fx = fx.Graph()
        self.phase = Phase.FORWARD
        self.scopes: list[str] = [""]
        self._is_again = False
        self.calls: dict[int, str] = {}
        self._node_of: dict[int, fx.Node] = {}
        self._alive: list[Tensor] = []
        self._by_layout: dict[tuple[object, ...], fx.Node] = {}
        self._by_sequence: dict[int, fx.Node] = {}
        self._names: dict[int, tuple[Role, str]] = {}
        # `parameter.data` is the same memory under another object.
        self._places: dict[tuple[object, ...], tuple[Role, str]] = {}
        for name, tensor in module.named_buffers():
            self._names[id(tensor)] = self._places[layout_key(tensor)] = (Role.BUFFER, name)
        for name, tensor in module.named_parameters():
            self._names[id(tensor)] = self._places[layout_key(tensor)] = (Role.PARAM, name)
        for name, tensor in inputs.items():
            role = Role.CACHE if name.startswith("cache.") else Role.INPUT
            self._names[id(tensor)] = (role, name)

    def run(self, func: torch._ops.OpOverload, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Run one call, or say what an equal one returned."""
        return self._memo.run(func, args, kwargs)

    def enter_module(self, name: str) -> None:
        """Be in the scope of a module's call: its path and a number of its own."""
        number = len(self.calls) + 1
        self.calls[number] = self.scopes[-1]
        self.scopes.append(f"{name}@{number}")

    def step(self, step: RecordedCall) -> None:
        """Write a call, unless it is of no matter."""
        if not is_noise(step.operator):
            self._write(step.operator, step.args, step.kwargs, step.out)[STEPS] = step.names

    def _write(
        self, func: torch._ops.OpOverload, args: Sequence[object], kwargs: Mapping[str, object], out: object
    ) -> dict[str, object]:
        fx_args = tuple(self._arg(a) for a in args)
        node = self.fx.create_node("call_function", func, fx_args, {k: self._arg(v) for k, v in kwargs.items()})
        for made in out if isinstance(out, tuple | list) else (out,):
            if isinstance(made, Tensor):
                self._world.place_unknown(made)
        again = self.phase is Phase.BACKWARD and (self._is_again or runs_again())
        node.meta.update(scope=self.scopes[-1], phase=Phase.RECOMPUTE if again else self.phase, val=out)
        self._link(node)
        if isinstance(out, Tensor):
            self._bind(out, node)
            return node.meta
        for i, leaf in enumerate(out if isinstance(out, tuple | list) else ()):
            if isinstance(leaf, Tensor):
                item = self.fx.create_node("call_function", operator.getitem, (node, i))
                item.meta.update(node.meta, val=leaf)
                self._bind(leaf, item)
        return node.meta

    @contextmanager
    def again(self) -> Iterator[None]:
        """Say that what runs has run before: a checkpoint makes anew what it did not keep."""
        before, self._is_again = self._is_again, True
        try:
            yield
        finally:
            self._is_again = before

    def _link(self, node: fx.Node) -> None:
        """Backward nodes find their forward node, and its scope, by the autograd sequence number."""
        sequence, running = autograd_origin()
        if node.meta["phase"] is Phase.RECOMPUTE:
            return
        if self.phase is Phase.FORWARD:
            self._by_sequence.setdefault(sequence, node)
        elif running and sequence in self._by_sequence:
            origin = self._by_sequence[sequence]
            node.meta.update(forward=origin, scope=origin.meta["scope"])
        else:
            node.meta["scope"] = next((s for n in node.all_input_nodes if (s := n.meta["scope"])), "")

    def _arg(self, arg: object) -> Argument:
        if isinstance(arg, Tensor):
            return self.node_of(arg)
        if isinstance(arg, list | tuple):
            return [self._arg(a) for a in arg]
        if isinstance(arg, torch.SymFloat) and depends_on_data(arg):
            return "a number read from a tensor"  # by `.item()`: it steers nothing, so its value is of no matter
        # Sizes are kept as expressions, which fx carries along without looking at them.
        return cast("Argument", self._world.dim(arg) if isinstance(arg, torch.SymInt) else arg)

    def node_of(self, tensor: Tensor) -> fx.Node:
        """Return the node that made a tensor; an unseen tensor becomes a placeholder."""
        node = self._node_of.get(id(tensor))
        if node is None:
            node = self._by_layout.get(layout_key(tensor))  # autograd hands saved tensors back as new objects
        if node is None:
            known = self._names.get(id(tensor)) or self._places.get(layout_key(tensor))
            role, name = known or (Role.BUFFER, f"constant_{len(self._alive)}")
            node = self.fx.placeholder(f"p{len(self._alive)}")
            node.meta.update(val=tensor, role=role, name=name, scope="", phase=Phase.FORWARD)
            self._bind(tensor, node)
        return node

    def _bind(self, tensor: Tensor, node: fx.Node) -> None:
        self._node_of[id(tensor)] = node
        self._by_layout[layout_key(tensor)] = node
        self._alive.append(tensor)


class ScopeHooks:
    """Forward hooks on every module that keep the recorder's scope at the innermost module entered."""

    def __init__(self, recorder: Recorder, module: nn.Module) -> None:
        """Remember whom to tell; hooks are set on entry and removed on exit."""
        self._recorder, self._module = recorder, module
        self._handles: list[torch.utils.hooks.RemovableHandle] = []

    def __enter__(self) -> None:
        """Set the hooks."""
        for name, module in self._module.named_modules():
            self._handles.append(module.register_forward_pre_hook(self._push(name)))
            self._handles.append(module.register_forward_hook(self._pop, always_call=True))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Leave the module as it was."""
        for handle in self._handles:
            handle.remove()

    def _push(self, name: str) -> Callable[[nn.Module, tuple[object, ...]], None]:
        def hook(module: nn.Module, args: tuple[object, ...]) -> None:
            self._recorder.enter_module(name)

        return hook

    def _pop(self, module: nn.Module, args: object, out: object) -> None:
        self._recorder.scopes.pop()


def record(
    module: nn.Module,
    inputs: Mapping[str, Tensor],
    run: Callable[[], tuple[Tensor, ...]],
    world: FakeWorld,
    train: bool,
) -> Recording:
    """Run `run` (the module on its inputs, ending in a loss when training) and return what happened.

    With `train`, gradients of the first result for all parameters are taken too. TraceError names module and source
    line when control flow depends on data, when a size is fixed to a number, and when the module itself fails.
    """
    recorder = Recorder(module, inputs, world)
    return record_with(recorder, module, run, world, (lambda r: of_loss(module, r)) if train else None)


def record_with(
    recorder: Recorder, module: nn.Module, run: Callable[[], Tensors], world: FakeWorld, backward: Backward | None
) -> Recording:
    """Do as `record` with a recorder that is made already, which `run` may know.

    `backward` takes the results and returns what leaves the graph and the gradient of each parameter.
    """
    named: Mapping[str, Tensor] = {}
    with explained(module), checkpoints_followed(recorder.again):
        with recorder, ScopeHooks(recorder, module), torch.set_grad_enabled(backward is not None):
            results = run()
        if backward is not None:
            recorder.phase = Phase.BACKWARD
            with recorder, ScopeHooks(recorder, module):
                results, named = backward(results)
            place_again(recorder.fx)
    if fixed := world.fixed():
        raise TraceError(
            f"the module uses the size of {' and '.join(fixed)} as a plain number (a loop over positions, int(), or a "
            "comparison with a constant), so the recording would hold for one size only; keep sizes symbolic, or say "
            f"which it is: {' '.join(f'--fixed {name}=LENGTH' for name in fixed)}, in Python fixed={{..}}"
        )
    _settle_sizes(recorder.fx, world)
    grads = {n: recorder.node_of(g) for n, g in named.items()}
    place = {node: k for k, node in enumerate(recorder.fx.nodes)}
    for grad in grads.values():
        _settle(grad, place)
    return Recording(recorder.fx, tuple(recorder.node_of(t) for t in results), grads, recorder.calls)


def _settle_sizes(graph: fx.Graph, world: FakeWorld) -> None:
    """Let sizes that a number must divide be multiples of it in what was written down of them, too."""
    if not (found := world.settle()):
        return

    def settled(arg: Argument) -> Argument:
        return cast("Argument", arg.substitute(found)) if isinstance(arg, Expr) else arg

    for node in graph.nodes:
        node.args = cast("tuple[Argument, ...]", map_aggregate(node.args, settled))
        node.kwargs = cast("dict[str, Argument]", map_aggregate(node.kwargs, settled))


def of_loss(module: nn.Module, results: Tensors) -> tuple[Tensors, Mapping[str, Tensor]]:
    """Take the gradients of the first result, a scalar, for all parameters that reach it."""
    named = {n: p for n, p in module.named_parameters() if p.requires_grad}
    grads = torch.autograd.grad(results[0], list(named.values()), allow_unused=True)
    return results, {n: g for n, g in zip(named, grads, strict=True) if g is not None}


def _settle(grad: fx.Node, place: Mapping[fx.Node, int]) -> None:
    """Sums of the gradients of a parameter that layers share belong to the layer whose summand is made last."""
    while "forward" not in grad.meta and len(summands := grad.all_input_nodes) == 2:
        first, last = sorted(summands, key=lambda n: place[n])
        if _unnumbered(first) != _unnumbered(last):
            return
        grad.meta["scope"] = last.meta["scope"]
        grad = first


def _unnumbered(node: fx.Node) -> str:
    return re.sub(r"[0-9]+", "*", str(node.meta["scope"]))


@contextmanager
def kept_mode(module: nn.Module, train: bool) -> Iterator[None]:
    """Put the module in training or evaluation mode, and every part back in its own."""
    was = [(part, part.training) for part in module.modules()]
    module.train(train)
    try:
        yield
    finally:
        for part, training in was:
            part.training = training
