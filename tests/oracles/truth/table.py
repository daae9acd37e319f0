"""Truth tables of sharding rules on one mesh axis: what a rule demands and promises, run on simulated ranks.

As PyTorch's `torch/distributed/tensor/_ops/strategy_validation.py`: an op runs once on whole tensors and once a rank on
what lies there, the result is put together from the placements promised, and both must be equal. Summands of partial
sums are uneven and change their sign, so that nothing is right by symmetry.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import torch
from torch import Tensor

from slipstick.ir.graph import NO_ATTRS, Attrs, Node, Phase, Value
from slipstick.ir.ops import OpCall, index_map_of
from slipstick.ir.ops.fused.attention import AttentionAttrs
from slipstick.ir.ops.index_map import PlacementEntry
from slipstick.ir.placement import PARTIAL, REPLICATE, MeshAxis, Partial, Placement, Shard
from slipstick.ir.types import DType, TensorType
from slipstick.passes.sharding.ask import Ask
from slipstick.passes.sharding.rules import rule_for
from slipstick.verify.numeric.call import RankCall, zigzag
from slipstick.verify.numeric.ops.attention import loss_of

from .plain_ops import REFERENCES

Placements = tuple[Placement, ...]
Tensors = tuple[Tensor, ...]
_MOST = 1500  # tuples of placements that are all asked for; of more, some


@dataclass(frozen=True, eq=False)
class Case:
    """One call: sizes of its inputs and outputs, and what else a rule looks at.

    Attributes:
        ids: inputs of integers, with the number of things that they count.
        packed: dims that are several tensors side by side, by tensor (inputs, then outputs) and dim: their sizes.
        params: inputs that are parameters.
        forward: placements of the inputs of the forward node, those to ask with.
        sequence: the dim of each tensor that balanced context parallelism distributes, -1 for none.
        rows: tensors of rows of experts, which lie expert by expert: a rank's shard of their tokens is one of each.
        rows_last: the same of tensors that have their rows in dim 1.
        again: other sizes of packed dims, where what is taken out of one is packed itself.
        own: each rank has all tokens and takes the rows of its own experts.
        made: places of inputs that are not drawn, but outputs of another call of these inputs (statistics, results).
        tail: entries at the end of packed dims of which, in one more layout, every rank holds a copy.
        copied: whether this is that layout.
        stacked: a reshape of tensors side by side, as columns, into whole heads of each, or back.
    """

    name: str
    op: str
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    attrs: Attrs = NO_ATTRS
    ids: Mapping[int, int] = field(default_factory=dict)
    packed: Mapping[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    params: tuple[int, ...] = ()
    forward: tuple[Placements, ...] = ((),)
    sequence: tuple[int, ...] = ()
    axes: tuple[str, ...] = ("tp", "dp")
    made: tuple[tuple[int, str, tuple[int, ...], int, Attrs], ...] = ()
    phases: tuple[Phase, ...] = (Phase.FORWARD, Phase.BACKWARD)
    even: int = -1
    rows: tuple[int, ...] = ()
    rows_last: tuple[int, ...] = ()
    own: bool = False
    again: tuple[Mapping[tuple[int, int], tuple[int, ...]], ...] = ()
    tail: Mapping[tuple[int, int], int] = field(default_factory=dict)
    copied: bool = False
    stacked: bool = False

    @property
    def call(self) -> OpCall:
        """The call with the types of all ranks together."""
        kinds = [DType.INT64 if i in self.ids else DType.FP64 for i in range(len(self.inputs))]
        given = tuple(TensorType(d, k) for d, k in zip(self.inputs, kinds, strict=True))
        return OpCall(self.op, self.attrs, given, tuple(TensorType(d, DType.FP64) for d in self.outputs))

    def parts(self, tensor: int, dim: int) -> tuple[int, ...]:
        """Sizes of the tensors side by side in a packed dim: halves, unless the case says otherwise."""
        size = (*self.inputs, *self.outputs)[tensor][dim]
        return self.packed.get((tensor, dim), (size // 2, size // 2))

    def held(self, tensor: int, lies: Placement) -> int:
        """Entries at the end of a packed dim that every rank holds."""
        if not self.copied or not isinstance(lies, Shard) or not lies.packed:
            return 0
        return self.tail.get((tensor, lies.dim), 0)


@cache
def whole(case: Case) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Inputs of a case, drawn at random, and its outputs."""
    gen = torch.Generator().manual_seed(len(case.name) * 7 + len(case.op))
    given: list[Tensor] = []
    for i, dims in enumerate(case.inputs):
        if i == case.even:  # two places of each of the experts, all as often
            num, (rows, k) = case.ids[i], dims
            given.append(torch.stack([(torch.arange(rows) + j) % num for j in range(k)], dim=1))
        elif i in case.ids:
            given.append(torch.randint(0, case.ids[i], dims, generator=gen))
        else:
            given.append(torch.randn(dims, generator=gen, dtype=torch.float64))
    for place, op, sources, part, attrs in case.made:
        node = Node(op, sources, (99,), attrs)
        unsaid: tuple[tuple[int, ...], ...] = ((),) * 5
        given[place] = REFERENCES[op](RankCall(node, tuple(given[s] for s in sources), unsaid, {}, {}))[part]
    node = Node(case.op, tuple(range(len(given))), (99,), case.attrs)
    return tuple(given), REFERENCES[case.op](RankCall(node, tuple(given), case.outputs, {}, {}))


def split(t: Tensor, lies: Placement, degree: int, parts: tuple[int, ...]) -> list[Tensor]:
    """What each rank holds."""
    if isinstance(lies, Shard):
        if not lies.packed:
            return list(t.chunk(degree, lies.dim))
        pieces = [p.chunk(degree, lies.dim) for p in torch.split(t, list(parts), lies.dim)]
        return [torch.cat(row, lies.dim) for row in zip(*pieces, strict=True)]
    if isinstance(lies, Partial):
        gen = torch.Generator().manual_seed(11)
        rest = [torch.randn(t.shape, generator=gen, dtype=t.dtype) * 3 - 5 * (-1) ** r for r in range(degree - 1)]
        return [*rest, t - sum(rest)]
    return [t] * degree


def joined(ranks: Sequence[Tensor], lies: Placement, parts: tuple[int, ...]) -> Tensor | None:
    """The tensor that ranks hold together, None where they hold different copies."""
    if isinstance(lies, Shard):
        if not lies.packed:
            return torch.cat(tuple(ranks), lies.dim)
        degree = len(ranks)
        pieces = [torch.split(r, [p // degree for p in parts], lies.dim) for r in ranks]
        return torch.cat([torch.cat(column, lies.dim) for column in zip(*pieces, strict=True)], lies.dim)
    if isinstance(lies, Partial):
        return torch.stack(tuple(ranks)).sum(0)
    return ranks[0] if all(torch.allclose(r, ranks[0], rtol=1e-9, atol=1e-9) for r in ranks) else None


def with_copies(t: Tensor, dim: int, degree: int, held: int) -> list[Tensor]:
    """What each rank holds where the last entries of a dim are on all of them."""
    cut, rest = torch.split(t, [t.shape[dim] - held, held], dim)
    return [torch.cat((c, rest), dim) for c in cut.chunk(degree, dim)]


def of_copies(ranks: Sequence[Tensor], dim: int, held: int) -> Tensor:
    """The tensor of which each rank has made its shard, and a summand of the last entries."""
    pairs = [torch.split(r, [r.shape[dim] - held, held], dim) for r in ranks]
    return torch.cat((*(cut for cut, _ in pairs), torch.stack([rest for _, rest in pairs]).sum(0)), dim)


def fits(case: Case, entry: PlacementEntry, degree: int) -> bool:
    """Whether every shard of an entry divides its dim (of a packed one, all its parts)."""
    shapes = (*case.inputs, *case.outputs)
    for k, lies in enumerate((*entry.inputs, *entry.outputs)):
        if isinstance(lies, Shard):
            if lies.dim >= len(shapes[k]):
                return False
            cut = shapes[k][lies.dim] - case.held(k, lies)
            sizes = case.parts(k, lies.dim) if lies.packed and not case.held(k, lies) else (cut,)
            if any(s % degree for s in sizes) or sum(sizes) != cut:
                return False
        if isinstance(lies, Partial) and k in case.ids:
            return False
    return True


def holds(case: Case, entry: PlacementEntry, axis: str, degree: int) -> bool:
    """Whether an entry is true: each rank's results put together are the whole ones."""
    given, want = whole(case)
    count, attrs = len(given), _local_attrs(case, axis, entry)
    order = zigzag(max(case.inputs[0][case.sequence[0]], 1), degree) if _is_balanced(case, attrs) else None
    if order is not None:
        given = tuple(_dealt(t, d, order) for t, d in zip(given, case.sequence, strict=False))
    given_as = [_by_expert(case, i, p) for i, p in enumerate(entry.inputs)]
    held = [_split(case, i, t, p, degree) for i, (t, p) in enumerate(zip(given, given_as, strict=True))]
    sources = tuple(_value(d, axis, p) for d, p in zip(case.inputs, entry.inputs, strict=True))
    results = tuple(_value(d, axis, p) for d, p in zip(case.outputs, entry.outputs, strict=True))
    kept = [case.held(count + k, p) for k, p in enumerate(entry.outputs)]
    dims = tuple(_local(d, p, degree, n) for d, p, n in zip(case.outputs, entry.outputs, kept, strict=True))
    node = Node(case.op, tuple(range(count)), (99,), attrs)
    calls = [
        RankCall(node, tuple(h[r] for h in held), dims, {axis: r}, {axis: degree}, sources, results)
        for r in range(degree)
    ]
    try:
        ranks = [REFERENCES[case.op](c) for c in calls]
    except (RuntimeError, ValueError, IndexError):
        return False  # parts that do not even fit together
    ranks = _with_loss(case, entry, calls, ranks)
    made_as = [_by_expert(case, count + k, p) for k, p in enumerate(entry.outputs)]
    for k, (w, p) in enumerate(zip(want, made_as, strict=False)):
        try:
            made = _joined(case, count + k, [r[k] for r in ranks], p)
        except RuntimeError:
            return False
        if made is not None and order is not None:
            made = _dealt(made, case.sequence[count + k], torch.argsort(order))
        if made is None or made.shape != w.shape or not torch.allclose(made.to(w.dtype), w, rtol=1e-8, atol=1e-8):
            return False
    return True


def _by_expert(case: Case, tensor: int, lies: Placement) -> Placement:
    """Rows that lie with their tokens are a part of each expert's; those that lie with experts are a block."""
    if isinstance(lies, Shard) and not lies.routed and tensor in (case.rows, case.rows_last, ())[lies.dim % 3]:
        return Shard(lies.dim, packed=True)
    return lies


def _split(case: Case, tensor: int, t: Tensor, lies: Placement, degree: int) -> list[Tensor]:
    if isinstance(lies, Shard) and case.held(tensor, lies):
        return with_copies(t, lies.dim, degree, case.held(tensor, lies))
    return split(t, lies, degree, _parts(case, tensor, lies))


def _joined(case: Case, tensor: int, ranks: Sequence[Tensor], lies: Placement) -> Tensor | None:
    if isinstance(lies, Shard) and case.held(tensor, lies):
        return of_copies(ranks, lies.dim, case.held(tensor, lies))
    return joined(ranks, lies, _parts(case, tensor, lies))


def _parts(case: Case, tensor: int, lies: Placement) -> tuple[int, ...]:
    return case.parts(tensor, lies.dim) if isinstance(lies, Shard) and lies.packed else ()


def _value(dims: tuple[int, ...], axis: str, lies: Placement) -> Value:
    return Value(0, TensorType(dims, DType.FP64), 0, placements=((MeshAxis(axis), lies),))


def _local(dims: tuple[int, ...], lies: Placement, degree: int, held: int = 0) -> tuple[int, ...]:
    cut = lies.dim if isinstance(lies, Shard) else -1
    return tuple((d - held) // degree + held if cut == i else d for i, d in enumerate(dims))


def _local_attrs(case: Case, axis: str, entry: PlacementEntry | None = None) -> Attrs:
    """The pass says of attention whose queries are split over `cp` that they are distributed evenly."""
    if axis != "cp" or not isinstance(case.attrs, AttentionAttrs):
        return case.attrs
    split_queries = entry is None or entry.inputs[0 if case.op == "attention" else 1] == Shard(2)
    return replace(case.attrs, balanced=split_queries)


def _is_balanced(case: Case, attrs: Attrs) -> bool:
    return bool(case.sequence) and isinstance(attrs, AttentionAttrs) and attrs.balanced


def _dealt(t: Tensor, dim: int, order: Tensor) -> Tensor:
    return t if dim < 0 else t.index_select(dim, order)


def _with_loss(
    case: Case, entry: PlacementEntry, calls: Sequence[RankCall], ranks: list[tuple[Tensor, ...]]
) -> list[tuple[Tensor, ...]]:
    """The loss of a split vocabulary is made of statistics that all ranks have summed: the op is two steps then."""
    if case.op != "cross_entropy" or entry.outputs != (REPLICATE, PARTIAL):
        return ranks
    statistics = torch.stack([r[1] for r in ranks]).sum(0)
    return [(loss_of(c, statistics, c.inputs[1]), r[1]) for c, r in zip(calls, ranks, strict=True)]


def choices(case: Case, index: int) -> list[Placement]:
    """How an input may lie."""
    dims = case.inputs[index]
    found: list[Placement] = [REPLICATE, *(Shard(d) for d, n in enumerate(dims) if n > 1)]
    if index not in case.ids:
        found.append(PARTIAL)
    found += [Shard(d, packed=True) for t, d in case.packed if t == index and t not in (*case.rows, *case.rows_last)]
    return found


def tuples(case: Case, lawful: Sequence[PlacementEntry]) -> Iterator[Placements]:
    """All tuples of placements of the inputs; where they are too many, those of one input, lawful ones, some drawn."""
    options = [choices(case, i) for i in range(len(case.inputs))]
    total = 1
    for o in options:
        total *= len(o)
    if total <= _MOST:
        yield from itertools.product(*options)
        return
    none: Placements = (REPLICATE,) * len(options)
    seen: set[Placements] = {none, *(e.inputs for e in lawful)}
    seen |= {(*none[:i], p, *none[i + 1 :]) for i, o in enumerate(options) for p in o}
    chance = random.Random(5)
    while len(seen) < _MOST // 3:
        seen.add(tuple(chance.choice(o) for o in options))
    yield from sorted(seen, key=str)


def asks(case: Case, axis: str, given: Placements) -> Iterator[Ask]:
    """What a rule may be asked for one tuple: in each phase, with and without sequence parallelism."""
    sp: Placements = tuple(Shard(1) if len(d) == 3 else REPLICATE for d in case.inputs)
    call = case.call
    params = tuple(i in case.params for i in range(len(given)))
    copies = (*(False,) * (len(given) - 1), True)
    for phase, forward, on_all in itertools.product(case.phases, case.forward, ((), copies) if case.tail else ((),)):
        for reduced in ((REPLICATE,) * len(given), *((sp,) if axis == "tp" else ())):
            cp = "ring" if axis == "cp" else "none"
            yield Ask(
                axis, call, given, params, reduced, phase, forward, cp, all_tokens=case.own,
                on_all=on_all, stacked=case.stacked,
            )  # fmt: skip


@dataclass
class Row:
    """What became of one case along one axis."""

    right: set[str] = field(default_factory=set)
    wrong: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    false_laws: set[str] = field(default_factory=set)
    unlawful: set[str] = field(default_factory=set)


def _laws(case: Case, axis: str) -> Iterator[PlacementEntry]:
    """Entries of the proof, of attention as the pass leaves it where its queries are split, and where they are not."""
    for attrs in dict.fromkeys((case.attrs, _local_attrs(case, axis))):
        index_map = index_map_of(OpCall(case.op, attrs, case.call.inputs, case.call.outputs), axis)
        assert index_map is not None, case.op
        yield from index_map.entries()


def _tried(case: Case, entry: PlacementEntry, axis: str, degrees: Sequence[int]) -> bool | None:
    """Whether an entry is true of all degrees that divide its dims, None when none does."""
    tried = [holds(case, entry, axis, n) for n in degrees if fits(case, entry, n)]
    return all(tried) if tried else None


def row(case: Case, axis: str, degrees: Sequence[int] = (2, 3)) -> Row:
    """Judge a rule's answers and the laws of the proof, each distinct entry once."""
    found = Row()
    lawful = list(dict.fromkeys(_laws(case, axis)))
    judged: dict[PlacementEntry, bool | None] = {}
    layouts = [case, *(replace(case, packed=packed) for packed in case.again)]
    layouts += [replace(case, copied=True)] if case.tail else []

    def judge(entry: PlacementEntry) -> bool | None:
        if entry not in judged:
            verdicts = [_tried(c, entry, axis, degrees) for c in layouts]
            told = [v for v in verdicts if v is not None]
            judged[entry] = any(told) if told else None
        return judged[entry]

    def needs_copies(entry: PlacementEntry) -> bool:
        return bool(case.tail) and not any(_tried(c, entry, axis, degrees) for c in layouts[:-1])

    for entry in lawful:
        if judge(entry) is False:
            found.false_laws.add(str(entry))
    for given in tuples(case, lawful):
        stays = [e for e in lawful if e.inputs == given and any(p != REPLICATE for p in given) and judge(e)]
        stays = [e for e in stays if not needs_copies(e)]
        for ask in asks(case, axis, given):
            answer = rule_for(case.op, case.name)(ask)
            entry = PlacementEntry(answer.inputs, answer.outputs)
            verdict = judge(entry)
            if verdict is not None:
                (found.right if verdict else found.wrong).add(str(entry))
                if verdict and not any(law.fits(entry.inputs, entry.outputs) for law in lawful):
                    found.unlawful.add(str(entry))
            if stays and answer.inputs != given and not ask.on_all:
                found.missing.add(str(stays[0]))
    return found
