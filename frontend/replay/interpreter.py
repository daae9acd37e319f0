"""A torch.fx graph run node by node under a recorder, each node in the scope of the module it came from."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor, fx
from torch._ops import HigherOrderOperator

from ...ir.errors import SlipstickError, TraceError
from ..record.adapter import DataDependent
from ..record.failures import first_line
from ..record.record import Recorder
from ..semantic import semantic
from ..semantic.flex import reach_of
from .joint import JointRecorder
from .program import ReadGraph, is_graph

# Checks of shapes and counters of use: they compute nothing.
_CHECKS = ("_assert", "sym_constrain", "_check", "_log_api_usage", "_functional_assert", "_guards_fn")
# Operators that only say how a part of the graph is to be run, and where among their arguments that part stands.
_WRAPPERS: Mapping[str, int] = {
    "wrap_with_set_grad_enabled": 1,
    "wrap_with_autocast": 4,
    "tag_activation_checkpoint": 0,
    "wrap_activation_checkpoint": 0,
    "wrap": 0,
    "invoke_subgraph": 0,
    "hints_wrapper": 0,
}
_MOVES = ("cuda", "cpu", "xpu")
_DEVICE = re.compile(r"^(?:cuda|xpu|mps|hpu|npu|tpu|meta)(?::[0-9]+)?$")
_NO_SCOPE = "_empty_nn_module_stack"


class Replay(fx.Interpreter):
    """Runs a graph and keeps the recorder's scope at the module that each node came from."""

    def __init__(
        self,
        graph: fx.GraphModule | ReadGraph,
        recorder: Recorder,
        scopes: Mapping[fx.Node, str] = MappingProxyType({}),
    ) -> None:
        """Know the graph and whom to tell where it is; `scopes` are paths of nodes that do not say so themselves."""
        super().__init__(graph, garbage_collect_values=False, graph=graph.graph)
        self._scopes = scopes
        self.extra_traceback = False
        self._recorder = recorder

    def run_node(self, n: fx.Node) -> object:
        """Run one node in its scope; TraceError names the node, its module and the line of the user's code."""
        if is_check(n):
            return None
        if isinstance(self._recorder, JointRecorder):
            self._recorder.enter(n)
        scope = self._scopes.get(n, scope_of(n))
        self._recorder.scopes[-1] = self._recorder.scopes[-1] if scope is None else scope
        try:
            return super().run_node(n)
        except DataDependent as error:
            raise TraceError(f"control flow depends on data: {_place(n)} asks for a value of a tensor") from error
        except SlipstickError as error:
            raise (
                type(error)(f"{error}: {_place(n)}")
                if n.op != "output" and not isinstance(n.target, HigherOrderOperator)
                else error
            ) from error
        except Exception as error:
            raise TraceError(f"{_place(n)} fails while it is run again: {first_line(error)}") from error

    def fetch_args_kwargs_from_env(self, n: fx.Node) -> tuple[tuple[object, ...], dict[str, object]]:
        """Return the arguments of a node, on the one device that there is here."""
        args, kwargs = super().fetch_args_kwargs_from_env(n)
        return tuple(_on_cpu(a) for a in args), {k: _on_cpu(v) for k, v in kwargs.items()}

    def call_method(self, target: object, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """Run a method; one that moves a tensor to a device leaves it where it is, and a number is its own item."""
        is_itself = target in _MOVES or (target == "item" and not isinstance(args[0], Tensor))
        return args[0] if is_itself else getattr(args[0], str(target))(*args[1:], **kwargs)

    def call_function(self, target: object, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """Run a call; parts of the graph that are arguments are run here."""
        if isinstance(target, HigherOrderOperator):
            return self._run_part(str(target.__name__), args, kwargs)
        assert callable(target)
        return target(*args, **kwargs)

    def _run_part(self, name: str, args: tuple[object, ...], kwargs: Mapping[str, object]) -> object:
        if name == "flex_attention":
            return _flex(args)
        position = _WRAPPERS.get(name)
        part = args[position] if position is not None and position < len(args) else None
        if not is_graph(part):
            raise TraceError(f"'{name}' chooses what runs by the values of tensors, or is not known here")
        rest = [a for a in args[(position or 0) + 1 :] if not isinstance(a, str)]
        run: Callable[..., object] = Replay(part, self._recorder).run
        if name == "wrap_with_set_grad_enabled":
            with torch.set_grad_enabled(bool(args[0]) and torch.is_grad_enabled()):
                return run(*rest)
        return run(*rest)


def _flex(args: Sequence[object]) -> tuple[Tensor, Tensor, Tensor]:
    """Attention whose mask is a part of the graph; one that reads tensors cannot be asked and hides nothing.

    The arguments are q, k, v, what changes scores, the block mask with the function it was made by, scale, options, and
    the tensors that the two functions read.
    """
    q, k, v = (t for t in args[:3] if isinstance(t, Tensor))
    blocks = args[4]
    mask_mod = blocks[-1] if isinstance(blocks, tuple | list) and blocks else None
    reads_tensors = len(args) > 8 and bool(args[8])
    reach = reach_of(mask_mod if is_graph(mask_mod) and not reads_tensors else None)
    out, lse = semantic.attention(q, k, v, None, reach.causal, reach.window, 0.0)
    return out.transpose(1, 2), lse, lse


def _on_cpu(value: object) -> object:
    """Return a device as the CPU, where all fake tensors are, and anything else as it is."""
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return "cpu" if isinstance(value, str) and _DEVICE.match(value) else value


def is_check(node: fx.Node) -> bool:
    """Whether a node only checks shapes or counts uses."""
    name = getattr(node.target, "__name__", str(node.target))
    plain = name.rpartition("::")[2].removeprefix("aten.")
    return node.op in ("call_function", "call_module") and plain.startswith(_CHECKS)


def scope_of(node: fx.Node) -> str | None:
    """Return the path of the innermost module a node came from, None when it does not say."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not isinstance(stack, dict) or not stack:
        return None
    last = list(stack.values())[-1]
    path = str(last[0] if isinstance(last, tuple | list) else last)
    return None if path.startswith(_NO_SCOPE) else plain_path(path)


def plain_path(path: str) -> str:
    """Return a module path without what tracers add.

    >>> plain_path("L['self'].model.layers.0.mlp@1")
    'model.layers.0.mlp'
    >>> plain_path("L['self']._modules['layers']._modules['0']._parameters['weight']")
    'layers.0.weight'
    """
    path = re.sub(r"@[0-9]+", "", path)
    path = re.sub(r"^(?:L\['\w+'\]|L__self__|self)(?=\.|$)\.?", "", path)
    path = re.sub(r"\.?_(?:modules|parameters|buffers)\['([^']+)'\]", r".\1", path)
    return path.lstrip(".")


def _place(node: fx.Node) -> str:
    scope = scope_of(node)
    where = f"module '{scope}'" if scope else "the top module"
    lines = re.findall(r'File "([^"\n]+)", line ([0-9]+)', str(node.meta.get("stack_trace") or ""))
    line = f" ({lines[-1][0]}:{lines[-1][1]})" if lines else ""
    return f"node '{node.name}' in {where}{line}"
