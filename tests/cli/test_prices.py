"""The price book on the command line: profiles listed, numbers shown with what others say, and taken by `--prices`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Cli = Callable[..., CompletedProcess[str]]


def test_the_usual_prices_need_no_name(cli: Cli) -> None:
    done = cli("show", "prices")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("market: ")
    [at] = [i for i, line in enumerate(lines) if line.startswith("prices.switches.ndr-64x400g.price ")]
    assert "36000 USD" in lines[at]
    assert lines[at + 1].split()[:3] == ["~", "50000", "USD"]
    assert any(line.split() == ["prices.tco.method", "chiplet-cloud"] for line in lines)


def test_prices_as_json_have_others_and_raw_numbers(cli: Cli) -> None:
    record = json.loads(cli("show", "prices", "catch", "--format", "json").stdout)
    assert record["name"] == "catch"
    [price] = [n for n in record["numbers"] if n["path"] == "prices.switches.ndr-64x400g.price"]
    assert (price["value_si"], [other["value_si"] for other in price["others"]]) == (36000, [50000])


def test_prices_are_shown_as_they_are_set(cli: Cli) -> None:
    shown = cli("show", "prices", "--set", "prices.facility.pue.air=1.2", "--set", "chip.power=3W").stdout
    [line] = [line for line in shown.splitlines() if line.startswith("prices.facility.pue.air")]
    assert line.split() == ["prices.facility.pue.air", "1.2", "estimated", "--set"]


def test_profiles_are_listed(cli: Cli) -> None:
    records = json.loads(cli("list", "prices", "--format", "json").stdout)
    assert [r["name"] for r in records if r["usual"]] == ["market"]
    assert {r["name"]: r["own"] for r in records}["chiplet-actuary"] == 0


def test_other_kinds_need_a_name(cli: Cli) -> None:
    done = cli("show", "system")
    assert (done.returncode, done.stdout) == (2, "")
    assert "show system needs a NAME; `slipstick list systems` shows them" in done.stderr


def test_a_system_and_a_chip_say_what_they_are_built_of(cli: Cli) -> None:
    lines = cli("show", "system", "dgx-h100", "--set", "server.price=300kUSD").stdout.splitlines()
    assert lines[1] == "package: interposer (gh100 of 814 mm2 in N4, 5 hbm3 of 16 GiB)"
    assert lines[2].startswith("server: bought for 300 kUSD with adapters, 2 xeon-8480, ")
    chip = cli("show", "chip", "mi250x-gcd").stdout.splitlines()
    assert chip[1] == "package: fan out bridge (2 aldebaran-gcd of 724 mm2 in N6, 8 hbm2e of 16 GiB); 2 ranks"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--prices", "cach"), "unknown price profile 'cach'; did you mean 'catch'?"),
        (("--prices", "none.yaml"), "cannot read price file 'none.yaml'"),
        (("--set", "prices.nodes.N55X.wafer_price=1USD"), "unknown name in prices.nodes 'N55X'; did you mean 'N55'?"),
        (("--set", "prices.nodes.N5.wafer_price=-1USD"), "prices.nodes.N5.wafer_price: '-1.0' must be zero or more"),
        (("--set", "chip.package.contents.gh100.area=-1mm2"), "chip.package.contents.gh100.area: '-1.0' must be more"),
    ],
)
def test_wrong_prices_and_packages_are_refused_before_anything_is_timed(
    tiny: Cli, words: tuple[str, ...], message: str
) -> None:
    done = tiny(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_an_estimate_takes_prices_from_a_file(tiny: Cli, tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("name: own\ntco: {it_life: {value: 6, unit: year, source: s}}\n", encoding="utf-8")
    assert tiny("--prices", str(own)).returncode == 0
    own.write_text("name: own\ntco: {it_life: {value: 6, unit: W, source: s}}\n", encoding="utf-8")
    done = tiny("--prices", str(own))
    assert done.returncode == 2
    assert f"{own}:2: prices.tco.it_life: wrong unit 'W' in '6 W'" in done.stderr


def test_a_year_is_a_flag_and_a_part_of_a_name(cli: Cli) -> None:
    flagged = cli("cost", "dgx-h100", "--year", "2027").stdout
    assert flagged == cli("cost", "dgx-h100", "--prices", "market@2027").stdout
    assert "prices market@2027" in flagged.splitlines()[0]
    done = cli("cost", "dgx-h100", "--prices", "market@1999")
    assert (done.returncode, done.stdout) == (2, "")
    assert "prices of the year 1999: give one from 2020 to 2035" in done.stderr


def test_a_ranking_that_flips_between_books_says_so(cli: Cli) -> None:
    # In the book of Chiplet Actuary a wafer of N3 costs as much as one of N2, with more defects; by the market it is
    # cheaper by a third.
    words = ("--node", "N3,N2", "--die-area", "400mm2", "--power-density", "0.8W/mm2", "--objective", "package_usd")
    lines = cli("sweep", "none", *words, "--prices", "all").stdout.splitlines()
    assert [line for line in lines if line.startswith("prices market: ")] == ["prices market: N3, N2"]
    assert [line for line in lines if line.startswith("prices chiplet-actuary: ")] == ["prices chiplet-actuary: N2, N3"]
    [flip] = [line for line in lines if "flips" in line]
    assert flip.startswith("the ranking flips between books: N2 is before N3 under ")
    several = json.loads(cli("cost", "dgx-h100,dgx-b200", "--prices", "all", "--format", "json").stdout)
    assert set(several["orders"]) == {"market", "catch", "chiplet-actuary", "h100-cluster-2024"}
