"""Every private touch point with torch in one place; each is pinned by a test."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import ClassVar, cast

import sympy  # type: ignore[import-untyped]
import torch
from torch import Tensor, nn
from torch._C._autograd import _get_sequence_nr
from torch._functorch._aot_autograd.descriptors import BufferAOTInput, ParamAOTInput
from torch._guards import CompileContext
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    in_kernel_invocation_manager,
)
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    GuardOnDataDependentSymNode,
    StatelessSymbolicContext,
    free_unbacked_symbols,
)
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from ...ir.errors import TraceError
from ...ir.graph import LengthBound
from ...ir.meaning import Argument
from ...ir.records import dataclass
from ...ir.sizes.expr import Derived, Dim, Expr, as_dim, as_expr, symbol
from ...ir.sizes.rounding import floor_div, larger, smaller
from ..runs.guards import GuardRanges, PlacedShapeEnv, SizeGuard, conditions, rounding, users_line
from .dtypes import seen_as
from .shapes import SizeExpr, converted, ran


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs every call that reaches the dispatcher, then hands it to `note`.

    Tensor subclasses in `wrappers`, and those that are made of other tensors (quantised weights), come first: they turn
    their own calls into others, which are then noted.
    """

    wrappers: ClassVar[tuple[type, ...]] = ()

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if any(issubclass(t, self.wrappers) or hasattr(t, "__tensor_flatten__") for t in types):
            return NotImplemented
        return self.call(func, args, kwargs or {})

    def call(self, func: torch._ops.OpOverload, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Run a call and look at it."""
        out = self.run(func, args, kwargs)
        self.note(func, args, kwargs, out)
        return out

    def run(self, func: torch._ops.OpOverload, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Run a call."""
        return ran(func, args, kwargs)

    def note(
        self, func: torch._ops.OpOverload, args: Sequence[object], kwargs: Mapping[str, object], out: object
    ) -> None:
        """Look at one call; a mode that only runs calls in another way has nothing to look at."""


DataDependent = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)

_NOISE = ("prim.device", "aten.size.", "aten.detach", "profiler.", "aten.lift_fresh", "aten.is_pinned", "aten._assert_")


def _fake_mode() -> FakeTensorMode:
    """A mode without the cache of results by sizes: symbolic sizes seldom come again, and keeping them costs more."""
    mode = FakeTensorMode(shape_env=PlacedShapeEnv(), allow_non_fake_inputs=True)
    mode.cache_enabled = False
    return mode


@dataclass
class FakeWorld:
    """One recording's fake tensors, symbolic dims and their names.

    Sizes by name may have other examples than those that a tensor is asked for with (`hints`), or be `numbers`.
    """

    mode: FakeTensorMode = field(default_factory=_fake_mode)
    names: dict[SizeExpr, Expr] = field(default_factory=dict)
    hints: Mapping[str, int] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)
    _cache: dict[object, Dim] = field(default_factory=dict)
    _written: Mapping[SizeExpr, Expr] = field(default_factory=dict)
    _sizes: dict[str, int | torch.SymInt] = field(default_factory=dict)
    _places: dict[SizeExpr, str] = field(default_factory=dict)
    _ranges: GuardRanges | None = None

    def size(self, name: str, hints: Mapping[str, int]) -> int | torch.SymInt:
        """Return the size of a name, symbolic unless it is a number, the same one each time."""
        if name not in self._sizes:
            self._sizes[name] = self.tensor((name,), torch.int64, {name: hints[name]}).shape[0]
        return self._sizes[name]

    def sized(self, dims: Sequence[Dim], dtype: torch.dtype, hints: Mapping[str, int]) -> Tensor:
        """Make a fake tensor whose dims are expressions over named sizes."""
        sizes = [self.evaluated(d, hints) for d in dims]
        with self.mode:
            return torch.empty(sizes, dtype=dtype, device="cpu")

    def evaluated(self, dim: Dim, hints: Mapping[str, int]) -> int | torch.SymInt:
        """Return an expression over named sizes as torch counts with it."""
        if isinstance(dim, int):
            return dim
        total: int | torch.SymInt = 0
        for monomial, coefficient in dim.terms:
            term: int | torch.SymInt = int(coefficient)
            for name, power in monomial:
                for _ in range(power):
                    term = term * self._symbol(name, hints)
            total = total + term
        return total

    def _symbol(self, name: str, hints: Mapping[str, int]) -> int | torch.SymInt:
        if not isinstance(name, Derived):
            return self.size(name, hints)
        a, b = (self.evaluated(as_dim(arg), hints) for arg in name.args)
        of = {larger: torch.sym_max, smaller: torch.sym_min}
        size: int | torch.SymInt = of.get(name.kind.build, name.kind.compute)(a, b)  # type: ignore[no-untyped-call]
        return size

    def tensor(self, dims: tuple[int | str, ...], dtype: torch.dtype, hints: dict[str, int]) -> Tensor:
        """Make a fake tensor; a dim given by name is symbolic, with the hint as its example size."""
        dims = tuple(self.numbers.get(d, d) if isinstance(d, str) else d for d in dims)
        examples = {**hints, **self.hints}
        sizes = tuple(examples[d] if isinstance(d, str) else d for d in dims)
        kinds = [DimDynamic.DYNAMIC if isinstance(d, str) else DimDynamic.STATIC for d in dims]
        context: StatelessSymbolicContext[..., object] = StatelessSymbolicContext(dynamic_sizes=kinds)
        real = torch.empty(sizes, dtype=dtype, device="meta")
        like = self.mode.from_tensor(real, symbolic_context=context)
        with self.mode:
            fake = torch.empty(like.shape, dtype=like.dtype, device="cpu")
        for d, size in zip(dims, fake.shape, strict=True):
            if isinstance(d, str):
                self.names[size.node.expr] = symbol(d)  # type: ignore[attr-defined]
        return fake

    def fixed(self) -> list[str]:
        """Return the named sizes that something has bound to a number or to one another."""
        bound: dict[SizeExpr, SizeExpr] = getattr(self.mode.shape_env, "replacements", {})
        given = ((name, bound[size]) for size, name in self.names.items() if size in bound)
        return sorted(
            {str(name) for name, other in given if not other.is_Symbol or converted(other, self.names) != name}
        )

    def conditions(self) -> tuple[SizeGuard, ...]:
        """Return what was taken for true of the named sizes."""
        env = self.mode.shape_env
        named = {size: str(name) for size, name in self.names.items()}
        return () if env is None else conditions(env, cast("Mapping[sympy.Symbol, str]", named))

    def bounds(self) -> tuple[LengthBound, ...]:
        """Return where each named size must lie for the recording to hold; sizes that may be anything are left out."""
        return self._looked_at().bounds(self.conditions())

    def _looked_at(self) -> GuardRanges:
        if self._ranges is None:
            env = self.mode.shape_env
            examples = cast("Mapping[SizeExpr, int]", env.backed_var_to_val if env else {})
            self._ranges = GuardRanges(
                {str(n): int(examples[size]) for size, n in self.names.items() if size in examples}
            )
        return self._ranges

    def settle(self) -> Mapping[str, Dim]:
        """Write sizes of which the run took for granted that a number divides them as multiples of it; return these.

        `view(b, n // 16, 16, d)` runs where 16 divides n. Then n is 16 times n // 16, and the same size is one
        expression however the code has worked it out. A size of which the run took one value for granted is that.
        """
        ranges = self._looked_at()
        rounded = ranges.bounds(rounding(self.conditions()))
        steps = {b.name: b.step for b in rounded if ranges.recorded[b.name] % b.step == 0}
        found = {n: as_expr(floor_div(symbol(n), step)) * step for n, step in steps.items() if step > 1}
        found |= {b.name: as_expr(b.low) for b in rounded if b.low == b.high}
        if found:
            self._written = {size: name.substitute(found) for size, name in self.names.items()}
            self._cache.clear()
        return found

    def place_unknown(self, tensor: Tensor) -> None:
        """Note the line of the user's code that makes a size which only data say."""
        for size in tensor.shape:
            if isinstance(size, torch.SymInt) and size.node.expr not in self._places:
                unknown = free_unbacked_symbols(size)
                self._places[size.node.expr] = users_line(sys._getframe(1)) if unknown else ""

    def dim(self, size: int | torch.SymInt) -> Dim:
        """Return a size as an int or an expression over the named symbols."""
        if isinstance(size, int):
            return size
        expr = size.node.expr
        if expr not in self._cache:
            try:
                self._cache[expr] = as_dim(converted(expr, self._written or self.names))
            except TraceError as error:
                place = self._places.get(expr, "")
                raise type(error)(f"{error}{f', made at {place}' if place else ''}") from error
        return self._cache[expr]


def depends_on_data(value: Tensor | torch.SymFloat) -> bool:
    """Whether a size of a fake tensor, or a number, is one that only data say."""
    return bool(free_unbacked_symbols(value))


def size_of(size: int | torch.SymInt) -> Dim:
    """Return a size as an expression over torch's own names of open sizes (`s70`)."""
    if isinstance(size, int):
        return size
    expr = size.node.expr
    return as_dim(converted(expr, {s: symbol(str(s)) for s in expr.free_symbols}))


def real_numbers(tensor: Tensor, most: int = 64) -> Argument:
    """Return what is in a tensor, in rows, where it is real and has few entries; None of one that is fake."""
    found = tensor.constant if isinstance(tensor, FakeTensor) else tensor
    if found is None or found.numel() > most or found.is_meta:
        return None
    with undisturbed():
        given = found.tolist()
    return _rows(given if isinstance(given, list) else [given])


def _rows(given: list[object]) -> Argument:
    return tuple(_rows(g) if isinstance(g, list) else cast("float", g) for g in given)


def is_fake(tensor: Tensor, world: FakeWorld) -> bool:
    """Whether a tensor is one of a recording's own and has no numbers."""
    return isinstance(tensor, FakeTensor) and tensor.fake_mode is world.mode and tensor.constant is None


def template_of(tensor: Tensor, world: FakeWorld) -> Tensor:
    """Return a tensor on `meta` of the same layout, to make others from."""
    with in_kernel_invocation_manager(world.mode):
        made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        if tensor.storage_offset() != 0:
            made.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())
    return made


def new_fake(template: Tensor, device: torch.device, storage: Tensor | int | torch.SymInt, world: FakeWorld) -> Tensor:
    """Return a fake tensor of a template's layout, in the storage of a tensor or in a new one of so many bytes."""
    with torch._C._DisableTorchDispatch():
        made = template.data
        owner = storage if isinstance(storage, Tensor) else torch.empty(storage, dtype=torch.uint8, device="meta")
        torch._functionalize_unsafe_set(made, owner)  # pyright: ignore[reportPrivateImportUsage]
        return FakeTensor(world.mode, made, device)


def storage_id(tensor: Tensor) -> int:
    """Return an identity shared by all views of one storage."""
    return int(tensor.untyped_storage()._cdata)


def layout_key(tensor: Tensor) -> tuple[object, ...]:
    """Return what two tensor objects share when they are the same view of the same storage."""
    return storage_id(tensor), tensor.dtype, layout_sizes(tensor)


def layout_sizes(tensor: Tensor) -> tuple[object, ...]:
    """Return the sizes, the strides and the offset; symbols as what they stand for."""
    found: tuple[int | torch.SymInt, ...] = (*tensor.shape, *tensor.stride(), tensor.storage_offset())
    return tuple(s.node.expr if isinstance(s, torch.SymInt) else s for s in found)


def is_noise(func: torch._ops.OpOverload) -> bool:
    """Whether an operator carries no work and no data."""
    return str(func).startswith(_NOISE)


def autograd_origin() -> tuple[int, bool]:
    """Return the autograd sequence number of the operator being dispatched, and whether backward is running."""
    node = torch._C._current_autograd_node()
    if node is not None:
        return int(node._sequence_nr()), True
    return _get_sequence_nr() - 1, False


def runs_again() -> bool:
    """Whether a forward pass runs while backward does: gradients are on inside of a node of autograd."""
    return torch.is_grad_enabled() and torch._C._current_autograd_node() is not None


def frame_compiled() -> tuple[int | None, int]:
    """Return which frame Dynamo is compiling (None outside it), and how often it has compiled this frame before."""
    found = CompileContext.current_compile_id()
    if found is None or found.frame_id is None:
        return None, 0
    return int(found.frame_id), int(found.frame_compile_id or 0)


def make_fake(module: nn.Module, world: FakeWorld) -> None:
    """Replace every parameter and buffer of a module built on `meta` by a fake tensor on the CPU; ties are kept."""
    seen: dict[int, Tensor] = {}
    with world.mode:
        for owner in module.modules():
            for name, p in list(owner._parameters.items()):
                if p is not None:
                    seen.setdefault(id(p), nn.Parameter(_empty_like(p), requires_grad=p.requires_grad))
                    owner._parameters[name] = seen[id(p)]  # type: ignore[assignment]
            for name, b in list(owner._buffers.items()):
                if b is not None:
                    seen.setdefault(id(b), _empty_like(b))
                    owner._buffers[name] = seen[id(b)]


def _empty_like(t: Tensor) -> Tensor:
    return torch.empty(t.shape, dtype=t.dtype, device="cpu")


@contextmanager
def faked(module: nn.Module, world: FakeWorld) -> Iterator[None]:
    """Make the module's parameters and buffers fake for a while and put its own back."""
    before = [(owner, dict(owner._parameters), dict(owner._buffers)) for owner in module.modules()]
    make_fake(module, world)
    try:
        with swapped(nn.Module, "_apply", seen_as):
            yield
    finally:
        for owner, parameters, buffers in before:
            owner._parameters.update(parameters)
            owner._buffers.update(buffers)
            for name in parameters.keys() & vars(owner).keys():
                del vars(owner)[name]


@contextmanager
def eager() -> Iterator[None]:
    """Run what someone has compiled as it was written."""
    with torch.compiler.set_stance("force_eager"):
        yield


@contextmanager
def undisturbed() -> Iterator[None]:
    """Run operators for real for a while: no mode looks on."""
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        yield


@contextmanager
def swapped(owner: object, name: str, replacement: object) -> Iterator[None]:
    """Set an attribute for a while and put the old one back; what came from the class comes from there again."""
    own, old = name in vars(owner), vars(owner).get(name)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        if own:
            setattr(owner, name, old)
        else:
            delattr(owner, name)


__all__ = [
    "BufferAOTInput", "DataDependent", "DispatchMode", "FakeTensor", "FakeWorld", "ParamAOTInput", "autograd_origin",
    "depends_on_data", "eager", "faked", "frame_compiled", "is_noise", "layout_key", "make_fake",
    "real_numbers", "runs_again", "size_of", "storage_id", "swapped", "undisturbed",
]  # fmt: skip
