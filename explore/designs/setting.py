"""What stands around every design of a space, and what it runs."""

from __future__ import annotations

from collections.abc import Sequence

from ...backends.prices.section import Prices
from ...backends.technology.data import Technology
from ...cost.flops import Convention
from ...cost.ownership.server import Basis
from ...driver.estimate import Lowered
from ...ir.errors import UsageError
from ...ir.plan import Plan
from ...ir.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignSetting:
    """What stands around every design of a space.

    Attributes:
        technology: nodes, units, memories, lanes and interfaces.
        prices: of silicon and of machines.
        num_packages: packages of a node.
        network: between nodes, by name of the catalogue.
        like: system whose servers, racks and switches stand around the chips.
        num_gpus: devices of the system; those of a plan where there is one.
        volume: packages made of each design, over which its design is paid off; None to leave that out.
        gross_margin: part of a package's price that its maker keeps; None for as the price book says.
        stack: software, by name of the catalogue; None for one of no framework, without CUDA
            graphs: name `vllm` to serve.
        calibration: constants of kernels, by name; None for those that carry over to any chip.
        overrides: assignments to numbers of the system, `stack.step_overhead=1ms`; not to those of designs.
    """

    technology: Technology
    prices: Prices
    num_packages: int = 8
    network: str = "ndr-infiniband"
    like: str = "dgx-h100"
    num_gpus: int = 1024
    volume: float | None = None
    gross_margin: float | None = None
    stack: str | None = None
    calibration: str | None = None
    overrides: Sequence[str] = ()

    @property
    def basis(self) -> Basis:
        """How designs are priced: at what they are made of, or sold with the margin that is given."""
        return "build" if self.gross_margin is None else "market"

    def __post_init__(self) -> None:
        """Refuse what is no number of packages, and a margin that is all of a price."""
        for name, number in (("packages of a node", self.num_packages), ("accelerators", self.num_gpus)):
            if number < 1:
                raise UsageError(f"{name}: {number} is too few: 1 or more")
        if self.volume is not None and not self.volume >= 1:
            raise UsageError(f"a volume of {self.volume:g} packages: 1 or more")
        if self.gross_margin is not None and not 0 <= self.gross_margin < 1:
            raise UsageError(f"a gross margin of {self.gross_margin:g}: from 0 to less than 1")


@dataclass(frozen=True, slots=True)
class DesignJob:
    """What every design runs.

    Attributes:
        lowered: a model.
        plan: how it is run.
        num_steps: of a whole run; None where there is none.
        convention: how masked attention counts in MFU.
    """

    lowered: Lowered
    plan: Plan
    num_steps: float | None = None
    convention: Convention = Convention.FULL
