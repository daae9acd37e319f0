"""What a system and its steps cost: to make, to buy, to own or to rent, in energy and in carbon, as one record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from ..backends.machine.system import System
from ..backends.prices.section import Prices
from ..ir.errors import UsageError
from ..ir.records import dataclass
from ..ir.sizes.expr import Num
from .bill import Bill
from .ownership.carbon import Embodied, embodied
from .ownership.outdated import outdated
from .ownership.ownership import Ownership, ownership, rental
from .ownership.per_token import SystemWork as SystemWork
from .ownership.server import Basis
from .ownership.system import SystemCost, system_cost
from .silicon.finite import check_whole
from .silicon.packages.package import package_bill

if TYPE_CHECKING:
    from ..backends.pricing.timing import Timing
    from ..ir.plan import PlanTable
    from .ownership.energy import StepEnergy

# What sums of money are worth.
Standing: TypeAlias = Literal["firm", "at least", "not of this machine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Ownership model of a system: bought, built or rented.

    Attributes:
        basis: `market`, what is sold at the price it is sold for; `build`, everything by what it is made of.
        rented: by the hour at a cloud's price, in place of owning it; UsageError with the basis `build`.
    """

    basis: Basis = "market"
    rented: bool = False

    def __post_init__(self) -> None:
        """Refuse what would silently be one of the two."""
        if self.rented and self.basis == "build":
            raise UsageError("what is rented is neither sold nor built: leave --basis build or --rent out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """What a system of so many accelerators costs, whatever it does.

    Attributes:
        terms: its ownership model.
        system: what is priced.
        prices: under which book.
        package: manufacturing cost of one package; None where its chip does not say what it is made of.
        cost: what is bought.
        owned: what owning, or renting, takes.
        made: the carbon of making it.
        outdated: prices and parts that are of another machine, after numbers of it were set: see `outdated`.
    """

    terms: Terms
    system: System
    prices: Prices
    package: Bill | None
    cost: SystemCost
    owned: Ownership
    made: Embodied
    outdated: tuple[str, ...] = ()

    @property
    def unpriced(self) -> tuple[str, ...]:
        """What is missing in the figures, each with what to add."""
        bought = () if self.terms.rented else self.cost.unpriced
        return (*bought, *self.made.unknown)

    @property
    def standing(self) -> Standing:
        """What the sums are worth: of another machine, at least so much where something has no price, or firm."""
        if self.outdated:
            return "not of this machine"
        return "at least" if self.without else "firm"

    @property
    def without(self) -> tuple[str, ...]:
        """Name what the sums have no price of; carbon aside."""
        lines = () if self.terms.rented else self.cost.unpriced
        return tuple(dict.fromkeys(line.partition(":")[0] for line in lines))

    @property
    def bills(self) -> tuple[Bill, ...]:
        """Everything that was priced: `package`, `system`, `year`, `GPU-hour`; each is in the ones behind it.

        What is rented is not bought: it has no `system`.
        """
        package = () if self.package is None else (self.package,)
        system = () if self.terms.rented else (self.cost.bill,)
        return (*package, *system, self.owned.year, self.owned.gpu_hour)


def system_money(system: System, num_gpus: Num, terms: Terms | None = None) -> Money:
    """Price a system of so many accelerators under its own prices.

    Raises:
        UsageError: a package that cannot be made, no accelerators, switches that nobody names, a cost without end.
        UnknownNameError: a node, memory, part or, where it is rented, a chip that the price book does not have.

    >>> from slipstick.backends.machine.load import load_system
    >>> money = system_money(load_system("dgx-h100"), 1024)
    >>> 1.0 < float(money.owned.gpu_hour.usd) < 4.0
    True
    """
    terms, prices = terms or Terms(), system.prices
    package = None if system.package is None else package_bill(system.package, prices)
    cost = system_cost(system, num_gpus, prices, terms.basis, package)
    owned = rental(system, num_gpus, prices) if terms.rented else ownership(cost, prices)
    for bill in (owned.year,) if terms.rented else (cost.bill, owned.year):
        check_whole(bill)
    made = embodied(cost, system, prices)
    return Money(
        terms=terms,
        system=system,
        prices=prices,
        package=package,
        cost=cost,
        owned=owned,
        made=made,
        outdated=outdated(system, terms.basis, terms.rented),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMoney:
    """What steps cost on a system.

    Attributes:
        money: of the system, whatever it does.
        owned: the same at the power that these steps draw.
        energy: of a step, by what takes it.
        metrics: by name, for people and gates.
    """

    money: Money
    owned: Ownership
    energy: StepEnergy
    metrics: Mapping[str, Num]


def step_money(
    money: Money, work: SystemWork, timing: Timing, plans: PlanTable, runs: Mapping[str, float] | None = None
) -> StepMoney:
    """Price the steps of a table of plans on a system that was priced for their accelerators; `runs` as of `activity`.

    UnknownNameError for a memory or a dtype of which the price book has no energy.
    """
    # What a system costs by itself needs nothing of steps.
    from .ownership.activity import activity
    from .ownership.energy import step_energy
    from .ownership.per_token import money_metrics

    doing = activity(timing, plans, money.system, money.prices, runs)
    energy = step_energy(money.cost, money.system, money.prices, work.step_time_s, doing)
    owned = money.owned if money.terms.rented else ownership(money.cost, money.prices, energy.average_w)
    metrics = money_metrics(work, owned, energy, money.made, money.prices)
    return StepMoney(money=money, owned=owned, energy=energy, metrics=metrics)
