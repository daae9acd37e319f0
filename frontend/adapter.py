"""Every private touch point with torch in one place; each is pinned by a test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, cast

import torch
from torch import Tensor, fx, nn
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
    ShapeEnv,
    StatelessSymbolicContext,
)
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from ..ir.errors import TraceError
from ..ir.expr import Dim, Expr, as_dim, as_expr, product, symbol
from ..ir.meaning import Argument
from ..ir.types import DType
from .quotients import FloorDiv, exact_quotient


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs every call that reaches the dispatcher, then hands it to `note`.

    Tensor subclasses in `wrappers` come first: they turn their own calls into others, which are then noted.
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
        if any(issubclass(t, self.wrappers) for t in types):
            return NotImplemented
        out = self.call(func, args, kwargs or {})
        self.note(func, args, kwargs or {}, out)
        return out

    def call(self, func: torch._ops.OpOverload, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Run one call."""
        out: object = func(*args, **kwargs)
        return out

    def note(
        self, func: torch._ops.OpOverload, args: Sequence[object], kwargs: Mapping[str, object], out: object
    ) -> None:
        """Look at one call."""
        raise NotImplementedError


class SizeExpr(Protocol):
    """What we read of a sympy expression."""

    is_Integer: bool  # noqa: N815 - sympy's name
    is_Symbol: bool  # noqa: N815 - sympy's name
    is_Add: bool  # noqa: N815 - sympy's name
    is_Mul: bool  # noqa: N815 - sympy's name
    is_Pow: bool  # noqa: N815 - sympy's name

    @property
    def args(self) -> tuple[SizeExpr, ...]: ...

    def __int__(self) -> int: ...

    def __hash__(self) -> int: ...


DataDependent = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)

_DTYPES = {
    torch.float32: DType.FP32, torch.bfloat16: DType.BF16, torch.float16: DType.FP16, torch.float64: DType.FP64,
    torch.int64: DType.INT64, torch.int32: DType.INT32, torch.int16: DType.INT16, torch.int8: DType.INT8,
    torch.uint8: DType.UINT8, torch.bool: DType.BOOL, torch.float8_e4m3fn: DType.FP8, torch.float8_e5m2: DType.FP8,
    torch.complex64: DType.COMPLEX64,
}  # fmt: skip
_NOISE = ("prim.device", "aten.detach", "profiler.", "aten.lift_fresh", "aten.is_pinned", "aten._assert_")


def _fake_mode() -> FakeTensorMode:
    """A mode without the cache of results by sizes: symbolic sizes seldom come again, and keeping them costs more."""
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    mode.cache_enabled = False
    return mode


@dataclass
class FakeWorld:
    """One recording's fake tensors, symbolic dims and their names."""

    mode: FakeTensorMode = field(default_factory=_fake_mode)
    names: dict[SizeExpr, Expr] = field(default_factory=dict)
    _cache: dict[object, Dim] = field(default_factory=dict)
    _sizes: dict[str, torch.SymInt] = field(default_factory=dict)

    def size(self, name: str, hints: Mapping[str, int]) -> torch.SymInt:
        """Return the symbolic size of a name, the same one each time."""
        if name not in self._sizes:
            found = self.tensor((name,), torch.int64, {name: hints[name]}).shape[0]
            assert isinstance(found, torch.SymInt)
            self._sizes[name] = found
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
                    term = term * self.size(name, hints)
            total = total + term
        return total

    def tensor(self, dims: tuple[int | str, ...], dtype: torch.dtype, hints: dict[str, int]) -> Tensor:
        """Make a fake tensor; a dim given by name is symbolic, with the hint as its example size."""
        sizes = tuple(hints[d] if isinstance(d, str) else d for d in dims)
        kinds = [DimDynamic.DYNAMIC if isinstance(d, str) else DimDynamic.STATIC for d in dims]
        context: StatelessSymbolicContext[..., object] = StatelessSymbolicContext(dynamic_sizes=kinds)
        real = torch.empty(sizes, dtype=dtype, device="meta")
        fake = self._on_cpu(self.mode.from_tensor(real, symbolic_context=context))
        for d, size in zip(dims, fake.shape, strict=True):
            if isinstance(d, str):
                self.names[size.node.expr] = symbol(d)  # type: ignore[attr-defined]
        return fake

    def _on_cpu(self, fake: Tensor) -> Tensor:
        with self.mode:
            return torch.empty(fake.shape, dtype=fake.dtype, device="cpu")

    def fixed(self) -> list[str]:
        """Return the named sizes that something has bound to a number or to one another."""
        bound: dict[SizeExpr, SizeExpr] = getattr(self.mode.shape_env, "replacements", {})
        given = ((name, bound[size]) for size, name in self.names.items() if size in bound)
        return sorted(
            {str(name) for name, other in given if not other.is_Symbol or _convert(other, self.names) != name}
        )

    def dim(self, size: int | torch.SymInt) -> Dim:
        """Return a size as an int or an expression over the named symbols."""
        if isinstance(size, int):
            return size
        expr = size.node.expr
        if expr not in self._cache:
            self._cache[expr] = as_dim(_convert(expr, self.names))
        return self._cache[expr]


def _convert(expr: SizeExpr, names: dict[SizeExpr, Expr]) -> Expr:
    if expr.is_Integer:
        return as_expr(int(expr))
    if expr.is_Symbol:
        if expr not in names:
            raise TraceError(
                f"the size '{expr}' is only known at run time (it depends on data, not on batch or length)"
            )
        return names[expr]
    if expr.is_Add:
        parts = [_convert(a, names) for a in expr.args]
        return sum(parts[1:], parts[0])
    if expr.is_Mul:
        return product(_convert(a, names) for a in expr.args)
    if expr.is_Pow and expr.args[1].is_Integer and int(expr.args[1]) > 0:
        return product([_convert(expr.args[0], names)] * int(expr.args[1]))
    if isinstance(expr, FloorDiv) and (quotient := exact_quotient(expr)) is not None:
        return _convert(cast(SizeExpr, quotient), names)
    raise TraceError(f"the size '{expr}' is not a polynomial of batch and sequence length")


def size_of(size: int | torch.SymInt) -> Dim:
    """Return a size as an expression over torch's own names of open sizes (`s70`)."""
    if isinstance(size, int):
        return size
    expr = size.node.expr
    return as_dim(_convert(expr, {s: symbol(str(s)) for s in expr.free_symbols}))


def dtype_of(tensor: Tensor) -> DType:
    """Return the element type of a torch tensor; TraceError for one we do not know."""
    if tensor.dtype not in _DTYPES:
        raise TraceError(f"tensors of type {tensor.dtype} are not understood; known: {sorted(map(str, _DTYPES))}")
    return _DTYPES[tensor.dtype]


def known_dtype(dtype: torch.dtype) -> DType | None:
    """Return the element type of a torch type; None for one that we do not know."""
    return _DTYPES.get(dtype)


def torch_dtype(dtype: DType) -> torch.dtype:
    """Return the torch type that models are built in; computing types only."""
    known = {DType.BF16: torch.bfloat16, DType.FP16: torch.float16, DType.FP32: torch.float32}
    if dtype not in known:
        raise TraceError(f"models are built in {', '.join(known)}, not in {dtype}")
    return known[dtype]


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


def frame_compiled() -> tuple[int | None, int]:
    """Return which frame Dynamo is compiling (None outside it), and how often it has compiled this frame before."""
    found = CompileContext.current_compile_id()
    if found is None or found.frame_id is None:
        return None, 0
    return int(found.frame_id), int(found.frame_compile_id or 0)


def dynamo_source(node: fx.Node) -> str:
    """Return the Python expression by which Dynamo found an input of its graph, empty when it does not say."""
    source = getattr(node.meta.get("grapharg"), "source", None)
    name = getattr(source, "name", "")
    return str(name() if callable(name) else name)


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
        yield
    finally:
        for owner, parameters, buffers in before:
            owner._parameters.update(parameters)
            owner._buffers.update(buffers)


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
    own, old = name in vars(owner), getattr(owner, name)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        if own:
            setattr(owner, name, old)
        else:
            delattr(owner, name)


__all__ = [
    "BufferAOTInput",
    "DataDependent",
    "DispatchMode",
    "FakeWorld",
    "ParamAOTInput",
    "autograd_origin",
    "dtype_of",
    "dynamo_source",
    "eager",
    "faked",
    "frame_compiled",
    "is_noise",
    "known_dtype",
    "layout_key",
    "make_fake",
    "real_numbers",
    "size_of",
    "storage_id",
    "swapped",
    "torch_dtype",
    "undisturbed",
]  # fmt: skip
