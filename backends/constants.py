"""Constants of kernels: those that carry over to any chip, then what a chip and a library were measured to have.

A calibration is a YAML file of layers. `kernels` holds constants by class and kind; `libraries` holds, by the name of a
library and way of measuring, what differs under it. Later layers go before earlier ones, constant by constant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast, get_args

from ..ir.errors import SystemFileError, UnknownNameError, UsageError, did_you_mean
from ..ir.units import parse_quantity, split_quantity
from .kernels.attention_additive import AdditiveConstants
from .kernels.attention_decode import DecodeConstants
from .kernels.attention_flash import FlashConstants
from .kernels.attention_unfused import UnfusedConstants
from .kernels.collective import CollectiveConstants, CustomAllReduceConstants
from .kernels.gemm import GemmConstants
from .kernels.limits import Limit, limits_of
from .kernels.roofline import RooflineConstants
from .records import Confidence, NumberRecord

if TYPE_CHECKING:
    from .system_tree import Tree

C = TypeVar("C")
Kinds: TypeAlias = Mapping[str, C]
# What a kind says of itself beside its constants.
_NOTES = ("source", "confidence", "as_of", "like")


@dataclass(frozen=True, slots=True)
class KernelConstants:
    """Constants by class and kind; a kind is a dtype, an op or the name of a kernel, as its class says."""

    name: str
    roofline: Kinds[RooflineConstants] = field(default_factory=dict)
    gemm: Kinds[GemmConstants] = field(default_factory=dict)
    attention: Kinds[FlashConstants] = field(default_factory=dict)
    decode: Kinds[DecodeConstants] = field(default_factory=dict)
    unfused_attention: Kinds[UnfusedConstants] = field(default_factory=dict)
    additive_attention: Kinds[AdditiveConstants] = field(default_factory=dict)
    collective: Kinds[CollectiveConstants] = field(default_factory=dict)
    custom_all_reduce: Kinds[CustomAllReduceConstants] = field(default_factory=dict)


CLASSES: Mapping[str, type] = MappingProxyType(
    {
        "roofline": RooflineConstants,
        "gemm": GemmConstants,
        "attention": FlashConstants,
        "decode": DecodeConstants,
        "unfused_attention": UnfusedConstants,
        "additive_attention": AdditiveConstants,
        "collective": CollectiveConstants,
        "custom_all_reduce": CustomAllReduceConstants,
    }
)


def kind_of(kinds: Kinds[C], *names: str) -> C:
    """Return the constants of the first kind there is; UnknownNameError when there is none."""
    for name in names:
        if name in kinds:
            return kinds[name]
    raise UnknownNameError.of("kind of kernel", names[0], kinds)


@dataclass(frozen=True, slots=True)
class _Cell:
    """One constant as written, with what its kind says of it."""

    text: str
    source: str
    confidence: str
    as_of: str | None


Cells: TypeAlias = dict[tuple[str, str], dict[str, _Cell]]


def read_constants(
    name: str, layers: Sequence[tuple[str, Mapping[str, Tree]]], library: str
) -> tuple[KernelConstants, tuple[NumberRecord, ...]]:
    """Lay calibrations over one another, each a name for messages and a tree; the last goes before the others.

    SystemFileError lists all that is unknown, missing, without its unit or out of range.
    """
    cells: Cells = {}
    faults: list[str] = []
    for where, tree in layers:
        for path, part in (("kernels", tree.get("kernels")), (f"libraries.{library}", _library(tree, library))):
            faults += [f"{where}: {path}.{fault}" for fault in _lay(cells, part)]
    records = [r for (cls, kind), found in cells.items() for r in _records(cls, kind, found, faults)]
    tables = {cls: _table(cls, cells, faults) for cls in CLASSES}
    if faults:
        count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        raise SystemFileError("\n  ".join([f"calibration '{name}' has {count}:", *dict.fromkeys(faults)]))
    return KernelConstants(name, **tables), tuple(records)  # type: ignore[arg-type]


def library_names(layers: Sequence[Mapping[str, Tree]]) -> tuple[str, ...]:
    """Name the libraries that calibrations know."""
    found: dict[str, None] = {}
    for tree in layers:
        libraries = tree.get("libraries")
        found |= dict.fromkeys(libraries) if isinstance(libraries, dict) else {}
    return tuple(sorted(found))


def _library(tree: Mapping[str, Tree], library: str) -> Tree:
    libraries = tree.get("libraries")
    return libraries.get(library) if isinstance(libraries, dict) else None


def _lay(cells: Cells, tree: Tree) -> Iterator[str]:
    if tree is None:
        return
    if not isinstance(tree, dict):
        yield f"expected classes of kernels, not {tree!r}"
        return
    for cls, kinds in tree.items():
        if cls not in CLASSES or not isinstance(kinds, dict):
            yield f"{cls}: unknown class of kernels{did_you_mean(cls, list(CLASSES))} allowed: {', '.join(CLASSES)}"
            continue
        for kind, block in kinds.items():
            yield from _lay_kind(cells, cls, kind, block)


def _lay_kind(cells: Cells, cls: str, kind: str, block: Tree) -> Iterator[str]:
    if not isinstance(block, dict):
        yield f"{cls}.{kind}: expected its constants, not {block!r}"
        return
    like = block.get("like")
    if isinstance(like, str):
        if (cls, like) not in cells:
            yield f"{cls}.{kind}: like '{like}', which is not given before it"
        cells[cls, kind] = {**cells.get((cls, like), {}), **cells.get((cls, kind), {})}
    source, confidence, as_of = (block.get(k) for k in ("source", "confidence", "as_of"))
    if not isinstance(source, str) or not source:
        yield f"{cls}.{kind}: missing source"
    if confidence not in get_args(Confidence):
        yield f"{cls}.{kind}.confidence: one of {', '.join(get_args(Confidence))}, not {confidence!r}"
    known = _keys(CLASSES[cls])
    for key, value in block.items():
        if key in known:
            here = cells.setdefault((cls, kind), {})
            here[key] = _Cell(str(value), str(source), str(confidence), None if as_of is None else str(as_of))
        elif key not in _NOTES:
            yield f"{cls}.{kind}: unknown key '{key}'{did_you_mean(key, list(known))} allowed: {', '.join(known)}"


def _keys(constants: type) -> dict[str, str]:
    """Keys of a file to fields: `overhead` with its unit is `overhead_s`."""
    return {f.name.removesuffix("_s"): f.name for f in fields(constants)}


def _dimension(name: str) -> str:
    return "s" if name.endswith("_s") else "1"


def _table(cls: str, cells: Cells, faults: list[str]) -> Mapping[str, object]:
    kinds = CLASSES[cls]
    limits = limits_of(kinds)
    table: dict[str, object] = {}
    for (of, kind), found in cells.items():
        if of == cls:
            table[kind] = _constants(kinds, f"{cls}.{kind}", found, limits, faults)
    return MappingProxyType({k: v for k, v in table.items() if v is not None})


def _constants(
    kinds: type, path: str, found: Mapping[str, _Cell], limits: Mapping[str, Limit], faults: list[str]
) -> object | None:
    values: dict[str, float] = {}
    for key, name in _keys(kinds).items():
        if key not in found:
            faults.append(f"{path}: missing {key}")
            continue
        try:
            values[name] = _number(found[key].text, name, limits[name])
        except UsageError as error:
            faults.append(f"{path}.{key}: {error}")
    return kinds(**values) if len(values) == len(limits) else None


def _number(text: str, name: str, limit: Limit) -> float:
    dimension = _dimension(name)
    if dimension != "1" and not split_quantity(text)[1] and float(text) != 0.0:
        raise UsageError(f"missing unit of '{text}', as in 3 us")
    value = parse_quantity(text, dimension).value_si
    if not limit.low <= value <= limit.high:
        raise UsageError(f"'{text}' is outside of {limit.low:g} to {limit.high:g}")
    return value


def _records(cls: str, kind: str, found: Mapping[str, _Cell], faults: list[str]) -> Iterator[NumberRecord]:
    keys = _keys(CLASSES[cls])
    for key, cell in found.items():
        try:
            number, unit = split_quantity(cell.text)
            value_si = parse_quantity(cell.text, _dimension(keys[key])).value_si
        except UsageError as error:
            faults.append(f"{cls}.{kind}.{key}: {error}")
            continue
        confidence = cast(Confidence, cell.confidence)
        path = f"calibration.{cls}.{kind}.{key}"
        yield NumberRecord(path, number, unit, value_si, _dimension(keys[key]), cell.source, confidence, cell.as_of)
