"""The price book of silicon: wafers, dies, packages, memories, and the design of all that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from ...ir.errors import UnknownNameError
from ..machine.files.kinds import Checked
from ..machine.files.number import Number
from ..machine.files.section import Section
from ..technology.d2d import ORGANIC_WIRES_PER_MM
from ..technology.files.schema_numbers import Density as WireDensity
from .numbers import (
    Area,
    AreaPerByte,
    CurrentDensity,
    Cycle,
    Defects,
    Density,
    Divisor,
    Length,
    Life,
    Money,
    MoneyPerArea,
    MoneyPerByte,
    MoneyPerTime,
    Period,
    Plain,
    PowerDensity,
    Rate,
    Share,
    Supply,
    Yield,
)

# What may be chosen about how silicon is priced. The words are explained in docs/silicon.md.
CHOICES: dict[str, tuple[str, ...]] = {
    "yield": ("negative_binomial", "poisson", "murphy", "seeds", "bose_einstein"),
    "dies_per_wafer": ("formula", "plain_formula", "placed_grid", "placed_rows"),
    "wafer_cost": ("wafer", "area"),
    "tests": ("perfect", "coverage"),
    "assembly": ("classes", "tree"),
    "design": ("shares", "per_area", "gates"),
    "field": ("full", "half"),
    "dram": ("low", "base", "high"),
}


class WaferPrices(Section):
    """Wafers of every node, and how dies lie on them.

    Attributes:
        edge_loss: ring that has no dies.
        priced_edge: ring left out where the price of a wafer is made a price of area.
        field_width: of what is exposed at once; the longer side is `field_height`.
        process_yield: wafers that are finished.
        stitch_yield: of each line along which two fields are joined.
    """

    diameter: Length
    edge_loss: Length
    priced_edge: Length
    scribe_lane: Length
    dicing: Length
    field_width: Length
    field_height: Length
    process_yield: Yield
    stitch_yield: Yield


class YieldPrices(Section):
    """Statistics of defects: how they cluster, and in how many layers they lie."""

    cluster: Divisor
    layers: Divisor


class NodePrices(Section):
    """A technology node.

    Attributes:
        critical_area: part of a die where a defect kills it.
        processed_cost: of an area of wafer, where a profile prices area.
        litho_share: part of the cost of a wafer that is lithography.
        design: of a chip of the reference area, with modules, chip and first tape-out.
        mask_set: one set of masks.
        matrix_tflops: units for 1 TFLOP/s of bf16.
    """

    wafer_price: Money
    defect_density: Defects
    critical_area: Share
    processed_cost: MoneyPerArea | None = None
    litho_share: Share | None = None
    mask_set: Money | None = None
    design: Money | None = None
    ip_licences: Money | None = None
    labour_per_gate: Money | None = None
    transistor_density: Density | None = None
    sram_macro: AreaPerByte | None = None
    matrix_tflops: Area | None = None


class OrganicPrices(Section):
    """Organic substrates: a factor of the area that stands on them; layers cost more under several dies.

    Attributes:
        area_factor: over the area of dies on it.
        carrier_factor: over the area of an interposer, or of layers of wires, on it.
    """

    area_factor: Plain
    carrier_factor: Plain
    cost: MoneyPerArea
    small_layers: Plain
    medium_layers: Plain
    large_layers: Plain
    medium_area: Area
    large_area: Area
    bonding_yield: Yield
    bump_cost: MoneyPerArea
    design_per_area: MoneyPerArea
    design: Money
    limit: Area


class WiringPrices(Section):
    """What lies between dies and substrate, made on wafers: layers of wires, or an interposer of silicon.

    Attributes:
        wafer_price: processed; what carries dies is diced from it.
        area_factor: over the area of what stands on it.
        bonding_yield: of each die.
        bump_cost: joints of the dies, for their area.
        design_scale: of a chip of `design_node`, for a package; or
        design: of one of the reference area, half of it fixed.
        limit: the largest there is, in full fields of lithography.
    """

    wafer_price: Money
    defect_density: Defects
    cluster: Divisor
    critical_area: Share
    area_factor: Plain
    bonding_yield: Yield
    bump_cost: MoneyPerArea
    limit: Plain
    design: Money | None = None
    design_scale: Plain | None = None
    design_node: str | None = None
    processed_cost: MoneyPerArea | None = None
    litho_share: Share | None = None
    mask_set: Money | None = None


class BridgePrices(Section):
    """Silicon bridges: small dies of wires on wafers of the interposer, embedded in what carries the dies."""

    area: Area
    embed_yield: Yield
    embed_cost: Money


class HybridPrices(Section):
    """Bonds of copper to copper, and the vias through the silicon below them."""

    pitch: Length
    bond_yield: Yield
    alignment_yield: Yield
    dielectric_defects: Defects
    materials: MoneyPerArea
    tsv_yield: Yield
    tsv_area: Area
    tsv_density: Density
    limit: Plain


class PackagePrices(Section):
    """Packages by how they join, and what is done to every one of them."""

    organic: OrganicPrices
    fan_out: WiringPrices
    interposer: WiringPrices
    fan_out_bridge: WiringPrices
    bridge: BridgePrices
    hybrid_bond: HybridPrices
    test_and_assembly: Money
    flip_chip_design: Money


class ProcessPrices(Section):
    """A way to put dies on a substrate: machines, how many dies at a time, pitch and yields."""

    pick_place_machine: Money
    bonding_machine: Money
    pick_place_group: Divisor
    bonding_group: Divisor
    pitch: Length
    alignment_yield: Yield
    bond_yield: Yield
    dielectric_defects: Defects
    materials: MoneyPerArea
    separation: Length
    edge_exclusion: Length
    pad_current: CurrentDensity


class PadPrices(Section):
    """Connections of dies, where they are counted: power by area, lanes of interfaces, pins of memory, test.

    Attributes:
        lane_rate: of an interface between dies, one way.
        memory_pins: of a stack.
    """

    power_density: PowerDensity
    voltage: Supply
    lane_rate: Rate
    memory_pins: Plain
    test_pads: Plain


class MachinePrices(Section):
    """What machines of assembly have in common."""

    pick_place_time: Period
    bonding_time: Period
    life: Life
    uptime: Yield
    technician: MoneyPerTime


class TestPrices(Section):
    """Tests of dies and of assemblies.

    Attributes:
        tester: a tester's second.
        cycle: of the tester.
        samples: read for each pattern.
        scan_length: flip-flops in a chain, for each mm2.
        die_share: what testing adds, as a part of a die's cost.
        assembly_patterns: of the final test.
        assembly_scan_length: of the final test, in all.
    """

    __test__ = False

    tester: MoneyPerTime
    cycle: Cycle
    patterns: Plain
    samples: Plain
    scan_length: Density
    coverage: Share
    die_share: Share
    assembly_coverage: Share
    assembly_patterns: Plain
    assembly_scan_length: Plain


class BaseDie(Section):
    """The die of logic below the DRAM of a stack."""

    node: str
    area: Area


class MemoryPrices(Section):
    """Memory, bought as known good; the footprint is what a stack or device takes of a substrate.

    Attributes:
        density: wires of one along an edge.
        base_die: of which the price has the cost in it; None where it is of DRAM's own process.
    """

    price: MoneyPerByte
    footprint: Area
    density: WireDensity | None = None
    stack_price: Money | None = None
    processed_cost: MoneyPerArea | None = None
    base_die: BaseDie | None = None

    @property
    def fine_wires(self) -> bool:
        """Whether it needs wires finer than those of an organic substrate."""
        return self.density is not None and self.density.si > ORGANIC_WIRES_PER_MM


class DramPrices(Section):
    """What a scenario makes of all prices of memory; `models.dram` chooses one."""

    low: Plain
    base: Plain
    high: Plain


class BlockPrices(Section):
    """Silicon that parts of a chip take, for those who draw up a die; the technology engine has more.

    Attributes:
        hbm_channel: pads and controller of 128 bits on N7.
    """

    hbm_channel: Area
    ddr5_32bit: Area


class DesignPrices(Section):
    """What is paid once.

    Attributes:
        module_share: of a node's `design`, for the modules on a chip of `reference_area`.
        chip_share: the same for what is laid out anew on every chip; the rest is fixed for each chip.
        d2d_area: what an interface between dies is designed as.
        per_area: of layout, where a profile prices area.
        flip_chip: a package on an organic substrate.
    """

    module_share: Share
    chip_share: Share
    reference_area: Area
    d2d_area: Area
    d2d_share: Share
    per_area: MoneyPerArea
    gate_transistors: Plain


class QuotedBill(Section):
    """Manufacturing cost and price of a chip as analysts estimate them. Nothing is computed from it."""

    total: Money | None = None
    logic: Money | None = None
    memory: Money | None = None
    packaging: Money | None = None
    packaging_yield_loss: Money | None = None
    test_and_assembly: Money | None = None
    other: Money | None = None
    price: Money | None = None


def _choice_faults(models: Mapping[str, str]) -> Iterator[str]:
    for name, choice in models.items():
        if name not in CHOICES:
            raise UnknownNameError.of("choice", name, CHOICES)
        if choice not in CHOICES[name]:
            raise UnknownNameError.of(f"models.{name}", choice, CHOICES[name])
    yield from ()


class SiliconSection(Section):
    """What dies and packages are made of, and for how much."""

    models: Annotated[dict[str, str], Checked(_choice_faults)]
    wafer: WaferPrices
    yields: YieldPrices
    nodes: dict[str, NodePrices]
    packages: PackagePrices
    processes: dict[str, ProcessPrices]
    assembly_of: dict[str, str]
    pads: PadPrices
    machines: MachinePrices
    tests: TestPrices
    memories: dict[str, MemoryPrices]
    dram: DramPrices
    blocks: BlockPrices
    design: DesignPrices
    bills: dict[str, QuotedBill]

    def model(self, name: str) -> str:
        """Return what a profile, or who uses it, chose: one of `CHOICES[name]`."""
        return self.models[name]

    @property
    def dram_factor(self) -> Number:
        """What the scenario of the book makes of prices of memory."""
        return {"low": self.dram.low, "base": self.dram.base, "high": self.dram.high}[self.model("dram")]

    def node(self, name: str) -> NodePrices:
        """Return a technology node; UnknownNameError names those there are."""
        if name not in self.nodes:
            raise UnknownNameError.of("technology node", name, self.nodes)
        return self.nodes[name]

    def memory(self, kind: str) -> MemoryPrices:
        """Return a kind of memory; UnknownNameError names those there are."""
        if kind not in self.memories:
            raise UnknownNameError.of("memory", kind, self.memories)
        return self.memories[kind]
