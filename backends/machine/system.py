"""A machine as the models see it: plain numbers in base units."""

from __future__ import annotations

import math
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from ...ir.records import dataclass
from ...ir.sizes.expr import Num
from ..kernels.constants import KernelConstants
from ..network.topology.level import NetworkLevel
from .chip import Chip, HostMemory
from .files.records import NumberRecord
from .machine import Rack, ServerNode
from .package import Package
from .software.stack import StackConstants

if TYPE_CHECKING:
    from ..prices.section import Prices


@dataclass(frozen=True, slots=True)
class System:
    """A machine: the chip, chips a node, the network, and the constants of kernels and software.

    For cost, power and carbon it may describe the package of the chip, and the parts of servers and racks.

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
        beyond: the largest |ln| of a number of chip or network that was set over what the files say; 0 within 5 %.
        assumed: flags that nobody typed and that chose its software.
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
    server: ServerNode | None = None
    rack: Rack | None = None
    own_prices: Prices | None = None
    changed: tuple[str, ...] = ()
    beyond: float = field(default=0.0, compare=False)
    assumed: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def host_share_bytes(self, num_devices: Num) -> Num:
        """Return the memory of its host that each of so many devices may fill; infinite if unknown."""
        if self.host is None:
            return math.inf
        return self.host.num_bytes / np.minimum(num_devices, self.node_size)

    @property
    def prices(self) -> Prices:
        """What it is paid with: the prices that were given with it, else the usual ones, read when first needed."""
        from ..prices.book import load_prices

        return load_prices() if self.own_prices is None else self.own_prices
