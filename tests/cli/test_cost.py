"""`slipstick cost` on the command line: every view of every system, terms, reasons, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from slipstick.app.arguments.options import options_of
from slipstick.app.arguments.others import CostArgs
from slipstick.backends.machine.load import system_names

Cli = Callable[..., CompletedProcess[str]]


@pytest.mark.parametrize("name", system_names())
def test_every_system_of_the_catalogue_is_priced_in_every_view(cli: Cli, name: str) -> None:
    for view in options_of(CostArgs)["breakdown"].choices:
        done = cli("cost", name, "--breakdown", view)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"{name}  ")
        assert re.search(r"\bnan\b", done.stdout.lower()) is None
        assert "_" not in done.stdout.partition("method")[0]


@pytest.mark.parametrize("terms", [("--basis", "build"), ("--rent",), ("--prices", "catch"), ("--prices", "market")])
def test_terms_change_what_a_gpu_hour_costs(cli: Cli, terms: tuple[str, ...]) -> None:
    usual, other = (
        json.loads(cli("cost", "dgx-h100", *words, "--format", "json").stdout)["metrics"] for words in ((), terms)
    )
    same = terms[-1] in ("catch", "market")
    assert (other["usd_per_gpu_hour"] == pytest.approx(usual["usd_per_gpu_hour"])) is same
    assert other["power_w"] == usual["power_w"]


def test_gpus_and_assignments(cli: Cli) -> None:
    small, large = (json.loads(cli("cost", "dgx-h100", "--gpus", n, "--format", "json").stdout) for n in ("8", "1024"))
    assert large["inputs"]["num_gpus"] == 1024
    assert large["metrics"]["usd_capex"] > 128 * small["metrics"]["usd_capex"]
    dear = json.loads(
        cli("cost", "dgx-h100", "--set", "prices.energy.electricity=0.134USD/kWh", "--format", "json").stdout
    )
    hours = [record["bills"]["GPU-hour"]["parts"][3] for record in (small, dear)]
    assert hours[1]["usd"] == pytest.approx(2 * hours[0]["usd"], rel=1e-9)


def test_cost_says_the_load_and_estimate_the_power(cli: Cli, tiny: Cli) -> None:
    assert "energy: 100% of full load; `slipstick estimate` takes the power" in cli("cost", "dgx-h100").stdout
    lines = tiny("--gpus", "8", "--gbs", "32").stdout.splitlines()
    assert any(line.startswith("cost: ") and "owned at this power" in line for line in lines)


def test_a_line_is_explained(cli: Cli) -> None:
    done = cli("cost", "dgx-h100", "--gpus", "1024", "--explain", "energy/building")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    # 1,387.2 kW for the 8760 hours of a year at 0.067 USD/kWh, and half as much for the building.
    assert lines[0].startswith(f"year/energy/building = ${1387.2 * 8760 * 0.067 / 2:,.0f} (")
    assert "  = average_w * hours * usd_per_kwh / 1000 * (pue - 1)" in lines
    assert any(line.startswith("    prices.facility.pue.air: 1.5 [") for line in lines)
    assert lines[-1] == "also: GPU-hour/energy/building"


def test_a_rent_says_of_which_date_its_price_is(cli: Cli) -> None:
    shown = cli("cost", "dgx-h100", "--gpus", "8", "--rent").stdout
    assert "GPU-hour (rented at prices of 2026-05)" in shown


def test_output_goes_to_a_file(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "cost.csv"
    done = cli("cost", "dgx-h100", "--breakdown", "tco", "--format", "csv", "-o", str(out))
    assert (done.returncode, done.stdout) == (0, "")
    assert out.read_text(encoding="utf-8").startswith("line,usd\nyear,")


def test_a_designed_machine_is_priced(cli: Cli, tmp_path: Path) -> None:
    path = str(tmp_path / "four.yaml")
    words = ("--node", "N5", "--chiplets", "4", "--die-area", "400mm2", "--power", "1000W", "--d2d", "ucie-advanced",
             "--d2d-bandwidth", "2TB/s", "-o", path)  # fmt: skip
    assert cli("design", "system", *words).returncode == 0
    done = cli("cost", path, "--breakdown", "die")
    assert (done.returncode, done.stderr) == (0, "")
    assert "designed-chip-die: 4 a package, 400 mm2 of N5" in done.stdout
    wide = cli("cost", path, "--set", "chip.package.contents.designed-chip-die.d2d.bandwidth=200TB/s")
    assert (wide.returncode, wide.stdout) == (2, "")
    assert "package, designed-chip-die: no shoreline for 200 TB/s of ucie-advanced over one edge" in wide.stderr


def test_a_package_that_cost_would_refuse_is_not_designed(cli: Cli) -> None:
    words = ("design", "chip", "--node", "N5", "--power", "1000W")
    wide, usual = (cli(*words, "--die-area", area) for area in ("900mm2", "800mm2"))
    assert (wide.returncode, wide.stdout, usual.returncode, usual.stderr) == (2, "", 0, "")
    assert "a die of 900 mm2 is beyond the field of 858 mm2" in wide.stderr
    # Wires for 5.5 fields carry no four dies of 800 mm2 with twenty stacks; those of 2027 do.
    dies = ("--chiplets", "4", "--die-area", "800mm2", "--power", "2800W", "--memory", "hbm3e", "--stacks", "20")
    large = (*words[:4], *dies)
    today, later = cli(*large), cli(*large, "--year", "2027")
    assert (today.returncode, later.returncode) == (2, 0)
    assert "interposer of 5940 mm2 is beyond the largest of 2831.4 mm2" in today.stderr


REFUSED = {
    ("--set", "chip.package.contents.gh100.area=900mm2"): "gh100: a die of 900 mm2 is beyond the field of 858 mm2",
    ("--set", "chip.package.contents.gh100.node=N77"): "unknown technology node of package, gh100: 'N77'; did you",
    ("--set", "chip.package.contents.hbm.memory=hbm9"): "unknown memory of package, hbm: 'hbm9'; did you mean",
    ("--set", "chip.package.contents.hbm.count=40"): "is beyond the largest of 2831.4 mm2",
    ("--set", "chip.package.substrate_area=500mm2"): "cannot hold",
    ("--set", "server.price=-5USD"): "--set: server.price: '-5.0' must be more than zero",
    ("--set", "prices.nodes.N4.wafer_price=-5USD"): "--set: prices.nodes.N4.wafer_price: '-5.0' must be zero or more",
    ("--set", "prices.tco.it_life=0year"): "--set: prices.tco.it_life: '0.0' must be more than zero",
    ("--set", "prices.energy.electricity=0.1USD"): "wrong unit 'USD' in '0.1 USD': allowed: USD/kWh",
    ("--set", "prices.models.yield=murph"): "unknown models.yield 'murph'; did you mean 'murphy'",
    ("--set", "prices.carbon.grid=mars"): "unknown grid 'mars'",
    ("--set", "network.infiniband.equipment.switch=ndr-64x400"): "unknown switch 'ndr-64x400'; did you mean",
    ("--set", "prices.nodes.N4.defect_density=0.11"): "missing unit of '0.11': allowed: 1/mm2, 1/cm2",
    ("--set", "prices.tco.it_life=5"): "prices.tco.it_life: missing unit of '5': allowed: s, ms",
    ("--set", "server.price=300000"): "server.price: missing unit of '300000': allowed: USD, kUSD, MUSD",
    ("--set", "prices.nodes.N4.defect_density=20/cm2"): "package costs no finite amount: of die gh100, 814 mm2 on N4",
    ("--set", "prices.servers.gross_margin=1"): "prices.servers.gross_margin: '1.0' must be below 1",
    ("--set", "prices.yields.cluster=0"): "prices.yields.cluster: '0.0' must be more than zero",
    ("--set", "prices.yields.layers=0"): "prices.yields.layers: '0.0' must be more than zero",
    ("--rent", "--basis", "build"): "what is rented is neither sold nor built: leave --basis build or --rent out",
    ("--prices", "cach"): "unknown price profile 'cach'; did you mean 'catch'",
    ("--breakdown", "dye"): "'dye' is not allowed; did you mean 'die'",
    ("--gpus", "0"): "0 is not in the range x>=1",
    ("--explain", "switchs"): "unknown line 'switchs'; did you mean 'switches'",
    ("--explain", "switches", "--format", "csv"): "--explain writes text, no csv",
    ("--rent", "--breakdown", "system"): "what is rented is not bought: leave --rent out",
}


@pytest.mark.parametrize(("words", "message"), REFUSED.items(), ids=[" ".join(words)[:40] for words in REFUSED])
def test_what_cannot_be_is_refused_with_path_and_numbers(cli: Cli, words: tuple[str, ...], message: str) -> None:
    done = cli("cost", "dgx-h100", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


@pytest.mark.parametrize(
    ("was", "is_", "message"),
    [
        ("value: 310000\n", "value: -310000\n", "server.price: '-310000' must be more than zero"),
        ("area: {value: 814, unit: mm2", "area: {value: 814, unit: W", "wrong unit 'W' in '814 W': allowed: mm2"),
        ("memory: hbm3\n", "memory: hbm3\n        colour: red\n", "unknown key 'colour'"),
    ],
)
def test_faults_of_a_file_have_path_and_line(
    cli: Cli, h100_text: str, tmp_path: Path, was: str, is_: str, message: str
) -> None:
    assert h100_text.count(was) == 1
    path = tmp_path / "mine.yaml"
    path.write_text(h100_text.replace(was, is_), encoding="utf-8")
    done = cli("cost", str(path))
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    [line] = [line for line in done.stderr.splitlines() if message in line]
    number = int(line.strip().removeprefix(f"{path}:").partition(":")[0])
    # An unknown key is told where it stands, behind the line that was there.
    behind = is_.count("\n") - was.count("\n")
    assert number == 1 + behind + h100_text[: h100_text.index(was)].count("\n")


def test_a_file_of_prices_is_faulted_by_line(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "ours.yaml"
    text = 'name: ours\nenergy:\n  electricity: {value: -1, unit: USD/kWh, source: "ours"}\n'
    path.write_text(text, encoding="utf-8")
    done = cli("cost", "dgx-h100", "--prices", str(path))
    assert done.returncode == 2
    assert f"{path}:3: prices.energy.electricity: '-1' must be zero or more" in done.stderr


def test_an_estimate_answers_where_nothing_can_be_priced(tiny: Cli) -> None:
    words = ("--gpus", "8", "--gbs", "32", "--set", "chip.package.contents.gh100.area=900mm2")
    done = tiny(*words)
    assert done.returncode == 0
    assert "step time" in done.stdout
    assert "not priced: package, gh100: a die of 900 mm2 is beyond the field" in " ".join(done.stdout.split())
    assert "cost: $" not in done.stdout
    # Asked for by name, it is an error.
    assert tiny(*words, "--rent").returncode == 2


def test_gates_hold_money(cli: Cli, tiny: Cli, tmp_path: Path) -> None:
    paths = []
    for name, price in (("a", "0.067"), ("b", "0.2")):
        words = ("--gpus", "8", "--gbs", "32", "--set", f"prices.energy.electricity={price}USD/kWh")
        (tmp_path / f"{name}.json").write_text(tiny(*words, "--format", "json").stdout, encoding="utf-8")
        paths.append(str(tmp_path / f"{name}.json"))
    failed = cli("compare", *paths, "--fail-on", "usd_per_mtok>+3%", "--fail-on", "usd_tco>1MUSD")
    assert failed.returncode == 5
    assert "gate FAILED  usd_per_mtok>+3%: $" in failed.stdout
    assert "gate passed  usd_tco>1MUSD: $" in failed.stdout
    assert "sha256" not in failed.stdout
    held = cli("compare", *paths, "--fail-on", "usd_per_gpu_hour>5USD", "--fail-on", "j_per_token>+0.1%")
    assert held.returncode == 0
    assert cli("compare", *paths, "--fail-on", "usd_per_gpu_hour>5W").returncode == 2


def test_several_systems_stand_side_by_side_under_prices_of_a_file(cli: Cli, tmp_path: Path) -> None:
    book = tmp_path / "ours.yaml"
    book.write_text("name: ours\nenergy:\n  electricity: {value: 0.2, unit: USD/kWh, source: our contract}\n", "utf-8")
    words = ("cost", "dgx-h100,dgx-b200", "--gpus", "256")
    shown = cli(*words, "--prices", str(book))
    assert (shown.returncode, shown.stderr) == (0, "")
    lines = shown.stdout.splitlines()
    assert lines[0] == "prices ours"
    assert [line.split()[0] for line in lines[2:4]] == ["dgx-h100", "dgx-b200"]
    usual, dear = (
        {one["system"]: one["bases"]["market"] for one in json.loads(cli(*w, "--format", "json").stdout)["systems"]}
        for w in (words, (*words, "--prices", str(book)))
    )
    for name, found in dear.items():
        # The energy of an hour at full load, cooling of PUE 1.5 with it, at the difference of both prices.
        more = found["power_w"] / 256 / 1e3 * 1.5 * (0.2 - 0.067)
        assert found["usd_per_gpu_hour"] - usual[name]["usd_per_gpu_hour"] == pytest.approx(more, rel=0.02)


@pytest.mark.parametrize("words", [("--rent",), ("--basis", "build"), ("--breakdown", "tco"), ("--explain", "usd_tco")])
def test_what_takes_one_system_apart_is_refused_of_several(cli: Cli, words: tuple[str, ...]) -> None:
    done = cli("cost", "dgx-h100,dgx-b200", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert words[0].split()[0] in done.stderr
