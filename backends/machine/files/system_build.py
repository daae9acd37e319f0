"""A tree read from files into a checked `System`, chip, network or stack; all faults are reported at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from ...kernels.constants import Layers, MergedConstants, fix_start, lay_constants, library_names
from ...network.topology.level import NetworkLevel
from ...network.topology.parts import link_rates
from ..chip import Chip
from ..package import Package, levels_of_dies, with_link_rates
from ..software.stack import StackConstants
from ..software.stack_schema import STACK
from ..system import System
from ..system_schema import ChipFile, NetworkSection, SystemSection, UnpricedSection
from .catalogue import measured_machine, names, on_chip
from .faults import FileFault, Locate, all_of, nowhere
from .records import NumberRecord
from .section import inside, numbered, section_of
from .shapes import Intake, unknown_word
from .system_overrides import as_layer, changed_paths, distance, numbers_in, of_calibration, override
from .system_tree import Tree, names_of, split_override

if TYPE_CHECKING:
    from ...prices.section import Prices

# Launches of kernels without a model of their own, and the pace of those of a captured step.
_LAUNCHES = ("launch_overhead", "graph_issue_overhead")


def build_system(
    tree: dict[str, Tree],
    overrides: Sequence[str],
    where: str,
    calibrations: Layers,
    locate: Locate = nowhere,
    lay: Callable[[str, Layers, str], MergedConstants] = lay_constants,
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
    tree = _with_start(tree, kept)
    intake = Intake()
    file = inside(top).read(tree, (), "", intake)
    start = [number.record(path) for path, number in intake.numbers if path == "chip.fixed_time"]
    library = _library(tree)
    fixed = [(one.path, fix_start(lay(calibrations[-1][0], calibrations, library).constants, one)) for one in start]
    layers = [*calibrations, *fixed, *(("--set", as_layer(text)) for text in overrides if of_calibration(text))]
    laid = lay(calibrations[-1][0], layers, library)
    faults = [*intake.faults, *([] if file is None else _faults(file, laid, [layer for _, layer in layers]))]
    if file is None or faults or laid.faults:
        raise all_of(f"system '{where}'", [*faults, *laid.faults], _unless_set(kept, locate))
    chip, package = file.chip.chip, file.chip.package
    if package is not None:
        package = replace(package, assembly=with_link_rates(package.assembly, link_rates(file.network)))
    twice = () if package is None else [f for f in _twice_faults(chip, package) if not _was_set(f, changed)]
    if twice:
        raise all_of(f"system '{where}'", twice, locate)
    # The prices of a system are a book of their own.
    numbers = (number.record(path) for path, number in intake.numbers if not path.startswith("prices."))
    return System(
        name=file.name,
        chip=chip,
        node_size=file.node.num_chips,
        levels=file.network,
        kernels=laid.constants,
        stack=file.stack.stack,
        sources=(*numbers, *laid.records),
        host=file.node.host_memory,
        package=package,
        server=file.server,
        rack=file.rack,
        own_prices=_prices(file),
        changed=changed,
        beyond=_from_measured(given, tree, changed),
    )


def _from_measured(given: dict[str, Tree], tree: dict[str, Tree], changed: Sequence[str]) -> float:
    """Return how far a machine is from the one of the catalogue whose chip's name it bears; without, from its files.

    A name is no measurement: what was measured on that machine holds for its numbers. A level of its network is that of
    the same name there, else that in the same place.
    """
    known = measured_machine(tree.get("chip"))
    if known is None:
        return distance(given, tree, changed)
    levels, network = known["network"], tree.get("network")
    if known["chip"] == tree["chip"] and levels == network:
        return 0.0
    assert isinstance(levels, list)
    mine, others = names_of(network), dict(zip(names_of(levels), levels, strict=True))
    alike = [others.get(name, levels[min(place, len(levels) - 1)]) for place, name in enumerate(mine)]
    named = [{**one, "name": name} for one, name in zip(alike, mine, strict=True) if isinstance(one, dict)]
    known = {**known, "network": [*named]}
    paths = (numbers_in({key: one.get(key) for key in known}) for one in (known, tree))
    return distance(known, tree, [".".join(keys) for keys in dict.fromkeys(chain(*paths))])


def _with_start(tree: dict[str, Tree], overrides: Sequence[str]) -> dict[str, Tree]:
    """Put the fixed time of a machine's kernels where a stack has launches, but for those that were set."""
    chip, stack = tree.get("chip"), tree.get("stack")
    if not isinstance(chip, dict) or not isinstance(stack, dict) or chip.get("fixed_time") is None:
        return tree
    keys = (key for key in _LAUNCHES if not any(text.startswith(f"stack.{key}=") for text in overrides))
    return {**tree, "stack": {**stack, **dict.fromkeys(keys, chip["fixed_time"])}}


def _faults(file: UnpricedSection, laid: MergedConstants, layers: Sequence[Mapping[str, Tree]]) -> Iterator[FileFault]:
    """What is wrong between the parts of a file that are right one by one."""
    protocols = list(laid.constants.collective)
    for place, level in enumerate(file.network):
        if level.protocol and level.protocol not in protocols:
            keys, path = ("network", place, "protocol"), f"network.{level.name}.protocol"
            yield FileFault(keys, path, unknown_word(level.protocol, protocols))
    # A library that no calibration knows would silently have the usual constants.
    libraries = library_names(layers)
    if file.stack.stack.library not in libraries:
        yield FileFault(("stack", "library"), "stack.library", unknown_word(file.stack.stack.library, libraries))
    measured_as, measured = file.chip.chip.measured_as, names("calibration")
    if measured_as and measured_as not in measured:
        yield FileFault(("chip", "measured_as"), "chip.measured_as", unknown_word(measured_as, measured))
    if file.chip.package is not None:
        yield from _package_faults(file.chip.package, file.node.num_chips, file.network)


def _section_for(tree: dict[str, Tree]) -> type[UnpricedSection]:
    """The schema of a system; that of prices is made only where any are given."""
    if tree.get("prices") is None:
        return SystemSection
    from ..priced_schema import PricedSection

    return PricedSection


def _prices(file: UnpricedSection) -> Prices | None:
    if isinstance(file, SystemSection):
        return None
    from ...prices.section import Prices
    from ..priced_schema import PricedSection

    assert isinstance(file, PricedSection)
    return Prices(file.prices)


def _package_faults(package: Package, num_chips: int, levels: Sequence[NetworkLevel]) -> Iterator[FileFault]:
    """Interfaces that are levels which the network has not, and ranks that do not fill these levels or a node."""
    above = ("chip", "package")
    found = list(levels_of_dies(package.assembly, above, "chip.package"))
    sizes = {level.name: level.size for level in levels}
    for d2d, keys, path in found:
        if d2d.level not in sizes:
            yield FileFault(keys, path, unknown_word(d2d.level, list(sizes), "level"))
    at, path = (*above, "num_ranks"), "chip.package.num_ranks"
    if num_chips % package.num_ranks:
        yield FileFault(at, path, f"{package.num_ranks} ranks a package do not divide the {num_chips} chips of a node")
    for name in dict.fromkeys(d2d.level for d2d, *_ in found):
        size = sizes.get(name)
        if size is not None and size != package.num_ranks:
            yield FileFault(at, path, f"{package.num_ranks}, but its dies are level '{name}', which joins {size:g}")


def _twice_faults(chip: Chip, package: Package) -> Iterator[FileFault]:
    """What a chip says of itself and its package says otherwise: memory, and units that must work."""
    if not package.holds(chip.hbm_bytes):
        held = float(package.rank_bytes) / 1e9
        message = (
            f"{chip.hbm_bytes / 1e9:.4g} GB, but the stacks of its package hold {held:.4g} GB a rank; "
            f"allowed: {0.8 * held:.4g} to {held:.4g} GB, or other stacks in chip.package"
        )
        yield FileFault(("chip", "memory", "hbm", "capacity"), "chip.memory.hbm.capacity", message)
    units = package.rank_units
    if units is not None and units != chip.num_sms:
        message = f"{chip.num_sms:g}, but {units:g} units of the dies of its package must work; allowed: {units:g}"
        yield FileFault(("chip", "num_sms"), "chip.num_sms", message)


def _was_set(fault: FileFault, changed: Sequence[str]) -> bool:
    """Whether a contradiction is that of a what-if, whose money is then not of this machine."""
    return any(path == fault.path or path.startswith("chip.package") for path in changed)


def build_stack(tree: dict[str, Tree], where: str, locate: Locate = nowhere) -> StackConstants:
    """Check the constants of a software stack; SystemFileError when they break the schema."""
    return section_of(STACK, tree, f"stack '{where}'", locate).stack


def build_stack_numbers(tree: dict[str, Tree], where: str, locate: Locate = nowhere) -> tuple[NumberRecord, ...]:
    """Check the same; return every number of it, those that hold on one chip only behind the others."""
    found = list(numbered(STACK, on_chip(tree, None), f"stack '{where}'", locate)[1])
    chips = tree.get("chips")
    for chip in chips if isinstance(chips, dict) else ():
        there = numbered(STACK, on_chip(tree, chip), f"stack '{where}'", locate)[1]
        known = {number.path: number for number in found}
        found += [replace(n, path=f"chips.{chip}.{n.path}") for n in there if n != known.get(n.path)]
    return tuple(found)


def build_chip(tree: dict[str, Tree], where: str, locate: Locate = nowhere) -> tuple[Chip, tuple[NumberRecord, ...]]:
    """Check a chip; return it with every number of its file."""
    file, numbers = numbered(ChipFile, tree, f"chip '{where}'", locate)
    return file.chip, numbers


def build_package(tree: dict[str, Tree], where: str, locate: Locate = nowhere) -> Package | None:
    """Check a chip; return what it is sold in."""
    return section_of(ChipFile, tree, f"chip '{where}'", locate).package


def build_network(
    tree: dict[str, Tree], where: str, locate: Locate = nowhere
) -> tuple[tuple[NetworkLevel, ...], tuple[NumberRecord, ...]]:
    """Check a network; return its levels with every number of its file."""
    section, numbers = numbered(NetworkSection, tree, f"network '{where}'", locate)
    return section.levels, numbers


def _library(tree: dict[str, Tree]) -> str:
    """The library of the stack, which its calibrations go by even when the stack is at fault."""
    stack = tree.get("stack")
    library = stack.get("library") if isinstance(stack, dict) else None
    return library if isinstance(library, str) else "pytorch"


def _unless_set(overrides: Sequence[str], locate: Locate) -> Locate:
    """A number that was set on the command line has no line in a file."""
    paths = {".".join(split_override(text)[0]) for text in overrides}
    return lambda fault: "--set" if fault.layer is None and fault.path in paths else locate(fault)
