"""The sizes that a program leaves open to batch, seq and kv: as the user says, else by place and name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field

from ...ir.errors import NotUnderstoodError, UnknownNameError, UsageError
from ...ir.graph import Workload
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim, Expr, as_dim, as_expr, symbol
from ...ir.units import is_digits
from .program import ReplayProgram, SizeInput, TensorInput

BATCH, SEQ, KV = "batch", "seq", "kv"
NAMES = (BATCH, SEQ, KV)
_MEANINGS: Mapping[str, Expr] = {
    **{name: symbol(name) for name in NAMES},
    "total": symbol(KV) + symbol(SEQ),
    "tokens": symbol(BATCH) * symbol(SEQ),
}

# Example sizes: neither 0 nor 1, apart from one another, and never a size of the model, or torch takes two for one.
_HINTS: Mapping[str, tuple[int, ...]] = {
    BATCH: (3, 5, 7, 11, 13, 17, 19, 23),
    SEQ: (48, 50, 54, 58, 62, 66, 70, 74),
    KV: (80, 82, 86, 90, 94, 98, 102, 106),
}
_OTHER_NAMES = {
    "b": BATCH,
    "bs": BATCH,
    "batch_size": BATCH,
    "s": SEQ,
    "t": SEQ,
    "seq_len": SEQ,
    "sequence": SEQ,
    "length": SEQ,
    "past": KV,
    "past_len": KV,
    "kv_len": KV,
    "cache_len": KV,
}


@dataclass
class Naming:
    """What each open size of a program stands for, and how that was found."""

    meaning: dict[str, Dim] = field(default_factory=dict)
    guessed: list[str] = field(default_factory=list)

    def dims(self, given: TensorInput) -> tuple[Dim, ...]:
        """Return the dims of an input in our names."""
        return tuple(self.dim(d) for d in given.dims)

    def dim(self, given: Dim) -> Dim:
        """Return one size in our names."""
        return given if isinstance(given, int) else as_dim(given.substitute(self.meaning))

    @property
    def note(self) -> str:
        """What was guessed, for people; empty when nothing was."""
        return f"sizes taken by their place: {', '.join(self.guessed)}" if self.guessed else ""


def name_sizes(program: ReplayProgram, workload: Workload, given: Mapping[str, str | int] | None = None) -> Naming:
    """Return what the open sizes stand for.

    `given` maps a size of the program (`s70`) to batch, seq, kv, total (kv + seq), tokens (batch x seq) or a number.
    The others are taken by name, then by place: dims 0 and 1 of an input are batch and sequence, dim 2 of one with four
    dims is the length of a KV cache. A decode step has a sequence of one token. NotUnderstoodError names a size that is
    none of them.
    """
    places = dict(_places(program))
    naming = Naming()
    for name, value in (given or {}).items():
        if name not in places:
            raise UnknownNameError.of("size of the program", name, places)
        naming.meaning[name] = _meant(name, value)
    for name, place in places.items():
        if name not in naming.meaning:
            naming.meaning[name] = symbol(_guess(name, place, program, naming))
    _refuse_one_name_for_two(naming, places)
    if workload is Workload.DECODE:
        naming.meaning = {name: as_dim(as_expr(m).substitute({SEQ: 1})) for name, m in naming.meaning.items()}
    return naming


def longest(program: ReplayProgram, naming: Naming) -> int:
    """Return the longest sequence that the program was made for, 0 when it does not say."""
    return next((limit for name, limit in program.limits.items() if naming.meaning.get(name) == symbol(SEQ)), 0)


def hints_for(program: ReplayProgram) -> dict[str, int]:
    """Return example sizes of batch, seq and kv that no tensor of the program has."""
    held = [*program.root.parameters(), *program.root.buffers()]
    taken = {size for t in held for size in t.shape} | {
        d for t in program.tensors for d in t.dims if isinstance(d, int)
    }
    return {name: next((h for h in choices if h not in taken), choices[0]) for name, choices in _HINTS.items()}


def _places(program: ReplayProgram) -> Iterator[tuple[str, tuple[TensorInput | None, int]]]:
    """Yield every open size once, with the first input and dim that is this size and nothing else."""
    seen: set[str] = set()
    for source in program.tensors:
        for index, dim in enumerate(source.dims):
            name = next(iter(dim.symbols)) if isinstance(dim, Expr) and len(dim.symbols) == 1 else ""
            if name and name not in seen and dim == symbol(name):
                seen.add(name)
                yield name, (source, index)
    rest = [d for t in program.tensors for d in t.dims]
    rest += [s.value for s in program.sources if isinstance(s, SizeInput)]
    for name in sorted({n for d in rest if isinstance(d, Expr) for n in d.symbols} - seen):
        yield name, (None, 0)


def _meant(name: str, value: str | int) -> Dim:
    if isinstance(value, int) or is_digits(value):
        if int(value) < 1:
            raise UsageError(f"size {name}={value}: a size is at least 1")
        return int(value)
    if value not in _MEANINGS:
        raise UnknownNameError.of(f"meaning of size '{name}'", value, [*_MEANINGS, "a number"])
    return as_dim(_MEANINGS[value])


def _guess(name: str, place: tuple[TensorInput | None, int], program: ReplayProgram, naming: Naming) -> str:
    source, index = place
    taken = {str(m) for m in naming.meaning.values()}
    found = name if name in NAMES else _OTHER_NAMES.get(name.lower(), "")
    if found and found not in taken:
        return found
    found = _by_place(source, index) if source is not None else ""
    if not found or found in taken:
        where = f"dim {index} of input '{source.name}'" if source is not None else "handed over as a number"
        raise NotUnderstoodError(
            f"size '{name}' of '{program.name}' ({where}) is neither batch, sequence nor KV length by its place; say "
            f"what it is, as {name}=batch, {name}=seq, {name}=kv or {name}=NUMBER"
        )
    naming.guessed.append(f"{name} is {found} (dim {index} of {source.name})" if source is not None else name)
    return found


def _by_place(source: TensorInput, index: int) -> str:
    if index == 2 and len(source.dims) == 4:
        return KV
    if index == 1 and re.search(r"past|cache", source.name) and len(source.dims) == 4:
        return ""
    return {0: BATCH, 1: SEQ}.get(index, "")


def _refuse_one_name_for_two(naming: Naming, places: Mapping[str, object]) -> None:
    seen: dict[str, str] = {}
    for name in places:
        meaning = naming.meaning[name]
        text = str(as_expr(meaning))
        if isinstance(meaning, Expr) and text in seen:
            raise UsageError(f"sizes '{seen[text]}' and '{name}' are both said to be {text}; they may differ")
        seen[text] = name
