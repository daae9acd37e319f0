"""The price book carries what `tests/data/cost_defaults.csv` lists: every row a number or an `other`, with its source.

The list was gathered from public tools and reports; a row is found by its parameter, its node or package, its value in
base units, and the words of its source.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from slipstick.backends.machine.files.kinds import SHARE
from slipstick.backends.machine.files.number import Number, read_number
from slipstick.backends.machine.files.section import Section, fields_of, section_of
from slipstick.backends.machine.files.system_overrides import override
from slipstick.backends.machine.load import load_system
from slipstick.backends.prices.book import USUAL, laid_down, load_prices, profile_file, profile_names, shipped
from slipstick.backends.prices.section import Prices, PricesSection
from slipstick.backends.technology.data import load_technology
from slipstick.cost.money import Terms, system_money
from slipstick.ir.errors import SystemFileError, UnknownNameError
from slipstick.ir.units import parse_quantity

ROWS = Path(__file__).resolve().parents[2] / "data" / "cost_defaults.csv"

# Where the rows of silicon are, by parameter: `*` is a node, a package, a memory.
SILICON: Mapping[str, str] = {
    "wafer_diameter": "wafer.diameter",
    "scribe_lane": "wafer.scribe_lane",
    "wafer_edge_loss": "wafer.edge_loss",
    "wafer_edge_exclusion_alt": "wafer.priced_edge",
    "dicing_distance": "wafer.dicing",
    "reticle_x": "wafer.field_width",
    "reticle_y": "wafer.field_height",
    "yield_cluster_alpha": "yields.cluster",
    "wafer_process_yield": "wafer.process_yield",
    "wafer_price": "nodes.*.wafer_price",
    "defect_density": "nodes.*.defect_density",
    "nre_total_at_300mm2": "nodes.*.design",
    "critical_area_ratio": "*.critical_area",
    "processed_cost_per_mm2": "*.processed_cost",
    "litho_share_of_wafer_cost": "*.litho_share",
    "mask_set_nre": "*.mask_set",
    "ip_licensing_nre": "nodes.*.ip_licences",
    "backend_labor_per_gate": "nodes.*.labour_per_gate",
    "transistors_per_gate": "design.gate_transistors",
    "transistor_density": "nodes.*.transistor_density",
    "sram_bitcell_area": "technology.densities.*.cell",
    "sram_macro_density": "nodes.*.sram_macro",
    "mac_area_density": "nodes.*.matrix_tflops",
    "fpu64_transistors": "technology.circuits.fp64",
    "nre_module_fraction": "design.module_share",
    "nre_chip_fraction": "design.chip_share",
    "d2d_module_design_area": "design.d2d_area",
    "nre_backend_logic": "design.per_area",
    "flip_chip_package_design_cost": "packages.flip_chip_design",
    "substrate_cost": "packages.organic.cost",
    "substrate_area_scale": "packages.organic.area_factor",
    "substrate_layer_factor": "packages.organic.*_layers",
    "substrate_nre_per_mm2": "packages.organic.design_per_area",
    "substrate_nre_fixed": "packages.organic.design",
    "bonding_yield_per_die": "packages.*.bonding_yield",
    "c4_bump_cost": "packages.organic.bump_cost",
    "rdl_wafer_cost": "packages.fan_out.wafer_price",
    "rdl_defect_density": "packages.fan_out.defect_density",
    "rdl_cluster_alpha": "packages.fan_out.cluster",
    "rdl_area_scale": "packages.fan_out.area_factor",
    "package_nre": "packages.fan_out.design",
    "interposer_wafer_cost": "packages.interposer.wafer_price",
    "interposer_defect_density": "packages.interposer.defect_density",
    "interposer_cluster_alpha": "packages.interposer.cluster",
    "interposer_area_scale": "packages.interposer.area_factor",
    "microbump_cost": "packages.*.bump_cost",
    "package_nre_scale": "packages.interposer.design_scale",
    "packaging_cost_per_unit": "bills.*.packaging",
    "packaging_yield_loss_per_unit": "bills.*.packaging_yield_loss",
    "bridge_die_area": "packages.bridge.area",
    "bridge_embed_yield": "packages.bridge.embed_yield",
    "bridge_embed_cost": "packages.bridge.embed_cost",
    "pick_place_machine_cost": "processes.*.pick_place_machine",
    "bonding_machine_cost": "processes.*.bonding_machine",
    "bonding_group_size": "processes.*.bonding_group",
    "bond_pitch": "processes.*.pitch",
    "alignment_yield_per_die": "processes.*.alignment_yield",
    "bonding_time": "machines.bonding_time",
    "pick_place_time": "machines.pick_place_time",
    "assembly_machine_lifetime": "machines.life",
    "assembly_machine_uptime": "machines.uptime",
    "assembly_technician_cost": "machines.technician",
    "assembly_materials_cost": "processes.*.materials",
    "bond_yield_per_connection": "processes.*.bond_yield",
    "dielectric_bond_defect_density": "processes.*.dielectric_defects",
    "tsv_yield": "packages.hybrid_bond.tsv_yield",
    "tsv_area": "packages.hybrid_bond.tsv_area",
    "die_separation": "processes.*.separation",
    "max_pad_current_density": "processes.*.pad_current",
    "d2d_area_fraction": "technology.d2d.area-share.share",
    "ucie_std_phy_area": "technology.d2d.ucie-standard.area",
    "ucie_std_shoreline": "technology.d2d.ucie-standard.shoreline",
    "ucie_adv_phy_area": "technology.d2d.ucie-advanced.area",
    "ucie_adv_shoreline": "technology.d2d.ucie-advanced.shoreline",
    "ucie_energy": "technology.d2d.ucie-*.energy",
    "ucie_std_energy": "technology.d2d.ucie-standard.energy",
    "ucie_adv_energy": "technology.d2d.ucie-advanced.energy",
    "nvlink_c2c_energy": "technology.d2d.nvlink-c2c.energy",
    "tester_cost": "tests.tester",
    "defect_coverage_die": "tests.coverage",
    "defect_coverage_assembly": "tests.assembly_coverage",
    "test_cost_overhead": "tests.die_share",
    "test_and_assembly_cost": "*test_and_assembly",
    "hbm_cost": "memories.*.price",
    "hbm_stack_cost": "memories.*.stack_price",
    "hbm_stack_cost_range": "memories.*.stack_price",
    "hbm_total_cost": "bills.*.memory",
    "hbm4_cost": "memories.hbm4.price",
    "ddr5_cost": "memories.ddr5.price",
    "hbm_phy_area": "technology.phys.hbm2e.pads",
    "hbm_ctrl_transistors": "technology.phys.hbm2e.controller",
    "hbm_phy_ctrl_area_per_channel": "blocks.hbm_channel",
    "nvlink3_phy_area": "technology.phys.nvlink3.pads",
    "nvlink4_phy_area": "technology.phys.nvlink4.pads",
    "pcie5_phy_area": "technology.phys.pcie5.pads",
    "ddr5_phy_area": "blocks.ddr5_32bit",
    "hbm_stack_capacity": "technology.memories.*.capacity",
    "hbm_stack_bandwidth": "technology.memories.*.rate",
    "hbm_stack_footprint": "memories.*.footprint",
    "bom_total": "bills.*.total",
    "bom_logic_die": "bills.*.logic",
    "bom_other": "bills.b200.other",
    "sell_price": "bills.*.price",
}
# Units of the list in the book's words. A gigabyte of memory that is bought has 2^30 bytes.
UNITS: Mapping[str, str] = {
    "USD/GB": "USD/GiB",
    "USD/wafer": "USD",
    "USD/unit": "USD",
    "USD/stack": "USD",
    "USD/gate": "USD",
    "MTr/mm2": "M",
    "MTr/link": "M",
}


@dataclass(frozen=True)
class Row:
    parameter: str
    value: str
    unit: str
    place: str
    source: str

    @property
    def key(self) -> str:
        """The parameter without what says that another source gave it first."""
        return self.parameter.removesuffix("2").removesuffix("3").removesuffix("_alt")

    def values(self) -> list[float]:
        """The number in base units, or both ends of a range."""
        parts = self.value.split("-") if self.value[0].isdigit() and "e-" not in self.value else [self.value]
        return [self._si(part) for part in parts]

    def _si(self, text: str) -> float:
        unit = UNITS.get(self.unit, self.unit)
        if unit == "M":
            return float(text) * 1e6
        known = unit.split("/")[0] in ("USD", "mm", "mm2", "1", "A", "s", "year", "GB", "pJ")
        if not known:
            return float(text)
        try:
            return parse_quantity(f"{text} {unit}").value_si
        except ValueError:
            return parse_quantity(f"{text} {unit.split('/')[0]}").value_si


@dataclass(frozen=True)
class Said:
    path: str
    value: float
    source: str


def rows() -> list[Row]:
    with ROWS.open(encoding="utf-8", newline="") as file:
        found = csv.DictReader(file)
        return [Row(r["parameter"], r["value"], r["unit"], r["node/package"], r["source"]) for r in found]


def said(section: Section | Number, path: str) -> Iterator[Said]:
    """Every number of a section, and what other sources say beside it."""
    if isinstance(section, Number):
        yield Said(path, section.si, section.source)
        for other in section.others:
            yield Said(path, section.si_of(other), other.source)
        return
    for key in fields_of(type(section)):
        below: object = getattr(section, key)
        named = below.items() if isinstance(below, dict) else [("", below)]
        for name, entry in named:
            if isinstance(entry, Section | Number):
                yield from said(entry, ".".join(filter(None, (path, key, str(name)))))


@pytest.fixture(scope="module")
def book() -> list[Said]:
    return [*said(load_prices("chiplet-actuary").section, ""), *said(load_technology().section, "technology")]


def is_said(row: Row, value: float, book: list[Said]) -> bool:
    pattern = SILICON[row.key]
    node = row.place.split()[0].split("/")[0]
    for one in book:
        if not fnmatchcase(one.path, pattern) or not math.isclose(one.value, value, rel_tol=1e-9):
            continue
        if one.path.startswith("nodes.N") and node[0] == "N" and "-" not in node and node not in one.path.split("."):
            continue
        in_words = row.source.replace('"', "'") in one.source
        if in_words or (pattern.startswith("technology") and row.source.split()[0] in one.source):
            return True
    # What the technology's data says of another source stands in its words.
    return any(
        fnmatchcase(one.path, pattern) and f"{row.value.removesuffix('.0')} {row.unit}" in one.source for one in book
    )


@pytest.mark.parametrize("row", [r for r in rows() if r.key in SILICON], ids=lambda r: f"{r.parameter}-{r.place[:30]}")
def test_a_row_of_silicon_is_in_the_book_with_its_source(book: list[Said], row: Row) -> None:
    for value in row.values():
        assert is_said(row, value, book), f"{row} is nowhere at {SILICON[row.key]}"


def test_every_number_says_where_it_comes_from(book: list[Said]) -> None:
    assert [one.path for one in book if len(one.source) < 3] == []


@pytest.mark.parametrize("profile", profile_names())
def test_a_profile_is_of_the_keys_of_the_book(profile: str) -> None:
    assert {n.path for n in load_prices(profile).records} >= {n.path for n in load_prices().records}


def test_a_choice_is_set_by_its_key() -> None:
    assert load_prices(overrides=("models.yield=murphy",)).section.models["yield"] == "murphy"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models.yield=murpy", "did you mean 'murphy'"),
        ("models.yeld=murphy", "did you mean 'yield'"),
        ("nodes.N5.wafer_price=-3USD", r"nodes.N5.wafer_price: '-3.0' must be zero or more"),
        ("packages.interposer.bonding_yield=1.2", "must be at most 1"),
    ],
)
def test_what_no_price_can_be_is_refused(text: str, message: str) -> None:
    with pytest.raises(SystemFileError, match=message):
        load_prices(overrides=(text,))


def test_a_key_that_there_is_not_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'wafer_price'"):
        load_prices(overrides=("nodes.N5.wafer_prize=3USD",))


def test_a_price_alone_is_an_estimate_of_its_file() -> None:
    alone = read_number(SHARE, 0.2, (), "", [])
    assert alone == read_number(SHARE, {"value": 0.2, "confidence": "estimated", "source": "this file"}, (), "", [])
    assert alone is not None


def test_every_number_of_the_book_can_be_set() -> None:
    given = {r.path.removeprefix("prices."): r.value_si for r in load_prices().records}
    tree, _ = laid_down([*shipped(), profile_file(USUAL)])
    units = {r.path.removeprefix("prices."): r.dimension for r in load_prices().records}
    for path, value in given.items():
        tree = override(tree, f"{path}={value!r} {units[path]}", PricesSection, "prices")
    found = {r.path.removeprefix("prices."): r for r in Prices(section_of(PricesSection, tree, "prices")).records}
    assert len(given) > 400
    assert {path for path in given if found[path].source != "--set"} == set()
    assert {path: found[path].value_si for path in given} == pytest.approx(given, rel=1e-12)


@pytest.mark.parametrize(
    ("year", "fields"), [(2020, 2.0), (2022, 3.0), (2025, 3.3), (2026, 5.5), (2027, 9.5), (2035, 9.5)]
)
def test_limits_are_those_of_the_year(year: int, fields: float) -> None:
    # TSMC: wires for 3.3 fields until 2025, 5.5 in 2026, 9.5 in 2027.
    for book in (load_prices(f"market@{year}"), load_prices("chiplet-actuary", (f"year={year}",))):
        assert book.section.packages.fan_out_bridge.limit.si == fields
        assert book.name.endswith(f"@{year}")
    # Without a year they are those of today.
    assert load_prices().section.packages.fan_out_bridge.limit.si == 5.5


def test_a_file_is_laid_over_the_usual_prices_and_may_have_years(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text('nodes: {N5: {wafer_price: 1 USD}}\nyears: {"2030": {nodes: {N3: {wafer_price: 7 USD}}}}\n')
    book, later = load_prices(path).section, load_prices(f"{path}@2031").section
    assert (book.nodes["N5"].wafer_price.si, later.nodes["N3"].wafer_price.si) == (1.0, 7.0)
    assert book.nodes["N3"].wafer_price == load_prices(USUAL).section.nodes["N3"].wafer_price


@pytest.mark.parametrize(("scenario", "factor"), [("low", 0.6), ("base", 1.0), ("high", 2.5)])
def test_a_scenario_of_dram_is_a_factor_of_all_memory(scenario: str, factor: float) -> None:
    system = load_system("dgx-h100", (f"prices.models.dram={scenario}",))
    money = system_money(system, 8, Terms(basis="build"))
    assert money.package is not None
    # Five stacks of 16 GiB at 15 USD a GiB; 2 TiB of host memory at 2.4 USD.
    assert float(money.package.line("memory").usd) == pytest.approx(5 * 16 * 15 * factor)
    assert system.server is not None
    dram = float(system.server.dram_bytes or 0) or float(system.host.num_bytes if system.host else 0)
    [line] = [one for _, one in money.cost.bill.walk() if one.name == "host memory"]
    assert float(line.usd) == pytest.approx(dram / 2**30 * 2.4 * factor)
