"""A tree read from files into a checked `System`, chip, network or stack; all faults are reported at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from ....ir.errors import did_you_mean
from ...kernels.constants import KernelConstants, Laid, Layers, lay_constants, library_names
from ...network.topology.level import NetworkLevel
from ...network.topology.parts import link_rates
from ...network.topology.section import LevelSection, network_level
from ..chip import Chip
from ..machine_schema import rack_of, server_of
from ..package import Package
from ..package_schema import PackageSection, d2d_levels, package_of
from ..software.stack import StackConstants
from ..software.stack_schema import StackSection, as_stack
from ..system import System
from ..system_schema import (
    ChipSection,
    NetworkSection,
    NodeSection,
    SystemSection,
    UnpricedSection,
    as_chip,
    as_host_memory,
)
from .catalogue import on_chip
from .faults import Fault, Locate, all_of, nowhere
from .records import NumberRecord
from .sections import checked, records_of, section_of
from .system_numbers import Section
from .system_overrides import as_layer, changed_paths, of_calibration, override
from .system_tree import Tree, split_override

if TYPE_CHECKING:
    from ...prices.section import Prices

S = TypeVar("S", bound=Section)


def build_system(
    tree: dict[str, Tree],
    overrides: Sequence[str],
    where: str,
    calibrations: Layers,
    locate: Locate = nowhere,
    lay: Callable[[str, Layers, str], Laid] = lay_constants,
) -> System:
    """Apply the overrides, check the tree and turn it into plain numbers.

    `calibrations` are laid over one another by `lay`, the last before the others; `locate` says in which file a fault
    lies.

    Raises:
        UnknownNameError: an override of a key that no system has.
        SystemFileError: the tree or a calibration breaks its schema; all faults of all of them.
    """
    kept = [text for text in overrides if not of_calibration(text)]
    top, given = _section_for(tree), tree
    for text in kept:
        tree = override(tree, text, top)
    changed = changed_paths(given, tree, kept)
    file, faults = checked(top, tree)
    layers = [*calibrations, *(("--set", as_layer(text)) for text in overrides if of_calibration(text))]
    laid = lay(calibrations[-1][0], layers, _library(tree))
    faults += [] if file is None else _protocol_faults(file.network, laid.constants)
    faults += [] if file is None else _library_faults(file.stack.library, [layer for _, layer in layers])
    faults += [] if file is None else _d2d_faults(file.chip.package, file.network)
    faults += [] if file is None else _rank_faults(file.chip.package, file.node, file.network)
    if file is None or faults or laid.faults:
        raise all_of(f"system '{where}'", [*faults, *laid.faults], _unless_set(kept, locate))
    levels = tuple(network_level(level) for level in file.network)
    chip, package = as_chip(file.chip), _package(file.chip.package, levels)
    twice = () if package is None else [f for f in _twice_faults(chip, package) if not _was_set(f, changed)]
    if twice:
        raise all_of(f"system '{where}'", twice, locate)
    return System(
        name=file.name,
        chip=chip,
        node_size=int(file.node.num_chips.si),
        levels=levels,
        kernels=laid.constants,
        stack=as_stack(file.stack),
        sources=(*_without_prices(file), *laid.records),
        host=as_host_memory(file.node.host_memory),
        package=package,
        server=server_of(file.server),
        rack=rack_of(file.rack),
        own_prices=_prices(file),
        changed=changed,
    )


def _section_for(tree: dict[str, Tree]) -> type[UnpricedSection]:
    """The schema of a system; that of prices is made only where any are given."""
    if tree.get("prices") is None:
        return SystemSection
    from ..priced_schema import PricedSection

    return PricedSection


def _without_prices(file: UnpricedSection) -> Iterator[NumberRecord]:
    """The numbers of a system; its prices are a book of their own."""
    return records_of(file.model_copy(update={"prices": None}))


def _package(section: PackageSection | None, levels: Sequence[NetworkLevel]) -> Package | None:
    return None if section is None else package_of(section, link_rates(levels))


def _prices(file: UnpricedSection) -> Prices | None:
    if isinstance(file, SystemSection):
        return None
    from ...prices.section import Prices
    from ..priced_schema import PricedSection

    assert isinstance(file, PricedSection)
    return Prices(file.prices)


def _d2d_faults(package: PackageSection | None, levels: Sequence[LevelSection]) -> Iterator[Fault]:
    """An interface between dies that is said to be a level which the network has not."""
    known = [level.name for level in levels]
    found = () if package is None else d2d_levels(package, ("chip", "package"), "chip.package")
    for keys, path, level in found:
        if level not in known:
            message = f"unknown level '{level}'{did_you_mean(level, known)} allowed: {', '.join(known)}"
            yield Fault(keys, path, message)


def _rank_faults(package: PackageSection | None, node: NodeSection, levels: Sequence[LevelSection]) -> Iterator[Fault]:
    """Ranks of a package that do not fill a node, or that are not those of the level that joins its dies."""
    if package is None:
        return
    keys, path = ("chip", "package", "num_ranks"), "chip.package.num_ranks"
    ranks = 1 if package.num_ranks is None else int(package.num_ranks.si)
    chips = int(node.num_chips.si)
    if chips % ranks:
        yield Fault(keys, path, f"{ranks} ranks a package do not divide the {chips} chips of a node")
    sizes = {level.name: level.size for level in levels}
    for name in dict.fromkeys(level for *_, level in d2d_levels(package, keys[:2], "chip.package")):
        size = sizes.get(name)
        if size is not None and size.si != ranks:
            yield Fault(keys, path, f"{ranks}, but its dies are level '{name}', which joins {size.si:g}")


def _twice_faults(chip: Chip, package: Package) -> Iterator[Fault]:
    """What a chip says of itself and its package says otherwise: memory, and units that must work."""
    if not package.holds(chip.hbm_bytes):
        held = float(package.rank_bytes) / 1e9
        message = (
            f"{chip.hbm_bytes / 1e9:.4g} GB, but the stacks of its package hold {held:.4g} GB a rank; "
            f"allowed: {0.8 * held:.4g} to {held:.4g} GB, or other stacks in chip.package"
        )
        yield Fault(("chip", "memory", "hbm", "capacity"), "chip.memory.hbm.capacity", message)
    units = package.rank_units
    if units is not None and units != chip.num_sms:
        message = f"{chip.num_sms:g}, but {units:g} units of the dies of its package must work; allowed: {units:g}"
        yield Fault(("chip", "num_sms"), "chip.num_sms", message)


def _was_set(fault: Fault, changed: Sequence[str]) -> bool:
    """Whether a contradiction is that of a what-if, whose money is then not of this machine."""
    return any(path == fault.path or path.startswith("chip.package") for path in changed)


def _protocol_faults(levels: Sequence[LevelSection], kernels: KernelConstants) -> Iterator[Fault]:
    """A protocol of a level that no calibration has constants of."""
    known = list(kernels.collective)
    for place, level in enumerate(levels):
        if level.protocol is not None and level.protocol not in known:
            message = f"unknown '{level.protocol}'{did_you_mean(level.protocol, known)} allowed: {', '.join(known)}"
            yield Fault(("network", place, "protocol"), f"network.{level.name}.protocol", message)


def _library_faults(library: str, layers: Sequence[Mapping[str, Tree]]) -> Iterator[Fault]:
    """A library of the stack that no calibration knows, whose constants would silently be the usual ones."""
    known = library_names(layers)
    if library not in known:
        message = f"unknown '{library}'{did_you_mean(library, known)} allowed: {', '.join(known)}"
        yield Fault(("stack", "library"), "stack.library", message)


def build_stack(tree: dict[str, Tree], where: str, locate: Locate = nowhere) -> StackConstants:
    """Check the constants of a software stack; SystemFileError when they break the schema."""
    return as_stack(section_of(StackSection, tree, f"stack '{where}'", locate))


def build_stack_numbers(tree: dict[str, Tree], where: str, locate: Locate = nowhere) -> tuple[NumberRecord, ...]:
    """Check the same; return every number of it, those that hold on one chip only behind the others."""
    found = list(records_of(section_of(StackSection, on_chip(tree, None), f"stack '{where}'", locate)))
    chips = tree.get("chips")
    for chip in chips if isinstance(chips, dict) else ():
        there = records_of(section_of(StackSection, on_chip(tree, chip), f"stack '{where}'", locate))
        known = {number.path: number for number in found}
        found += [replace(n, path=f"chips.{chip}.{n.path}") for n in there if n != known.get(n.path)]
    return tuple(found)


def build_chip(tree: dict[str, Tree], where: str, locate: Locate = nowhere) -> tuple[Chip, tuple[NumberRecord, ...]]:
    """Check a chip; return it with every number of its file."""
    section = section_of(ChipSection, tree, f"chip '{where}'", locate)
    return as_chip(section), tuple(records_of(section))


def build_package(tree: dict[str, Tree], where: str, locate: Locate = nowhere) -> Package | None:
    """Check a chip; return what it is sold in."""
    return _package(section_of(ChipSection, tree, f"chip '{where}'", locate).package, ())


def build_network(
    tree: dict[str, Tree], where: str, locate: Locate = nowhere
) -> tuple[tuple[NetworkLevel, ...], tuple[NumberRecord, ...]]:
    """Check a network; return its levels with every number of its file."""
    section = section_of(NetworkSection, tree, f"network '{where}'", locate)
    return tuple(network_level(level) for level in section.levels), tuple(records_of(section))


def _library(tree: dict[str, Tree]) -> str:
    """The library of the stack, which its calibrations go by even when the stack is at fault."""
    stack = tree.get("stack")
    library = stack.get("library") if isinstance(stack, dict) else None
    return library if isinstance(library, str) else "pytorch"


def _unless_set(overrides: Sequence[str], locate: Locate) -> Locate:
    """A number that was set on the command line has no line in a file."""
    paths = {".".join(split_override(text)[0]) for text in overrides}
    return lambda fault: "--set" if fault.layer is None and fault.path in paths else locate(fault)
