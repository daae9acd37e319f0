"""Constants of kernels: those that carry over to any chip, then what a chip and a library were measured to have.

A calibration is a YAML file of layers. `kernels` holds constants by class and kind; `libraries` holds, by the name of a
library and way of measuring, what differs under it; a library that is `like` another has what that one has, unless it
says otherwise. Later layers go before earlier ones, constant by constant. `fit` records what a fit was made from and
how near it came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, field, fields
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar, cast, get_args

from ...ir.errors import UnknownNameError, UsageError, did_you_mean
from ...ir.records import dataclass
from ...ir.units import parse_quantity, split_quantity
from ..machine.files.faults import FileFault, all_of
from ..machine.files.records import Confidence, NumberRecord
from ..machine.power_constants import PowerConstants
from .attention.additive import AdditiveConstants
from .attention.decode import DecodeConstants
from .attention.flash import FlashConstants
from .attention.unfused import UnfusedConstants
from .collective import CollectiveConstants, CustomAllReduceConstants
from .exchange import ExchangeConstants
from .experts import ExpertsConstants
from .gemm import GemmConstants
from .grouped import GroupedConstants
from .limits import ChipShare, ConstantRange, Scope, limits_of
from .rowwise import RowwiseConstants

if TYPE_CHECKING:
    from ..machine.files.system_tree import Tree

# What has no model of its own: one efficiency for each unit.


@dataclass(frozen=True, slots=True)
class RooflineConstants:
    """Parts of the peaks and of the memory's bandwidth that kernels reach."""

    matmul_efficiency: Annotated[float, ConstantRange(Scope.CHIP, 0.0, 1.0)]
    memory_efficiency: ChipShare
    vector_efficiency: Annotated[float, ConstantRange(Scope.CHIP, 0.0, 1.0)]


C = TypeVar("C")
Kinds: TypeAlias = Mapping[str, C]
# What a calibration holds: `fit` says to which rows of which tables it was fitted, for those who judge it.
_PARTS = ("name", "kernels", "libraries", "fit")
# What a kind says of itself beside its constants.
_LIKE = "like"
_NOTES = ("source", "confidence", "as_of", _LIKE)


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
    rowwise: Kinds[RowwiseConstants] = field(default_factory=dict)
    grouped: Kinds[GroupedConstants] = field(default_factory=dict)
    experts: Kinds[ExpertsConstants] = field(default_factory=dict)
    exchange: Kinds[ExchangeConstants] = field(default_factory=dict)
    collective: Kinds[CollectiveConstants] = field(default_factory=dict)
    custom_all_reduce: Kinds[CustomAllReduceConstants] = field(default_factory=dict)
    power: Kinds[PowerConstants] = field(default_factory=dict)


CLASSES: Mapping[str, type] = MappingProxyType(
    {
        "roofline": RooflineConstants,
        "gemm": GemmConstants,
        "attention": FlashConstants,
        "decode": DecodeConstants,
        "unfused_attention": UnfusedConstants,
        "additive_attention": AdditiveConstants,
        "rowwise": RowwiseConstants,
        "grouped": GroupedConstants,
        "experts": ExpertsConstants,
        "exchange": ExchangeConstants,
        "collective": CollectiveConstants,
        "custom_all_reduce": CustomAllReduceConstants,
        "power": PowerConstants,
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
    """One constant as written, with what its kind says of it and where it stands."""

    text: str
    source: str
    confidence: str
    as_of: str | None
    home: _Home


@dataclass(frozen=True, slots=True)
class _Home:
    """A kind in a layer: the name of the layer and the way to the kind."""

    layer: str
    keys: tuple[str, ...]

    def fault(self, message: str, *more: str) -> FileFault:
        keys = (*self.keys, *more)
        return FileFault(keys, ".".join(keys), message, self.layer)


Cells: TypeAlias = dict[tuple[str, str], dict[str, _Cell]]
# Calibrations over one another, each with its name; the last goes before the others.
Layers: TypeAlias = Sequence[tuple[str, Mapping[str, "Tree"]]]


@dataclass(frozen=True, slots=True)
class MergedConstants:
    """What calibrations say together: the constants, every number of them, and all that is wrong."""

    constants: KernelConstants
    records: tuple[NumberRecord, ...]
    faults: tuple[FileFault, ...]


def read_constants(name: str, layers: Layers, library: str) -> tuple[KernelConstants, tuple[NumberRecord, ...]]:
    """Lay calibrations over one another; the last goes before the others.

    SystemFileError lists all that is unknown, missing, without its unit or out of range.
    """
    laid = lay_constants(name, layers, library)
    if laid.faults:
        raise all_of(f"calibration '{name}'", laid.faults)
    return laid.constants, laid.records


def lay_constants(name: str, layers: Layers, library: str) -> MergedConstants:
    """Lay calibrations over one another and gather their faults; what is at fault is left out."""
    cells: Cells = {}
    faults: list[FileFault] = []
    lineage = _lineage([tree for _, tree in layers], library)
    for where, tree in layers:
        faults += _unknown_parts(tree, where)
        parts = ((("libraries", name), _library(tree, name)) for name in lineage)
        for keys, part in ((("kernels",), tree.get("kernels")), *parts):
            faults += _lay(cells, part, _Home(where, keys))
    records = tuple(r for (cls, kind), found in cells.items() for r in _records(cls, kind, found))
    tables = {cls: _table(cls, cells, faults) for cls in CLASSES}
    return MergedConstants(KernelConstants(name, **tables), records, tuple(dict.fromkeys(faults)))  # type: ignore[arg-type]


# Classes whose fixed times are the network's or the power's, and no start of a kernel.
_NOT_STARTED = frozenset(("exchange", "collective", "custom_all_reduce", "power"))


def fix_start(constants: KernelConstants, record: NumberRecord) -> dict[str, Tree]:
    """Return a calibration that puts a machine's fixed time in place of every kernel's overhead, and none elsewhere."""
    classes = {cls: getattr(constants, cls) for cls in CLASSES if cls not in _NOT_STARTED}
    noted: dict[str, Tree] = {"source": record.source, "confidence": record.confidence}
    found: dict[str, Tree] = {}
    for cls, kinds in classes.items():
        times = [key for key, name in _keys(CLASSES[cls]).items() if _suffix(name) == "_s"]
        block = {key: f"{record.value_si if key == 'overhead' else 0.0} s" for key in times}
        if block:
            found[cls] = {kind: {**block, **noted} for kind in kinds}
    return {"kernels": found}


def library_names(layers: Sequence[Mapping[str, Tree]]) -> tuple[str, ...]:
    """Name the libraries that calibrations know."""
    found: dict[str, None] = {}
    for tree in layers:
        libraries = tree.get("libraries")
        found |= dict.fromkeys(libraries) if isinstance(libraries, dict) else {}
    return tuple(sorted(found))


def _unknown_parts(tree: Mapping[str, Tree], layer: str) -> Iterator[FileFault]:
    for key in tree:
        if key not in _PARTS:
            allowed = f"{did_you_mean(key, _PARTS)} allowed: {', '.join(_PARTS)}"
            yield FileFault((key,), key, f"unknown key{allowed}", layer)


def _library(tree: Mapping[str, Tree], library: str) -> Tree:
    libraries = tree.get("libraries")
    part = libraries.get(library) if isinstance(libraries, dict) else None
    return {k: v for k, v in part.items() if k != _LIKE} if isinstance(part, dict) else part


def _lineage(layers: Sequence[Mapping[str, Tree]], library: str) -> tuple[str, ...]:
    """Return a library behind those that it is like, the last of which goes first."""
    found = [library]
    for name in found:
        parts = (tree.get("libraries") for tree in layers)
        given = [part.get(name) for part in parts if isinstance(part, dict)]
        likes = [part.get(_LIKE) for part in given if isinstance(part, dict)]
        found += [like for like in likes if isinstance(like, str) and like not in found]
    return tuple(reversed(found))


def _lay(cells: Cells, tree: Tree, home: _Home) -> Iterator[FileFault]:
    if tree is None:
        return
    if not isinstance(tree, dict):
        yield home.fault(f"expected classes of kernels, not {tree!r}")
        return
    for cls, kinds in tree.items():
        if cls not in CLASSES or not isinstance(kinds, dict):
            allowed = f"{did_you_mean(cls, list(CLASSES))} allowed: {', '.join(CLASSES)}"
            yield home.fault(f"unknown class of kernels{allowed}", cls)
            continue
        for kind, block in kinds.items():
            yield from _lay_kind(cells, cls, kind, block, _Home(home.layer, (*home.keys, cls, kind)))


def _lay_kind(cells: Cells, cls: str, kind: str, block: Tree, home: _Home) -> Iterator[FileFault]:
    if not isinstance(block, dict):
        yield home.fault(f"expected its constants, not {block!r}")
        return
    like = block.get("like")
    if isinstance(like, str):
        if (cls, like) not in cells:
            yield home.fault(f"'{like}' is not given before it", "like")
        cells[cls, kind] = {**cells.get((cls, like), {}), **cells.get((cls, kind), {})}
    source, confidence, as_of = (block.get(k) for k in ("source", "confidence", "as_of"))
    if not isinstance(source, str) or not source:
        yield home.fault("missing source")
    if confidence not in get_args(Confidence):
        yield home.fault(f"one of {', '.join(get_args(Confidence))}, not {confidence!r}", "confidence")
    known = _keys(CLASSES[cls])
    for key, value in block.items():
        if key in known:
            here = cells.setdefault((cls, kind), {})
            here[key] = _Cell(str(value), str(source), str(confidence), None if as_of is None else str(as_of), home)
        elif key not in _NOTES:
            yield home.fault(f"unknown key{did_you_mean(key, list(known))} allowed: {', '.join(known)}", key)


# Ends of names of fields, which a file leaves out, and the dimension that each says.
_SUFFIXES = MappingProxyType({"_s": "s", "_w": "W", "_j_per_flop": "J/FLOP"})


@cache
def _keys(constants: type) -> Mapping[str, str]:
    """Keys of a file to fields: `overhead` with its unit is `overhead_s`."""
    return MappingProxyType({f.name.removesuffix(_suffix(f.name)): f.name for f in fields(constants)})


def _suffix(name: str) -> str:
    return next((suffix for suffix in _SUFFIXES if name.endswith(suffix)), "")


@cache
def _dimension(name: str) -> str:
    return _SUFFIXES.get(_suffix(name), "1")


def _table(cls: str, cells: Cells, faults: list[FileFault]) -> Mapping[str, object]:
    kinds = CLASSES[cls]
    limits = limits_of(kinds)
    table: dict[str, object] = {}
    for (of, kind), found in cells.items():
        if of == cls:
            table[kind] = _constants(kinds, found, limits, faults)
    return MappingProxyType({k: v for k, v in table.items() if v is not None})


def _constants(
    kinds: type, found: Mapping[str, _Cell], limits: Mapping[str, ConstantRange], faults: list[FileFault]
) -> object | None:
    homes = [cell.home for cell in found.values()]
    values: dict[str, float] = {}
    needed = {f.name for f in fields(kinds) if f.default is MISSING}
    for key, name in _keys(kinds).items():
        if key not in found:
            faults += [home.fault(f"missing {key}") for home in homes[-1:] if name in needed]
            continue
        try:
            values[name] = _number(found[key].text, name, limits[name])
        except UsageError as error:
            faults.append(found[key].home.fault(str(error), key))
    return kinds(**values) if needed <= set(values) else None


def _number(text: str, name: str, limit: ConstantRange) -> float:
    dimension = _dimension(name)
    if dimension != "1" and not split_quantity(text)[1] and float(text) != 0.0:
        raise UsageError(f"missing unit of '{text}', as in 3 us")
    value = parse_quantity(text, dimension).value_si
    if not limit.low <= value <= limit.high:
        raise UsageError(f"'{text}' is outside of {limit.low:g} to {limit.high:g}")
    return value


def _records(cls: str, kind: str, found: Mapping[str, _Cell]) -> Iterator[NumberRecord]:
    """Every number that can be read; those that cannot are faults of the table."""
    keys = _keys(CLASSES[cls])
    for key, cell in found.items():
        dimension = _dimension(keys[key])
        try:
            number, unit = split_quantity(cell.text)
            value_si = parse_quantity(cell.text, dimension).value_si
        except UsageError:
            continue
        confidence = cast(Confidence, cell.confidence)
        path = f"calibration.{cls}.{kind}.{key}"
        yield NumberRecord(path, number, unit, value_si, dimension, cell.source, confidence, cell.as_of)
