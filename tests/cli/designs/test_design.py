"""`slipstick design`: what it writes can be used, and what cannot be built ends with exit code 2."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Cli = Callable[..., CompletedProcess[str]]
BUDGET = ("--area", "826mm2", "--power", "400W", "--unit", "a100", "--memory", "hbm2e", "--link", "nvlink3")


def test_a_designed_chip_can_be_shown(cli: Cli, tmp_path: Path) -> None:
    path = str(tmp_path / "chip.yaml")
    done = cli("design", "chip", "--node", "N7", *BUDGET, "-o", path, "--name", "mine")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"wrote {path}\n")
    shown = cli("show", "chip", path)
    assert shown.stdout.startswith(f"{path}: mine\n")
    assert "technology engine: 5 stacks of hbm2e" in shown.stdout


def test_a_designed_system_takes_a_model(cli: Cli, tmp_path: Path) -> None:
    path = str(tmp_path / "box.yaml")
    assert cli("design", "system", "--node", "N3", *BUDGET, "-o", path, "--node-size", "4").returncode == 0
    done = cli("estimate", "gpt2", "--system", path, "--seq", "128")
    assert done.returncode == 0
    assert "1 x designed-chip" in done.stdout


def test_a_study_is_a_line_a_node(cli: Cli) -> None:
    lines = cli("design", "study", *BUDGET).stdout.splitlines()
    assert [line.split()[0] for line in lines[:-2]] == ["node", "N12", "N10", "N7", "N5", "N3", "N2", "N1"]
    assert lines[3].split()[-3:] == ["300", "GB/s", "100%"]
    assert lines[-2] == "%: of its rated speed; matrix and vector units have one clock"
    assert lines[-1] == "nodes scaled as: papers"
    claimed = cli("design", "study", *BUDGET, "--scaling", "foundry").stdout.splitlines()
    assert [line.split()[0] for line in claimed[1:-2]] == ["N12", "N10", "N7", "N5", "N3", "N2", "A16", "A14"]
    assert claimed[-1] == "nodes scaled as: foundry"
    records = json.loads(cli("design", "study", *BUDGET, "--node", "N7,N5", "--format", "json").stdout)
    assert [(r["node"], r["num_sms"]) for r in records] == [("N7", 108), ("N5", 194)]


def test_chiplets_talk_over_a_level_of_their_own(cli: Cli, tmp_path: Path) -> None:
    path = str(tmp_path / "box.yaml")
    dies = ("--chiplets", "2", "--die-area", "800mm2", "--d2d", "ucie-advanced", "--d2d-bandwidth", "2TB/s")
    done = cli("design", "system", "--node", "N5", *dies, "--power", "1400W", "--node-size", "2", "-o", path)
    assert done.returncode == 0
    text = Path(path).read_text(encoding="utf-8")
    assert "# Each die is a device of its own" in text
    done = cli(
        "estimate", "gpt2", "--system", path, "--gpus", "4", "--tp", "2", "--seq", "128", "--explain", "all_gather"
    )
    assert done.returncode == 0
    assert "d2d" in done.stdout


def test_areas_of_dies(cli: Cli) -> None:
    lines = cli("design", "area").stdout.splitlines()
    assert lines[0].split() == ["mm2", "ga100", "gh100", "aldebaran"]
    found = {line.split("  ")[0]: line.split()[-3:] for line in lines}
    assert found["real die"] == ["826.0", "814.0", "724.0"]
    (record,) = json.loads(cli("design", "area", "--die", "ga100", "--node", "N5", "--format", "json").stdout)
    assert record["real_mm2"] is None
    assert sum(record["areas"].values()) == pytest.approx(record["total_mm2"])
    more = cli("design", "area", "--die", "ga100", "--set", "dies.ga100.l2=96MiB").stdout.splitlines()
    assert more[3].split() == ["cache", "227.4", "119.3"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("chip", "--area", "826mm2", "--power", "400W"), "a chip is of one node: --node N12, N10"),
        (("chip", "--node", "N7", "--area", "826", "--power", "400W"), "--area: missing unit of '826'"),
        (("chip", "--node", "N7", "--area", "826mm2", "--power", "400GB"), "--power: wrong unit 'GB'"),
        (("chip", "--node", "N6", *BUDGET), "unknown node 'N6'"),
        (("chip", "--node", "N7", *BUDGET, "--name", "a: b"), "--name 'a: b': letters"),
        (("chip", "--node", "N7", *BUDGET, "--technology", "nowhere.yaml"), "No such file"),
        (("system", "--node", "N7", *BUDGET, "--network", "ndr"), "unknown network 'ndr'"),
        (("system", "--node", "N7", *BUDGET, "--node-size", "0"), "--node-size 0: at least one chip"),
        (("chip", "--node", "N7", "--power", "400W"), "one of --area, of all dies together, and --die-area"),
        (("chip", "--node", "N7", "--area", "826mm2"), "missing --power: a number and one of: W, kW, MW"),
        (("chip", "--node", "N7", *BUDGET, "--d2d-bandwidth", "1TB/s"), "say which, as in --d2d ucie-advanced"),
        (("chip", "--node", "N7", *BUDGET, "--dies", "2", "--d2d", "ucie-advanced"), "needs a bandwidth to each"),
        (("chip", "--node", "N7", *BUDGET, "--stacks", "9"), "no room for 9 stacks of memory: at most 5 fit"),
        (("chip", "--node", "N7", *BUDGET, "--join", "star"), "'star'"),
        (("area", "--die", "ga102"), "unknown die 'ga102'; did you mean 'ga100'?"),
        (("chp", "--node", "N7", *BUDGET), "did you mean 'chip'?"),
    ],
)
def test_what_cannot_be_built_is_exit_2(cli: Cli, words: tuple[str, ...], message: str) -> None:
    done = cli("design", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
