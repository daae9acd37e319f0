"""The price book of machines: numbers of public sources as they were published, units, and what cannot be."""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from slipstick.backends.machine.files.number import Number, Other
from slipstick.backends.prices.book import load_prices
from slipstick.ir.errors import SystemFileError, UnknownNameError
from slipstick.ir.units import parse_quantity

# Where the rows of machines stand in the book, by parameter.
MACHINES: Mapping[str, str] = {
    "server_price": "sold.dgx-h100.price",
    "server_price_alt": "sold.dgx-h100.price",
    "server_power": "sold.dgx-h100.power",
    "switch_price": "switches.ndr-64x400g.price",
    "switch_price_alt": "switches.ndr-64x400g.price",
    "cable_and_connector_cost": "transceivers.400g.price",
    "facility_lifetime_cost": "facility.per_server",
    "cluster_capex_per_gpu": "sold.dgx-h100.price",
    "nic_cost": "adapters.ndr-400g.price",
    "optical_transceiver_400g": "transceivers.400g.price",
    "optical_transceiver_800g": "transceivers.800g.price",
    "dac_cable_400g": "cables.dac-400g.price",
    "aoc_cable_20m_100g": "cables.aoc-100g.price",
    "dac_cable_5m_100g": "cables.dac-100g.price",
    "switch_64p_100g": "switches.ethernet-64x100g.price",
    "switch_power": "switches.ndr-64x400g.power",
    "transceiver_power": "transceivers.400g.power",
    "nvswitch_cost": "switches.nvswitch-3.price",
    "ethernet_port_cost": "adapters.ethernet-100g.price",
    "pcb_cost": "parts.asic-board.price",
    "pcb_parts_cost": "parts.asic-board-parts.price",
    "dcdc_cost": "servers.dcdc",
    "dcdc_efficiency": "servers.dcdc_efficiency",
    "psu_cost": "servers.psu",
    "psu_efficiency": "servers.psu_efficiency",
    "fan_cost": "parts.fan.price",
    "fan_power": "parts.fan.power",
    "chassis_cost": "parts.asic-chassis.price",
    "host_cpu_cost": "parts.asic-host.price",
    "electricity_price": "energy.electricity",
    "electricity_price_alt": "energy.electricity",
    "electricity_price_alt2": "energy.electricity",
    "pue": "facility.pue.air",
    "pue_alt": "facility.pue.air",
    "pue_alt2": "facility.pue.liquid",
    "interest_rate": "tco.interest_rate",
    "dc_capex": "facility.capex",
    "dc_amortisation": "facility.capex_life",
    "dc_opex": "facility.opex",
    "server_opex_rate": "tco.server_opex",
    "server_life": "tco.it_life",
    "server_life_alt": "tco.it_life",
    "power_infrastructure_capex": "facility.power_delivery",
    "cooling_capex": "facility.cooling.air",
    "network_capex": "adapters.ndr-400g.price",
    "network_opex": "tco.network_opex",
    "maintenance_opex": "tco.maintenance",
    "software_opex": "tco.software",
    "facility_life": "facility.life",
    "network_life": "tco.network_life",
    "it_life": "tco.it_life",
    "datacentre_utilisation": "tco.utilisation",
    "energy_hbm": "energy.memory.hbm2",
    "energy_hbm3": "energy.memory.hbm3",
    "energy_ddr": "energy.memory.ddr5",
    "energy_stacked_dram": "energy.memory.stacked_dram",
    "energy_sram": "energy.cache",
    "energy_fma_fp16": "energy.compute.bf16",
    "energy_per_flop": "energy.compute.bf16",
    "energy_hbm2e": "energy.memory.hbm2e",
    "energy_nvlink": "energy.links.electrical",
}
# Units of the list in the book's words: what a sum is of, is said by its place.
UNITS: Mapping[str, str] = {
    "USD/GPU": "USD",
    "USD/8-GPU node": "USD",
    "USD/server": "USD",
    "USD/server/year": "USD/year",
    "1/year": "",
    "-": "",
    "of server capex over life": "",
    "pJ/byte": "pJ/B",
}
PER_FLOP = ("energy_fma_fp16", "energy_per_flop")
SOURCES = ("Chiplet Cloud", "Stojkovic", "spreadsheet", "HammingMesh", "RAPID-LLM")

with (Path(__file__).parents[2] / "data" / "cost_defaults.csv").open(encoding="utf-8") as file:
    ROWS = [row for row in csv.DictReader(file) if row["parameter"] in MACHINES]


def at(path: str) -> Number:
    found: object = load_prices().section
    for key in path.split("."):
        found = found[key] if isinstance(found, dict) else getattr(found, key)
    assert isinstance(found, Number)
    return found


def said(number: Number) -> Iterator[tuple[float, str, str]]:
    yield number.si, number.source, number.confidence
    for other in number.others:
        yield _si(other, number), other.source, other.confidence


def _si(other: Other, number: Number) -> float:
    return parse_quantity(f"{other.value} {other.unit or ''}".strip(), number.kind.dimension).value_si


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['parameter']}-{row['value']}")
def test_the_book_has_what_was_published(row: dict[str, str]) -> None:
    """Each row of the list, both ends of a range, as the number that is used or among what others say."""
    path = MACHINES[row["parameter"]]
    number = at(path)
    unit = "pJ/FLOP" if row["parameter"] in PER_FLOP else UNITS.get(row["unit"], row["unit"])
    for value in row["value"].split("-"):
        wanted = parse_quantity(f"{value} {unit}".strip(), number.kind.dimension).value_si
        found = [(source, sure) for si, source, sure in said(number) if si == pytest.approx(wanted)]
        assert found, f"{path}: {list(said(number))}"
        named = next((word for word in SOURCES if word in row["source"]), "")
        assert any(named in source for source, _ in found)
        assert row["status"] == "sourced" or "estimated" in {sure for _, sure in found}


def test_no_row_of_the_list_behind_those_of_silicon_is_left_out() -> None:
    with (Path(__file__).parents[2] / "data" / "cost_defaults.csv").open(encoding="utf-8") as file:
        names = [row["parameter"] for row in csv.DictReader(file)]
    assert set(names[names.index("server_price") :]) == set(MACHINES)


def test_every_number_has_a_source_and_a_legal_unit() -> None:
    records = load_prices().records
    assert len(records) > 200
    assert all(record.source for record in records)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("servers.psu=-1 USD/W", "must be zero or more"),
        ("switches.ndr-64x400g.price=-36 kUSD", "must be zero or more"),
        ("facility.pue.air=0.9", "must be at least 1"),
        ("tco.availability=1.2", "must be at most 1"),
        ("energy.electricity=67 USD/kWh", "beyond any machine"),
        ("energy.electricity=0.1 USD/GB", "wrong unit"),
        ("tco.method=monthly", "input should be 'chiplet-cloud' or 'annual'"),
        ("carbon.grid=frnce", "unknown grid 'frnce'; did you mean 'france'"),
    ],
)
def test_what_cannot_be_is_refused(setting: str, message: str) -> None:
    with pytest.raises(SystemFileError, match=message):
        load_prices(overrides=(setting,))


def test_a_key_that_no_book_has() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown key of facility 'pie'; did you mean 'pue'\?"):
        load_prices(overrides=("facility.pie.air=1.2",))


def test_profiles_lie_over_the_book() -> None:
    assert load_prices("h100-cluster-2024").section.facility.charged == "per_server"
    assert load_prices().section.facility.charged == "per_watt"
