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
    assert [line.split()[0] for line in lines] == ["node", "N12", "N10", "N7", "N5", "N3", "N2", "N1"]
    records = json.loads(cli("design", "study", *BUDGET, "--node", "N7,N5", "--format", "json").stdout)
    assert [(r["node"], r["num_sms"]) for r in records] == [("N7", 108), ("N5", 194)]


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
        (("chp", "--node", "N7", *BUDGET), "did you mean 'chip'?"),
    ],
)
def test_what_cannot_be_built_is_exit_2(cli: Cli, words: tuple[str, ...], message: str) -> None:
    done = cli("design", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
