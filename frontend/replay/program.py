"""What every torch.fx graph is to us: a graph to run, the tensors it holds and what it is given, in order.

A torch.fx GraphModule writes the source of its graph, with the names that the graph holds, and executes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TypeGuard

import torch
from torch import fx, nn

from ...ir.errors import NotUnderstoodError
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim
from ...ir.types import DType
from ..record.dtypes import main_dtype
from ..runs.guards import SizeGuard
from .targets import is_checked


class ReadGraph(nn.Module):
    """The nodes of a graph, and as submodules the graphs that are arguments of its nodes."""

    graph: fx.Graph

    def __init__(self) -> None:
        """Begin an empty graph."""
        super().__init__()
        self.graph = fx.Graph()

    def forward(self, *args: object) -> object:
        """Run the graph on real tensors, as the mask of an attention is asked what it hides."""
        return _OnTensors(self, graph=self.graph).run(*args)


class _OnTensors(fx.Interpreter):
    """Runs operators that check their arguments."""

    def call_function(self, target: object, args: tuple[object, ...], kwargs: Mapping[str, object]) -> object:
        """Run one call."""
        if not callable(target) or not is_checked(target):
            raise NotUnderstoodError(f"'{target}' is not run on tensors of a file")
        return target(*args, **kwargs)


def is_graph(value: object) -> TypeGuard[fx.GraphModule | ReadGraph]:
    """Whether a value is a graph that can be run: a live one, or one of a file."""
    return isinstance(value, fx.GraphModule | ReadGraph)


# A size without a limit is said to be at most some huge number.
MOST_SIZE = 1 << 40


@dataclass(frozen=True, slots=True)
class TensorInput:
    """A tensor that the caller gives; dims may be expressions over the program's own sizes (`s70`)."""

    name: str
    dims: tuple[Dim, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class HeldInput:
    """A parameter or buffer that the program holds, by path."""

    path: str


@dataclass(frozen=True, slots=True)
class SizeInput:
    """A size handed over as a number."""

    value: Dim


@dataclass(frozen=True, slots=True)
class FixedInput:
    """A value that was fixed when the program was made: None, a flag, a number, a text."""

    value: bool | int | float | str | None


Source = TensorInput | HeldInput | SizeInput | FixedInput


@dataclass(frozen=True)
class ReplayProgram:
    """A torch.fx graph with everything needed to run it without its weights.

    `root` holds parameters and buffers under their paths (shapes count, values do not); `outputs` are the positions of
    what the caller gets, among all flattened outputs (None: all of them); `limits` are the most that open sizes may be.
    `asked` is what was taken for true of them when the graph was made, with `examples` as their sizes.
    """

    name: str
    graph: fx.GraphModule | ReadGraph
    root: nn.Module
    sources: tuple[Source, ...]
    outputs: tuple[int, ...] | None = None
    limits: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    asked: tuple[SizeGuard, ...] = ()
    examples: Mapping[str, int] = field(default_factory=dict)

    @property
    def tensors(self) -> tuple[TensorInput, ...]:
        """The tensors that the caller gives, in order."""
        return tuple(s for s in self.sources if isinstance(s, TensorInput))

    @property
    def dtype(self) -> DType:
        """The floating type that holds most bytes of the parameters; of the inputs where there are none."""
        held = [(t.dtype, t.numel() * t.element_size()) for t in self.root.parameters()]
        return main_dtype(held or [(t.dtype, 1) for t in self.tensors])


@dataclass(frozen=True, slots=True)
class HeldTensor:
    """Shape and type of a parameter or buffer; `same_as` is the path of another one that is the same tensor."""

    dims: tuple[int, ...]
    dtype: torch.dtype
    is_parameter: bool
    same_as: str = ""


def hollow(held: Mapping[str, HeldTensor]) -> nn.Module:
    """Return a tree of modules that holds these tensors on the meta device: paths and shapes, nothing to run."""
    root = nn.Module()
    made: dict[str, torch.Tensor] = {}
    for path, one in held.items():
        made[path] = made[one.same_as] if one.same_as in made else _empty(one)
    for path, tensor in made.items():
        where, _, name = path.rpartition(".")
        owner = _submodule(root, where.split(".") if where else ())
        if isinstance(tensor, nn.Parameter):
            owner.register_parameter(name, tensor)
        else:
            owner.register_buffer(name, tensor)
    return root


def _empty(one: HeldTensor) -> torch.Tensor:
    tensor = torch.empty(one.dims, dtype=one.dtype, device="meta")
    trained = one.dtype.is_floating_point or one.dtype.is_complex
    return nn.Parameter(tensor, requires_grad=trained) if one.is_parameter else tensor


def _submodule(root: nn.Module, names: Iterable[str]) -> nn.Module:
    for name in names:
        if name not in root._modules:
            root.add_module(name, nn.Module())
        root = root.get_submodule(name)
    return root
