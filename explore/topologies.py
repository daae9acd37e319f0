"""Topologies of one size that cost, draw or carry the same: each scaled in the rate of its links, then a step on each.

All are built of the ports, switches, cables and optics of the outermost level of a system. What a network costs and
draws goes with the rate of its links, as with planes side by side: a link of half the rate is half a link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias, get_args

from ..backends.machine.system import System
from ..backends.network.algorithms.algorithm import BEST
from ..backends.network.topology.level import SWITCHED, Dragonfly, NetworkLevel, Topology
from ..backends.network.topology.placement import compact_dims, placements_of, shape_text
from ..backends.network.topology.section import nesting_faults
from ..cost.ownership.cabling.network import network_costs
from ..cost.ownership.cabling.wiring import direct_ports
from ..cost.ownership.owned import entry
from ..cost.ownership.system import system_cost
from ..driver.estimate import Estimate, checked_table, estimate, estimate_many
from ..ir.errors import PlanError, UsageError
from ..ir.graph import Graph
from ..ir.plan import Plan
from ..ir.plan.word import changed
from ..ir.records import dataclass
from .plans.lowerings import Lowerings

Equal: TypeAlias = Literal["cost", "power", "bandwidth"]
EQUALS: tuple[Equal, ...] = ("cost", "power", "bandwidth")
USUAL = ("fat_tree", "fat_tree=2", "rail_optimised", "dragonfly", "torus", "hyperx")
_NODE, _RAILS = "node/", ("rail_optimised", "rail_only")
_SHAPED = ("torus", "mesh", "hyperx")
_NUMBERED = {"fat_tree": "the oversubscription, as 2", **dict.fromkeys(_RAILS, "the oversubscription, as 2")}


@dataclass(frozen=True, slots=True)
class TopologyNetwork:
    """A network of a topology with links of some rate.

    Attributes:
        name: as people ask for it, with its numbers.
        levels: of the network, innermost first.
        link_bytes_per_s: rate of one link, one direction.
        usd: what the outermost level costs, adapters included.
        power_w: what it draws, with all links lit.
        unpriced: what has no price.
    """

    name: str
    levels: tuple[NetworkLevel, ...]
    link_bytes_per_s: float
    usd: float
    power_w: float
    unpriced: tuple[str, ...] = ()

    @property
    def bytes_per_s(self) -> float:
        """Bandwidth of a rank into the outermost level, one direction."""
        return float(self.levels[-1].bytes_per_s)

    def amount(self, equal: Equal) -> float:
        """Return what is to be equal."""
        return {"cost": self.usd, "power": self.power_w, "bandwidth": self.bytes_per_s}[equal]

    def scaled(self, factor: float) -> TopologyNetwork:
        """Return the network with links so many times as fast."""
        *inner, top = self.levels
        far = top.dragonfly and replace(top.dragonfly, global_bytes_per_s=top.dragonfly.global_bytes_per_s * factor)
        levels = (*inner, replace(top, bytes_per_s=top.bytes_per_s * factor, dragonfly=far))
        link, usd, power_w = (x * factor for x in (self.link_bytes_per_s, self.usd, self.power_w))
        return TopologyNetwork(self.name, levels, link, usd, power_w, self.unpriced)


@dataclass(frozen=True, slots=True)
class TopologyStep:
    """A step on a topology, under its fastest plan and placement.

    Attributes:
        network: the network.
        answer: the step; None where no plan fits the memory.
        capex_usd: servers and network.
    """

    network: TopologyNetwork
    answer: Estimate | None
    capex_usd: float


def usual_networks(system: System, num_gpus: int) -> list[TopologyNetwork]:
    """Return the usual topologies over so many accelerators, without those that do not come in that size."""
    found, wrong = list[TopologyNetwork](), list[UsageError]()
    for text in USUAL:
        try:
            found.append(topology_network(text, system, num_gpus))
        except UsageError as error:
            wrong.append(error)
    if not found:
        raise wrong[0]
    return found


def topology_network(text: str, system: System, num_gpus: int) -> TopologyNetwork:
    """Build a topology over so many accelerators, with one port of the system's outermost level a link.

    `text` is a topology, and its numbers behind an equals sign: `torus=16x16x16`, `fat_tree=2`,
    `dragonfly=16x32x8` (hosts at a router, routers in a group, groups; as many global links a router as hosts).
    `node/torus` joins nodes, inside of which the system's own levels stay, as rails always do. Direct ones have no
    switches or adapters.

    Raises:
        UsageError: an unknown topology, numbers that do not fit, a system that does not say what its network is of.
    """
    on_nodes, (name, _, numbers) = text.strip().startswith(_NODE), text.strip().removeprefix(_NODE).partition("=")
    outer = system.levels[-1]
    built = outer.equipment
    if built is None:
        raise UsageError(
            f"system '{system.name}': add network.{outer.name}.equipment: topologies are built of the same parts"
        )
    if name not in get_args(Topology) or name == "graph":
        allowed = ", ".join(t for t in get_args(Topology) if t != "graph")
        raise UsageError(f"unknown topology '{name}'; allowed: {allowed}")
    level = NetworkLevel("network", num_gpus, outer.bytes_per_s, outer.latency_s, algorithm=BEST, equipment=built)
    kept = {key: getattr(outer, key) for key in ("efficiency", "hop_latency_s", "contention")}
    level = changed(level, {"topology": name, **kept})
    nodes = tuple(v for v in system.levels if v.size is not None and v.size <= system.node_size)
    inner = nodes if on_nodes or name in _RAILS else ()
    members = num_gpus // ((inner[-1].size if inner else None) or 1)
    try:
        level = _numbered(level, numbers, members, system)
    except UsageError:
        raise
    except ValueError:
        raise UsageError(f"'{text}': behind = goes {_NUMBERED.get(name, 'its shape, as 16x16x16')}") from None
    if name not in (*SWITCHED, "dragonfly"):
        ports, _ = direct_ports(level, members)
        bare = replace(built, switch="", switches=None, adapter="", adapters=1.0, ports=None, joins="ranks")
        level = replace(level, bytes_per_s=outer.bytes_per_s * ports, equipment=bare)
    levels = (*inner, level)
    if faults := list(nesting_faults(levels)):
        raise UsageError(f"'{text}' of {num_gpus} accelerators: {'; '.join(faults)}")
    cost = network_costs(levels, num_gpus, system.prices, system.node_size)[-1]
    parts = (cost.fabric, cost.adapters)
    return TopologyNetwork(
        (_NODE if on_nodes else "") + _full_name(level),
        levels,
        float(outer.bytes_per_s),
        float(sum(part.bill.usd for part in parts)),
        float(sum(part.power_w for part in parts)),
        tuple(dict.fromkeys(line for part in parts for line in part.unpriced)),
    )


def _numbered(level: NetworkLevel, numbers: str, members: int, system: System) -> NetworkLevel:
    """Give a level its numbers, or those that suit what it joins; ValueError for what are none."""
    if level.topology in _NUMBERED:
        return replace(level, oversubscription=max(float(numbers or 1), 1.0))
    shape = tuple(int(n) for n in numbers.split("x")) if numbers else ()
    if level.topology in _SHAPED:
        return replace(level, dims=shape or compact_dims((1, 1, 1), members))
    if level.topology == "dragonfly":
        hosts, routers, groups = shape or _balanced(members, system)
        return replace(level, dragonfly=Dragonfly(hosts, routers, groups, hosts, float(level.bytes_per_s)))
    if shape:
        raise ValueError
    return level


def _balanced(size: int, system: System) -> tuple[int, int, int]:
    """Return the dragonfly of so many hosts with p at a router and 2p routers a group, the largest p of a switch."""
    built = system.levels[-1].equipment
    assert built is not None
    ports = int(entry(system.prices.section.switches, "switch", built.switch).ports.si) if built.switch else 64
    for hosts in range((ports + 1) // 4, 0, -1):
        group = 2 * hosts * hosts
        if size % group == 0 and 2 <= size // group <= group + 1:
            return hosts, 2 * hosts, size // group
    raise UsageError(
        f"no balanced dragonfly has {size} hosts with switches of {ports} ports: write hosts x routers x groups, as in "
        "dragonfly=4x8x32"
    )


def _full_name(level: NetworkLevel) -> str:
    d = level.dragonfly
    shape = shape_text((d.hosts, d.routers, d.groups) if d else level.dims)
    if level.topology in _NUMBERED:
        shape = f"{float(level.oversubscription):g}:1"
    return f"{level.topology.replace('_', ' ')} {shape}".strip()


def equalised(networks: Sequence[TopologyNetwork], equal: Equal, budget: float | None) -> list[TopologyNetwork]:
    """Scale networks until each costs, draws or carries the budget, by default what the first one does.

    UsageError for what has no price, or a budget that is not above 0.
    """
    amount = networks[0].amount(equal) if budget is None else budget
    if missing := [line for one in networks for line in one.unpriced] if equal != "bandwidth" else []:
        raise UsageError(f"topologies of equal {equal} need prices: {missing[0]}")
    if not amount > 0:
        raise UsageError(f"a budget of {amount:g}: above 0")
    if zero := next((one for one in networks if one.amount(equal) <= 0), None):
        raise UsageError(f"{zero.name} has no {equal}: nothing of it grows with its links; take another of --equal")
    return [one.scaled(amount / one.amount(equal)) for one in networks]


def steps_on(
    networks: Sequence[TopologyNetwork], system: System, graph: Graph, plans: Sequence[Plan]
) -> list[TopologyStep]:
    """Estimate a step on each network, with the fastest of the plans that fit under its best placement.

    A plan that says where its groups lie keeps that. PlanError where no plan is legal.
    """
    lowerings, legal, wrong = Lowerings(graph), list[Plan](), list[PlanError]()
    for plan in plans:
        try:
            checked_table(lowerings.of(plan.family), [plan])
            legal.append(plan)
        except PlanError as error:
            wrong.append(error)
    if not legal:
        raise wrong[0]
    num_gpus = legal[0].num_gpus
    servers = system_cost(system, num_gpus, system.prices).servers.bill.usd
    found = []
    for network in networks:
        on = replace(system, levels=network.levels)
        words = {"auto": placements_of(on.levels)}
        placed = [
            plan.under(changed(plan.family, {"placement": word}))
            for plan in legal
            for word in words.get(plan.placement, (plan.placement,))
        ]
        best = _fastest(on, lowerings, placed)
        answer = None if best is None else estimate(graph, on, best, lowered=lowerings.of(best.family))
        found.append(TopologyStep(network, answer, float(servers) + network.usd))
    return found


def _fastest(system: System, lowerings: Lowerings, plans: Sequence[Plan]) -> Plan | None:
    """Return the fastest plan that fits the memory; of equal ones the first."""
    best: tuple[float, Plan] | None = None
    for family in dict.fromkeys(plan.family for plan in plans):
        some = [plan for plan in plans if plan.family == family]
        table = estimate_many(lowerings.of(family), system, some)
        for plan, step_s, fits in zip(some, table.metrics["step_time_s"].tolist(), table.fits, strict=True):
            if fits and (best is None or step_s < best[0]):
                best = step_s, plan
    return None if best is None else best[1]
