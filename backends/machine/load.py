"""Systems, chips, packages, networks and stacks by name or from a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...ir.text.stages import told
from ..network.topology.level import NetworkLevel
from .chip import Chip
from .files.catalogue import Assembled, File, assemble, assembled, names, on_chip, read_file, read_stack
from .files.faults import in_files
from .files.records import NumberRecord
from .package import Package
from .software.stack import StackConstants
from .system import System


def load_system(
    name_or_path: str | Path,
    overrides: Sequence[str] = (),
    stack: str | None = None,
    calibration: str | None = None,
    prices: str | None = None,
) -> System:
    """Read a system of the catalogue by name, or a YAML file by path.

    Args:
        name_or_path: `dgx-h100`, or a path that ends in .yaml or .yml.
        overrides: `chip.memory.hbm.bandwidth=4.8TB/s`, applied in order before anything is checked; a bare
            number is in base units (a time or a price needs its unit); the source of the number becomes `--set`.
            Parts come first: `chip.memory=8xhbm4`, `nic=800g`, `scale-up=nvl72`, `rack=liquid`.
        stack: the software stack of the catalogue that runs on it, in place of its own.
        calibration: name or path of the constants of its kernels, in place of its chip's; `default` for those that
            carry over to any chip.
        prices: name or path of a profile of the price book, in place of the system's own or the usual one.

    Raises:
        UnknownNameError: a name that is not in the catalogue, or an override of a key that no system has.
        SystemFileError: a file that cannot be read or breaks the schema; every fault is listed with its path.

    >>> load_system("dgx-h100", ["chip.memory.hbm.bandwidth=4.8TB/s"]).chip.hbm_bytes_per_s
    4800000000000.0
    """
    from ..prices.given import with_prices
    from .files.system_build import build_system

    fitted, numbers = _fitted(assemble(name_or_path, stack, calibration), overrides, prices)
    found = with_prices(fitted, prices, numbers)
    told(f"system {found.file.name}: {', '.join(dict.fromkeys(one.where for one in found.origins))}")
    return _cooled(build_system(found.tree, numbers, found.file.name, found.layers, in_files(found.origins)))


def read_system(
    text: str,
    name: str,
    stack: str | None = None,
    prices: str | None = None,
    calibration: str | None = None,
    overrides: Sequence[str] = (),
) -> System:
    """Read a system from the text of a file, as `slipstick design` writes it; all else is as with `load_system`.

    SystemFileError as `load_system`; faults have paths, and lines of nothing.
    """
    from ..prices.given import with_prices
    from .files.system_build import build_system
    from .files.system_tree import read_tree

    file = File(name, name, Path(name), read_tree(text, name))
    fitted, numbers = _fitted(assembled(file, stack, calibration), overrides, prices)
    found = with_prices(fitted, prices, numbers)
    return _cooled(build_system(found.tree, numbers, name, found.layers))


def _cooled(system: System) -> System:
    """Return a system whose dies are no hotter than the cooling that its servers name takes; else UsageError."""
    if system.server is None or system.server.cooling is None or system.package is None:
        return system
    from ..technology.files.cooling import check_heat

    check_heat(system.package, system.chip.power_w, system.server.cooling)
    return system


def _fitted(found: Assembled, overrides: Sequence[str], prices: str | None) -> tuple[Assembled, Sequence[str]]:
    """Put parts in place that overrides name; the price book is not looked at where there are none."""
    if not overrides:
        return found, overrides
    from ..prices.parts import with_parts

    return with_parts(found, overrides, prices)


def load_chip(name_or_path: str | Path) -> tuple[Chip, tuple[NumberRecord, ...]]:
    """Read a chip of the catalogue by name, or a YAML file by path, with every number of its file.

    >>> load_chip("b200-sxm-180gb")[0].matmul_flop_per_s("fp4")
    9000000000000000.0
    """
    from .files.system_build import build_chip

    file = read_file("chips", name_or_path)
    return build_chip(file.tree, file.name, in_files([file.origin()]))


def load_package(name_or_path: str | Path) -> Package | None:
    """Read what a chip is sold in, by its name in the catalogue or the path of its file; None where it says nothing.

    An interface between dies that is a level of a network has no bandwidth here (nan): a system has one.

    >>> package = load_package("mi300x")
    >>> [(die.name, int(count)) for die, count in package.assembly.counted_dies()]
    [('iod', 4), ('xcd', 8)]
    """
    from .files.system_build import build_package

    file = read_file("chips", name_or_path)
    return build_package(file.tree, file.name, in_files([file.origin()]))


def load_network(name_or_path: str | Path) -> tuple[tuple[NetworkLevel, ...], tuple[NumberRecord, ...]]:
    """Read a network of the catalogue by name, or a YAML file by path, with every number of its file.

    >>> [level.name for level in load_network("ndr-infiniband")[0]]
    ['infiniband']
    """
    from .files.system_build import build_network

    file = read_file("networks", name_or_path)
    return build_network(file.tree, file.name, in_files([file.origin()]))


def load_stack(name: str | Path) -> StackConstants:
    """Read the constants of a software stack by name, or a YAML file by path; UnknownNameError names the nearest.

    >>> load_stack("megatron-core").decides.kernels
    'fused'
    """
    from .files.system_build import build_stack

    file = read_stack(name)
    return build_stack(on_chip(file.tree, None), file.name, in_files([file.origin()]))


def stack_numbers(name: str | Path) -> tuple[NumberRecord, ...]:
    """Return every number that the file of a stack has, or the one it is like, with its unit and source.

    >>> stack_numbers("nanotron")[0].path
    'launch_overhead'
    """
    from .files.system_build import build_stack_numbers

    file = read_stack(name)
    return build_stack_numbers(file.tree, file.name, in_files([file.origin()]))


def stack_names() -> tuple[str, ...]:
    """Name the software stacks of the catalogue.

    >>> "megatron-core" in stack_names()
    True
    """
    return names("stacks")


def system_names() -> tuple[str, ...]:
    """Name the systems of the catalogue.

    >>> "dgx-h100" in system_names()
    True
    """
    return names("systems")


def chip_names() -> tuple[str, ...]:
    """Name the chips of the catalogue.

    >>> "h100-sxm-80gb" in chip_names()
    True
    """
    return names("chips")


def network_names() -> tuple[str, ...]:
    """Name the networks of the catalogue, which systems refer to.

    >>> "ndr-infiniband" in network_names()
    True
    """
    return names("networks")


def system_numbers(system: System) -> tuple[NumberRecord, ...]:
    """Return every number of a system with its path, unit and source, in the order of the file."""
    return system.sources
