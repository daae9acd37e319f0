"""Entries moved by index: gather and scatter, with letters that say which dims are handed on and which looked up."""

from __future__ import annotations

import re
import string
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from ...records import dataclass
from ...sizes.expr import Dim, total
from ...types import TensorType
from ..base import Attrs, OpCall, OpClass, OpDef, ShardChoice, Work
from ..index_map import IndexMap, tensor, whole
from ..traits import Trait

Labels = Sequence[Hashable | None]

_WORDS = r"[a-zA-Z]*(,[a-zA-Z]*)*"
_SPEC = re.compile(f"{_WORDS}->{_WORDS}")


@dataclass(frozen=True, slots=True)
class LookupAttrs(Attrs):
    """`spec` gives each dim of each input, and behind `->` of the result, a letter: `abc,d->abd`.

    Dims of one letter are one dim: entry i of it in the result comes from entry i of it in the operands (or goes there,
    for a scatter). A letter of the data alone is looked up; one of the result alone is new. Without a spec nothing is
    known. `adds` says that entries that meet in one place are summed, and that what nothing is written to is kept.
    """

    spec: str = ""
    adds: bool = False

    @property
    def letters(self) -> tuple[str, ...]:
        """The letters of each input and of the result; nothing without a spec."""
        return letters_of(self.spec)


def letters_of(spec: str) -> tuple[str, ...]:
    """Return the letters of each input and of each result; nothing without a spec.

    >>> letters_of("ab,b->ab,a")
    ('ab', 'b', 'ab', 'a')
    """
    return tuple(spec.replace("->", ",").split(",")) if spec else ()


def lookup_of(labels: Sequence[Labels], adds: bool = False) -> LookupAttrs:
    """Return the attributes for labels of the dims of each input and of the result; None is a dim of its own.

    >>> lookup_of([(0, 1, 2), ("i",), (0, 1, "i")]).spec
    'abc,d->abd'
    >>> lookup_of([(0, 1), (0, None)]).spec
    'ab->ac'
    """
    return LookupAttrs(spec_of(labels[:-1], labels[-1:]), adds)


def spec_of(inputs: Sequence[Labels], outputs: Sequence[Labels]) -> str:
    """Return the letters for labels of the dims of each input and of each result; None is a dim of its own.

    >>> spec_of([("n", "c", None), ("c",)], [("n", "c", None), ("c",)])
    'abc,b->abd,b'
    """
    named: dict[Hashable, str] = {}
    fresh = iter(string.ascii_letters)
    given, made = (
        ["".join(_letter(label, named, fresh) for label in one) for one in side] for side in (inputs, outputs)
    )
    return f"{','.join(given)}->{','.join(made)}"


def _letter(label: Hashable | None, named: dict[Hashable, str], fresh: Iterator[str]) -> str:
    if label is None:
        return next(fresh)
    if label not in named:
        named[label] = next(fresh)
    return named[label]


def copied_dims(source: Sequence[Dim], result: Sequence[Dim], changed: Sequence[int] = ()) -> tuple[Labels, Labels]:
    """Return labels for a copy that repeats or reorders dims: counted from the right, those of one size are the same.

    `changed` dims of the source come in another order, so that they are not the same in spite of their size.

    >>> lookup_of(copied_dims((2, 8), (3, 2, 16))).spec
    'ab->cad'
    """
    shift = len(result) - len(source)
    kept = {i for i, d in enumerate(source) if i + shift >= 0 and result[i + shift] == d and i not in changed}
    given = tuple(i if i in kept else None for i in range(len(source)))
    return given, tuple(i - shift if i - shift in kept else None for i in range(len(result)))


def _check(call: OpCall) -> Iterator[str]:
    if spec := call.attrs_as(LookupAttrs).spec:
        yield from spec_complaints(spec, call)


def spec_complaints(spec: str, call: OpCall) -> Iterator[str]:
    """Yield what is wrong with the letters of a call: of each tensor one a dim, and one size a letter."""
    letters, tensors = letters_of(spec), (*call.inputs, *call.outputs)
    given = spec.partition("->")[0].split(",")
    if _SPEC.fullmatch(spec) is None or len(letters) != len(tensors) or len(given) != len(call.inputs):
        yield f"spec '{spec}' is not letters for {len(call.inputs)} inputs and, behind '->', for the result"
        return
    if [len(word) for word in letters] != [t.rank for t in tensors]:
        yield f"spec {spec} wants ranks {[len(word) for word in letters]}, has {[t.rank for t in tensors]}"
        return
    yield from _sizes(spec, letters, tensors)


def _sizes(spec: str, letters: Sequence[str], tensors: Sequence[TensorType]) -> Iterator[str]:
    size: dict[str, Dim] = {}
    for word, t in zip(letters, tensors, strict=True):
        for letter, dim in zip(word, t.dims, strict=True):
            if size.setdefault(letter, dim) != dim:
                yield f"spec {spec}: letter {letter} is {size[letter]} and {dim}"


def _work_gather(call: OpCall) -> Work:
    out = call.outputs[0].num_bytes
    return Work(read_bytes=out + total(t.num_bytes for t in call.inputs[1:]), write_bytes=out)


def _work_scatter(call: OpCall) -> Work:
    """Copy the base, then read and write what is scattered."""
    return Work(
        read_bytes=total(t.num_bytes for t in call.inputs),
        write_bytes=total(t.num_bytes for t in call.outputs),
    )


def _map_gather(call: OpCall, _axis: str) -> IndexMap:
    """Letters: one of the result is handed on, or new; one of operands alone is looked up, or counted over.

    Entries are moved and not changed: linear in what they are taken from.
    """
    index_map = _letters(call)
    return index_map if call.attrs_as(LookupAttrs).adds else replace(index_map, linear=((0,),))


def _map_scatter(call: OpCall, _axis: str) -> IndexMap:
    """Letters: of one that is written at indices a rank takes what falls into its part; what is added over is a sum.

    Linear in base and source together.
    """
    index_map, last = _letters(call), len(call.inputs) - 1
    return replace(index_map, added=(0,) if index_map.sums else (), linear=((0, last),) if last else ((0,),))


def _letters(call: OpCall) -> IndexMap:
    attrs = call.attrs_as(LookupAttrs)
    if not attrs.letters:
        return IndexMap(whole(call.inputs), whole(call.outputs))
    *given, made = attrs.letters
    summed = sorted({f for word in given for f in word if f is not None} - set(made)) if attrs.adds else []
    return IndexMap(tuple(map(tensor, given)), (tensor(made),), tuple((f, 0) for f in summed))


OPS = (
    OpDef("gather", OpClass.MEMORY, _work_gather, "entries at indices; inputs: x, indices", _check, LookupAttrs,
          min_inputs=1, traits=frozenset({Trait.LOOKS_UP}), index_map=_map_gather,
          shard=ShardChoice(packs="any", sums="backward")),
    OpDef("scatter", OpClass.MEMORY, _work_scatter, "entries put at indices; inputs: base, indices, source", _check,
          LookupAttrs, min_inputs=1, index_map=_map_scatter,
          shard=ShardChoice(packs="any", order="last", sums="backward", joins=True)),
)  # fmt: skip
