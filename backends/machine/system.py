"""A machine as the models see it: plain numbers in base units, read from the catalogue or from a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...ir.errors import UnknownNameError
from ...ir.sizes.expr import Num
from ..kernels.constants import KernelConstants
from ..network.topology.level import NetworkLevel
from .files.catalogue import File, assemble, assembled, names, on_chip, read_file, read_stack
from .files.faults import in_files
from .files.records import NumberRecord
from .machine import Rack, Server
from .package import Package
from .software.stack import StackConstants

if TYPE_CHECKING:
    from ..prices.section import Prices


@dataclass(frozen=True, slots=True)
class Peaks:
    """Dense matmul peaks in FLOP/s by operand dtype; None where the chip has no such unit."""

    bf16: Num | None
    fp16: Num | None
    tf32: Num | None
    fp32: Num
    fp8: Num | None
    int8: Num | None
    fp64: Num | None = None
    fp6: Num | None = None
    fp4: Num | None = None
    int4: Num | None = None

    def by_dtype(self) -> dict[str, Num]:
        """Return what there is by dtype, in the order of the fields."""
        found = ((dtype, getattr(self, dtype)) for dtype in self.__slots__)
        return {dtype: peak for dtype, peak in found if peak is not None}

    def times(self, factor: Num) -> Peaks:
        """Return all peaks scaled alike."""
        return replace(self, **{dtype: peak * factor for dtype, peak in self.by_dtype().items()})


@dataclass(frozen=True, slots=True)
class HostLink:
    """The link of one chip to its host: one direction, the part that large copies reach, the time of an empty one."""

    bytes_per_s: Num
    efficiency: Num
    latency_s: Num


@dataclass(frozen=True, slots=True)
class HostMemory:
    """The memory of the host of a node, which its chips share evenly."""

    num_bytes: float
    bytes_per_s: Num
    efficiency: Num


@dataclass(frozen=True, slots=True)
class Chip:
    """One accelerator.

    Attributes:
        name: as its maker calls it.
        peak_flop_per_s: of its matrix units.
        vector_flop_per_s: of everything else.
        num_sms: units that take tiles of work one at a time.
        clock_hz: of these units.
        hbm_bytes: memory beside the chip.
        hbm_bytes_per_s: its bandwidth.
        l2_bytes: last level of cache, all partitions together.
        power_w: what it may draw.
        host_link: link to its host, if any.
        l2_bytes_per_s: bandwidth of the cache where the maker gives it.
        l2_partitions: parts of the cache that keep copies of one another's data for the units beside them.
        power_limit_w: what it is allowed to draw, where that is less: see `backends/machine/power.py`.
    """

    name: str
    peak_flop_per_s: Peaks
    vector_flop_per_s: Num
    num_sms: Num
    clock_hz: Num
    hbm_bytes: Num
    hbm_bytes_per_s: Num
    l2_bytes: Num
    power_w: Num
    host_link: HostLink | None = None
    l2_bytes_per_s: Num | None = None
    l2_partitions: Num = 1
    power_limit_w: Num | None = None

    def matmul_flop_per_s(self, dtype: str) -> Num:
        """Return the dense matmul peak for operands of a dtype; UnknownNameError where the chip has none."""
        peaks = self.peak_flop_per_s.by_dtype()
        if dtype not in peaks:
            raise UnknownNameError.of(f"matmul dtype of {self.name}", dtype, peaks)
        return peaks[dtype]


@dataclass(frozen=True, slots=True)
class System:
    """A machine: the chip, how many share a node, the network, and the constants of kernels and software.

    For money, power and carbon it may say what a chip is packaged in, and what servers and racks are made of.

    Attributes:
        name: as people call it.
        chip: the accelerator; a rank of a plan runs on one.
        node_size: chips that share a board and a host.
        levels: of the network, from the inside out.
        kernels: constants of the kernels.
        stack: constants of the software.
        sources: every number of it, but those of prices.
        host: the memory of a node's host.
        package: what the chip is sold in; None where its file does not say.
        server: what a node is built of.
        rack: what servers stand in.
        own_prices: the prices that were given with it; None for the usual ones.
        changed: paths of the numbers that were set beside its files, and differ from what these say: prices and parts
            in the files may be those of another machine.
    """

    name: str
    chip: Chip
    node_size: int
    levels: tuple[NetworkLevel, ...]
    kernels: KernelConstants
    stack: StackConstants
    sources: tuple[NumberRecord, ...]
    host: HostMemory | None = None
    package: Package | None = None
    server: Server | None = None
    rack: Rack | None = None
    own_prices: Prices | None = None
    changed: tuple[str, ...] = ()

    @property
    def prices(self) -> Prices:
        """What it is paid with: the prices that were given with it, else the usual ones, read when first needed."""
        from ..prices.book import load_prices

        return load_prices() if self.own_prices is None else self.own_prices


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

    found = with_prices(assemble(name_or_path, stack, calibration), prices, overrides)
    return build_system(found.tree, overrides, found.file.name, found.layers, in_files(found.origins))


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
    found = with_prices(assembled(file, stack, calibration), prices, overrides)
    return build_system(found.tree, overrides, name, found.layers)


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

    >>> load_stack("megatron-core").kernels
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
