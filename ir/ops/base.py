"""What an op is: its schema, its type rule and its work rule, in one record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from typing import Literal, TypeAlias, TypeVar

from ..errors import VerifyError
from ..graph import NO_ATTRS, Attrs
from ..records import dataclass
from ..sizes.expr import Dim, Expr, as_expr, product, total
from ..types import TensorType
from .index_map import IndexMap
from .traits import Trait

A = TypeVar("A", bound=Attrs)
ZERO = as_expr(0)


class OpClass(StrEnum):
    """How an op is priced and how people read a breakdown."""

    MATMUL = "matmul"
    ATTENTION = "attention"
    EXPERTS = "experts"
    SCAN = "scan"
    CONV = "conv"
    NORM = "norm"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    LOSS = "loss"
    MEMORY = "memory"
    OPTIMIZER = "optimizer"
    COMMUNICATION = "communication"
    HOST = "host"
    CUSTOM = "custom"
    UNPRICED = "unpriced"
    FREE = "free"


@dataclass(frozen=True, slots=True)
class OpCall:
    """An op applied to types: what type and work rules look at."""

    op: str
    attrs: Attrs
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]

    def attrs_as(self, kind: type[A]) -> A:
        """Return the attributes as the op's own type."""
        if not isinstance(self.attrs, kind):
            raise VerifyError(f"{self.op} needs {kind.__name__}, has {type(self.attrs).__name__}")
        return self.attrs


@dataclass(frozen=True, slots=True)
class GemmShape:
    """C[m, n] = A[m, k] B[k, n], `batch` times; `groups` are the weights that m is distributed to."""

    batch: Expr
    m: Expr
    n: Expr
    k: Expr
    groups: Dim = 1


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """The sizes of one attention call; `num_gemms` counts its products (2 forward, 5 backward).

    `keys` > 0 says that each query reads only that many keys, wherever they lie; `extra_bytes` are what moves beside
    queries, keys, values and outputs.
    """

    batch: Expr
    heads: Expr
    kv_heads: Expr
    q_len: Expr
    kv_len: Expr
    qk_dim: int
    v_dim: int
    causal: bool
    window: int
    num_gemms: int
    balanced: bool = False
    latent: bool = False
    keys: int = 0
    softcap: bool = False
    extra_bytes: Expr = ZERO

    @property
    def reach(self) -> int:
        """Keys that a query sees at most, 0 for all: the window, or those chosen for it."""
        return min((n for n in (self.window, self.keys) if n), default=0)


@dataclass(frozen=True, slots=True)
class ExpertsRead:
    """The expert weights of a call: their bytes, the rows that are distributed, and among how many experts."""

    weight_bytes: Expr
    rows: Expr
    num_experts: Expr


@dataclass(frozen=True, slots=True)
class Work:
    """What one call costs whatever the machine: FLOPs by unit and bytes through memory.

    `tensor_flops` follow the full convention (masked positions counted). `model_share` is the part of them that is
    model work: 0.8 where a kernel recomputes the scores on its own. `read_bytes` take the weights of all experts;
    `experts` says of what a backend prices only the part that few rows touch.
    """

    tensor_flops: Expr = ZERO
    vector_flops: Expr = ZERO
    read_bytes: Expr = ZERO
    write_bytes: Expr = ZERO
    model_share: float = 1.0
    gemms: tuple[GemmShape, ...] = ()
    attention: AttentionShape | None = None
    experts: ExpertsRead | None = None

    @property
    def num_bytes(self) -> Expr:
        """Bytes read and written."""
        return self.read_bytes + self.write_bytes


Check: TypeAlias = Callable[[OpCall], Iterator[str]]
WorkRule: TypeAlias = Callable[[OpCall], Work]
# What an op is along a mesh axis.
IndexRule: TypeAlias = Callable[[OpCall, str], IndexMap]


@dataclass(frozen=True, slots=True)
class ShardChoice:
    """Which entry of its index map an op takes where operands are cut by several factors (`passes/sharding/choose.py`).

    Sums of the forward phase are completed before anything but a view, as behind row-parallel layers: what follows is
    then computed on whole numbers, in parts of its own. Gradients stay partial as long as an op is linear in them, so
    that one message adds up all of them. What is small (tables of rotations, ids) is made whole rather than have it cut
    what is large.

    Attributes:
        names: the inputs that name a factor, in this order; None for all, by `order`.
        order: "first": parameters, then factors of the result, then inputs from the first; "widest": the operand of
            most dims; "last": inputs from the last; "as it lies": first what the map says of everything as it lies.
        sums: where partial sums that the op is linear in stay; elsewhere they are completed first.
        joins: whole operands of the linear group join the sum, as a part on one rank.
        gathers: operands beside the sum are made whole.
        follows: an input of the forward node, and the tensor of this call that lies as it did: it names the factor.
        deaf: factors that nobody names.
        packs: "first": everything is packed as the operand that names the factor is; "any": as any that is cut by it.
        instead: over the axes of the sequence, the second factor where the first must be whole.
    """

    names: tuple[int, ...] | None = None
    order: Literal["first", "widest", "last", "as it lies"] = "first"
    sums: Literal["always", "backward", "never"] = "never"
    joins: bool = False
    gathers: bool = False
    follows: tuple[int, int] | None = None
    deaf: tuple[str, ...] = ()
    packs: Literal["first", "any"] = "first"
    instead: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class OpDef:
    """One op: arity, attribute type, type rule (yields complaints), work rule, class, one line for people, and traits.

    `index_map` says which dims of its tensors are the same; None for what moves data between ranks. `by_axis` says that
    it differs between mesh axes. `traits` answer what other rooms ask of an op; they test these, never its name.
    """

    name: str
    kind: OpClass
    work: WorkRule
    doc: str
    check: Check
    attrs: type[Attrs] = Attrs
    min_inputs: int = 1
    max_inputs: int | None = None
    num_outputs: int | None = 1
    traits: frozenset[Trait] = frozenset()
    index_map: IndexRule | None = None
    by_axis: bool = False
    shard: ShardChoice = ShardChoice()

    @property
    def _arity(self) -> str:
        if self.max_inputs is None:
            return f"at least {self.min_inputs}"
        return f"{self.min_inputs}" if self.min_inputs == self.max_inputs else f"{self.min_inputs} to {self.max_inputs}"

    def complaints(self, call: OpCall) -> Iterator[str]:
        """Yield everything that is wrong with a call."""
        if len(call.inputs) < self.min_inputs or (self.max_inputs is not None and len(call.inputs) > self.max_inputs):
            yield f"takes {self._arity} inputs, has {len(call.inputs)}"
            return
        if self.num_outputs is not None and len(call.outputs) != self.num_outputs:
            yield f"makes {self.num_outputs} outputs, has {len(call.outputs)}"
            return
        if type(call.attrs) is not self.attrs:
            yield f"needs {self.attrs.__name__}, has {type(call.attrs).__name__}"
            return
        yield from self.check(call)


@dataclass(frozen=True, slots=True)
class ResultRule:
    """A type rule with the dims of the first result, which follow from the inputs."""

    dims: Callable[[OpCall], tuple[Dim, ...]]
    rule: Check

    def __call__(self, call: OpCall) -> Iterator[str]:
        """Yield what the rule does."""
        return self.rule(call)


def makes(dims: Callable[[OpCall], tuple[Dim, ...]]) -> Callable[[Check], ResultRule]:
    """Say beside a type rule which dims the first result has."""
    return partial(ResultRule, dims)


def first_dims(call: OpCall) -> tuple[Dim, ...]:
    """Return the dims of the first input."""
    return call.inputs[0].dims


def no_check(call: OpCall) -> Iterator[str]:
    """Accept any types."""
    del call
    return iter(())


def free(call: OpCall) -> Work:
    """No work at all."""
    del call
    return Work()


def traffic(call: OpCall, vector_flops: Expr = ZERO) -> Work:
    """Read every input once, write every output once."""
    return Work(
        vector_flops=vector_flops,
        read_bytes=total(t.num_bytes for t in call.inputs),
        write_bytes=total(t.num_bytes for t in call.outputs),
    )


def same_dims(a: tuple[Dim, ...], b: tuple[Dim, ...], what: str) -> Iterator[str]:
    """Complain when two shapes differ."""
    if a != b:
        yield f"{what}: [{_join(a)}] is not [{_join(b)}]"


def ranks(call: OpCall, wanted: tuple[int, ...], what: str) -> Iterator[str]:
    """Complain when the first inputs have other ranks than wanted."""
    given = tuple(t.rank for t in call.inputs[: len(wanted)])
    if given != wanted:
        yield f"{what} must have the ranks {wanted}, have {given}"


def same_numel(a: TensorType, b: TensorType, what: str) -> Iterator[str]:
    """Complain when two tensors differ in the number of elements."""
    if product(a.dims) != product(b.dims):
        yield f"{what}: {a} and {b} differ in the number of elements"


def _join(dims: tuple[Dim, ...]) -> str:
    return ", ".join(str(d) for d in dims)


__all__ = [
    "NO_ATTRS", "ZERO", "AttentionShape", "Attrs", "Check", "ExpertsRead", "GemmShape", "OpCall", "OpClass", "OpDef",
    "Work",    "WorkRule", "free", "no_check", "ranks", "same_dims", "same_numel", "traffic",
]  # fmt: skip
