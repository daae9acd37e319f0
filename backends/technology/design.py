"""A whole chip from budgets, or a table of chips: what each is as a chip of the catalogue."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ...ir.errors import UsageError
from ...ir.records import dataclass
from ...ir.sizes.expr import Num
from . import columns, engine
from .d2d import D2dKind, Join, check_shoreline, links, memory_reach, neighbours, span_mm
from .data import Technology
from .dynamic import logic_energy, wire_energy
from .engine import Cache, Compute, Memory, Network, Share
from .files.schema import UnitSection
from .fits import FITS, Fit, Reason, check, words
from .voltage import Clamp

# Rows of a table that are computed at once: their numbers stay in the cache of a core.
_CHUNK = 16384


@dataclass(frozen=True, slots=True)
class AreaShares:
    """Parts of a budget that the parts of a chip get, in place of those of the unit of compute."""

    core: Num
    cache: Num
    memory: Num
    network: Num

    @property
    def total(self) -> Num:
        """All of them."""
        return self.core + self.cache + self.memory + self.network


@dataclass(frozen=True, slots=True)
class EdgeShares:
    """Parts of the perimeter of the dies, in place of those of the unit of compute."""

    memory: Num
    network: Num

    @property
    def total(self) -> Num:
        """All of them."""
        return self.memory + self.network


@dataclass(frozen=True, slots=True)
class Budget:
    """What a chip may take, and of what it is made; numbers may be arrays, one number a chip of a table.

    Attributes:
        node: technology node of the dies.
        area_mm2: silicon of all dies together.
        power_w: of the whole package.
        unit: unit of compute, whose floor plan shares the budgets out.
        memory: kind of the stacks beside the dies.
        link: kind of the lanes to other chips.
        num_dies: how many dies make up the area; more have more edge.
        clamp: what a circuit does below its least voltage.
        d2d: kind of the interface between dies, each of which then is a device of its own; none where they are one and
            nothing is known of what joins them.
        one_device: whether dies with an interface are one device all the same, which reads its memory through it.
        d2d_bytes_per_s: bandwidth of the interface to each neighbour, one direction.
        join: how the dies are joined.
        num_stacks: stacks of memory of the package; None for as many as fit.
        area_shares: how the silicon is shared out; None for as the unit says.
        power_shares: how the power is; None for as the unit says.
        edge_shares: how the perimeter is; None for as the unit says.
        cooling: kind of it; empty for the best there is.
    """

    node: str
    area_mm2: Num
    power_w: Num
    unit: str = "h100"
    memory: str = "hbm3"
    link: str = "nvlink4"
    num_dies: Num = 1
    clamp: Clamp = "budget"
    d2d: str = ""
    d2d_bytes_per_s: Num = 0.0
    join: Join = "line"
    num_stacks: Num | None = None
    area_shares: AreaShares | None = None
    power_shares: AreaShares | None = None
    edge_shares: EdgeShares | None = None
    cooling: str = ""
    one_device: bool = False

    @property
    def die_mm2(self) -> Num:
        """Area of one die."""
        return self.area_mm2 / self.num_dies

    @property
    def side_mm(self) -> Num:
        """Side of one die, which is square."""
        return np.sqrt(self.die_mm2)

    @property
    def edge_mm(self) -> Num:
        """Perimeter of the dies: 4 sqrt(area of one), each."""
        return self.num_dies * 4 * self.side_mm

    @property
    def num_ranks(self) -> Num:
        """Devices of a plan in a package: the dies where an interface joins them, else one."""
        return self.num_dies if self.d2d and not self.one_device else 1


@dataclass(frozen=True, slots=True)
class Interface:
    """What joins a die to its neighbours, all of them together; nothing where dies are one device.

    The bandwidth is that of a network level of dies so joined, one direction: see `d2d.links`.
    """

    num_neighbours: Num
    num_modules: Num
    bytes_per_s: Num
    area_mm2: Num
    edge_mm: Num
    power_w: Num


@dataclass(frozen=True, slots=True)
class Areas:
    """The silicon of one device by part; what none takes is for wires, control and all that the engine leaves out."""

    core_mm2: Num
    cache_mm2: Num
    memory_mm2: Num
    network_mm2: Num
    d2d_mm2: Num
    other_mm2: Num


@dataclass(frozen=True, slots=True)
class Design:
    """A chip made from a budget, or a table of them. All numbers are of one device: of a die where these are joined."""

    budget: Budget
    compute: Compute
    cache: Cache
    memory: Memory
    network: Network
    interface: Interface
    vector_flop_per_s: Num
    rates: tuple[tuple[str, float], ...]
    logic_energy: Num
    wire_energy: Num
    fit: Fit

    @property
    def peaks(self) -> tuple[tuple[str, Num], ...]:
        """Peaks in FLOP/s by dtype; fp32 runs outside of the units."""
        flop_per_s = self.compute.flop_per_s
        others = ((dtype, flop_per_s * rate) for dtype, rate in self.rates)
        return (("fp16", flop_per_s), *others, ("fp32", self.vector_flop_per_s))

    @property
    def power_w(self) -> Num:
        """Power that one device was given."""
        return self.budget.power_w / self.budget.num_ranks

    @property
    def used_w(self) -> Num:
        """Power of the parts that the engine builds."""
        built = self.compute.power_w + self.cache.power_w + self.memory.power_w + self.network.power_w
        return built + self.interface.power_w

    @property
    def areas(self) -> Areas:
        """The silicon of one device by part, which add up to what it was given."""
        built = (self.compute, self.cache, self.memory, self.network, self.interface)
        core, cache, memory, network, d2d = (part.area_mm2 for part in built)
        other = self.budget.area_mm2 / self.budget.num_ranks - (core + cache + memory + network + d2d)
        return Areas(core, cache, memory, network, d2d, other)

    def columns(self) -> dict[str, Num]:
        """Return what a chip of a system file has, by its paths there, and what the engine says beside it.

        `network.d2d.bandwidth` and `network.scale-up.bandwidth` are those of one device, one direction.
        """
        peaks = {f"chip.matmul.{dtype}": peak for dtype, peak in self.peaks}
        joined = (
            {"network.d2d.bandwidth": self.interface.bytes_per_s}
            if self.budget.d2d and not self.budget.one_device
            else {}
        )
        return {
            "chip.num_sms": self.compute.num_sms,
            "chip.clock": self.compute.clock_hz,
            "chip.power": self.power_w,
            **peaks,
            "chip.vector.fp32": self.vector_flop_per_s,
            "chip.memory.hbm.capacity": self.memory.num_bytes,
            "chip.memory.hbm.bandwidth": self.memory.bytes_per_s,
            "chip.memory.l2.capacity": self.cache.num_bytes,
            "chip.memory.l2.bandwidth": self.cache.bytes_per_s,
            "chip.energy.logic": self.logic_energy,
            "chip.energy.wires": self.wire_energy,
            "chip.energy.memory": self.memory.j_per_byte,
            **joined,
            "network.scale-up.bandwidth": self.network.bytes_per_s,
        }


def design(budget: Budget, technology: Technology) -> Design:
    """Build a chip: the one row of a table.

    UsageError where a budget has no room for even one of a part, or is no budget; UnknownNameError for names.
    """
    made = design_table(budget, technology)
    if made.fit.reason.size != 1:
        raise UsageError(f"one chip has one budget: given {made.fit.reason.size} rows")
    found = columns.row(made, 0)
    reason = int(made.fit.reason[0])
    if reason == Reason.D2D_SHORELINE:
        given = columns.row(budget, 0)
        check_shoreline(technology.d2d(budget.d2d), float(given.d2d_bytes_per_s), float(np.asarray(found.fit.given)))
    if reason:
        raise UsageError(words(reason, float(found.fit.given), float(found.fit.needed)))
    return found


def design_table(budget: Budget, technology: Technology) -> Design:
    """Build a chip a row: a budget whose numbers are arrays, or are the same for all rows.

    What cannot be built is nan, and `fit.reason` says why (`fits.Reason`); UnknownNameError for names.
    """
    num_rows = columns.length_of(budget)
    table = columns.spread(budget, num_rows)
    parts = [slice(start, start + _CHUNK) for start in range(0, num_rows, _CHUNK)]
    with np.errstate(all="ignore"):
        found = columns.joined([_built(columns.cut(table, part), technology) for part in parts])
    return replace(found, budget=table)


def study(budget: Budget, technology: Technology, nodes: Sequence[str] = ()) -> tuple[Design, ...]:
    """Build the same budgets on several nodes, all of them by default: equal area and equal power."""
    return tuple(design(replace(budget, node=n), technology) for n in nodes or technology.node_names)


def _built(budget: Budget, technology: Technology) -> Design:
    unit = technology.unit(budget.unit)
    scale = technology.scale(unit.node, budget.node)
    interface, joined = _interface(budget, technology.d2d(budget.d2d) if budget.d2d else None)
    core, cached, stacked, linked = _shares(budget, unit, interface)
    made = engine.compute(core, unit, scale.logic, scale.power, budget.clamp)
    beside_mm2 = (unit.package.si - 1.0) * budget.area_mm2 / budget.num_ranks
    stacks, shared = _stacks(budget)
    cache = engine.cache(cached, unit.cache, scale.cache, scale.power)
    memory = engine.memory(stacked, technology.memory(budget.memory), beside_mm2, scale.analog, stacks, budget.clamp)
    if budget.one_device and budget.d2d:
        most = memory_reach(budget.join, budget.num_dies) * budget.d2d_bytes_per_s
        memory = replace(memory, bytes_per_s=np.minimum(memory.bytes_per_s, most))
    network = engine.network(linked, technology.link(budget.link), scale.analog)
    flux, heat = technology.flux_w_per_mm2(budget.cooling), budget.power_w / budget.area_mm2
    cooled = check(heat <= flux * (1 + 1e-12), Reason.COOLING, flux * np.ones_like(heat), heat)
    fit = FITS.then(*_faults(budget), *joined, shared, made.fit, cache.fit, memory.fit, network.fit, cooled)
    rates = tuple((dtype, rate.si) for dtype, rate in unit.rates.items())
    vector = made.num_sms * unit.vector_flop_per_clock.si * made.clock_hz
    # Nan in place of all that a budget has no room for, and the reasons beside it.
    volts = made.at.voltage_v / unit.voltage.nominal.si
    logic, wires = logic_energy(technology, budget.node, volts), wire_energy(budget.die_mm2, volts)
    found = Design(budget, made, cache, memory, network, interface, vector, rates, logic, wires, FITS)
    num_rows = columns.length_of(found.budget)
    reasons = Fit(*(np.broadcast_to(x, num_rows) for x in (fit.reason, fit.given, fit.needed)))
    kept = found if reasons.holds.all() else columns.masked(found, reasons.holds)
    return replace(
        kept,
        budget=found.budget,
        compute=replace(kept.compute, fit=FITS),
        cache=replace(kept.cache, fit=FITS),
        memory=replace(kept.memory, fit=FITS),
        network=replace(kept.network, fit=FITS),
        fit=reasons,
    )


def _faults(budget: Budget) -> Iterator[Fit]:
    """What is no budget at all."""
    area, power = budget.area_mm2, budget.power_w
    sane = (area > 0) & (area < math.inf) & (power > 0) & (power < math.inf)
    yield check(sane, Reason.BUDGET, area, power)
    yield check((budget.num_dies >= 1) & (budget.num_dies % 1 == 0), Reason.DIES, budget.num_dies, 1.0)
    for shares in (budget.area_shares, budget.power_shares):
        if shares is not None:
            least = np.minimum(np.minimum(shares.core, shares.cache), np.minimum(shares.memory, shares.network))
            yield check((shares.total <= 1 + 1e-9) & (least > 0), Reason.SHARES, shares.total, 1.0)
    edge = budget.edge_shares
    if edge is not None:
        yield check(edge.total <= 1 + 1e-9, Reason.SHARES, edge.total, 1.0)


def _stacks(budget: Budget) -> tuple[Num | None, Fit]:
    """Stacks of one device."""
    if budget.num_stacks is None:
        return None, FITS
    stacks = budget.num_stacks / budget.num_ranks
    return np.maximum(stacks, 1.0), check(
        (stacks >= 1) & (stacks % 1 == 0), Reason.RANKS, budget.num_stacks, budget.num_ranks
    )


def _interface(budget: Budget, kind: D2dKind | None) -> tuple[Interface, tuple[Fit, ...]]:
    """What a die needs to be joined to its neighbours, of its area, edge and power."""
    if kind is None:
        zero = np.zeros(1)
        return Interface(zero, zero, zero, zero, zero, zero), ()
    dies, rate = budget.num_dies, budget.d2d_bytes_per_s
    others = neighbours(budget.join, dies)
    # A die has four sides: with more neighbours, several share one.
    side_mm = np.ceil(others / 4) * kind.shoreline_mm(rate)
    found = Interface(
        num_neighbours=others,
        num_modules=others * kind.modules(rate) if kind.module_mm2 else 0.0 * others,
        bytes_per_s=links(budget.join, dies) * rate,
        area_mm2=kind.phy_mm2(rate, budget.die_mm2, others),
        edge_mm=others * kind.shoreline_mm(rate),
        power_w=others * kind.power_w(rate),
    )
    apart_mm = span_mm(budget.join, dies, budget.side_mm)
    is_pairs = np.less_equal(dies, 2) | np.equal(np.remainder(dies, 2), 0) | (budget.join != "mesh")
    power_w = budget.power_w / dies
    # A device has the interfaces of all its dies.
    own = dies / budget.num_ranks
    of_device = replace(
        found,
        num_modules=own * found.num_modules,
        area_mm2=own * found.area_mm2,
        edge_mm=own * found.edge_mm,
        power_w=own * found.power_w,
    )
    return of_device, (
        check(is_pairs, Reason.JOIN, dies, 2.0),
        check((dies <= 1) | (rate > 0), Reason.D2D_BANDWIDTH, rate, dies),
        check(apart_mm <= kind.reach_mm, Reason.D2D_REACH, kind.reach_mm, apart_mm),
        check(side_mm <= budget.side_mm * (1 + 1e-12), Reason.D2D_SHORELINE, budget.side_mm, side_mm),
        check(found.area_mm2 < budget.die_mm2, Reason.D2D_AREA, budget.die_mm2, found.area_mm2),
        check(found.power_w < power_w, Reason.D2D_POWER, power_w, found.power_w),
    )


def room_of(budget: Budget, technology: Technology) -> Share:
    """Return the area, power and edge of one device that the interface between dies leaves its parts."""
    return _room(budget, _interface(budget, technology.d2d(budget.d2d) if budget.d2d else None)[0])


def _room(budget: Budget, interface: Interface) -> Share:
    ranks = budget.num_ranks
    return Share(
        budget.area_mm2 / ranks - interface.area_mm2,
        budget.power_w / ranks - interface.power_w,
        budget.edge_mm / ranks - interface.edge_mm,
    )


def _shares(budget: Budget, unit: UnitSection, interface: Interface) -> tuple[Share, Share, Share, Share]:
    """What each part of a device may take: its share of what the interface leaves."""
    room = _room(budget, interface)
    a, p, e = room.area_mm2, room.power_w, room.edge_mm
    area = budget.area_shares or AreaShares(*(getattr(unit.area_shares, k).si for k in _PARTS))
    power = budget.power_shares or AreaShares(*(getattr(unit.power_shares, k).si for k in _PARTS))
    edge = budget.edge_shares or EdgeShares(unit.edge_shares.memory.si, unit.edge_shares.network.si)
    return (
        Share(a * area.core, p * power.core),
        Share(a * area.cache, p * power.cache),
        Share(a * area.memory, p * power.memory, e * edge.memory),
        Share(a * area.network, p * power.network, e * edge.network),
    )


_PARTS = ("core", "cache", "memory", "network")
