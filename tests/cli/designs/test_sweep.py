"""`slipstick sweep`: its designs are those of `design`, and cost what `cost` and `estimate` say of their files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Cli = Callable[..., CompletedProcess[str]]
ONE = ("--die-area", "400mm2", "--power", "500W")
D2D = ("--d2d", "ucie-advanced", "--d2d-bandwidth", "1TB/s")
PLAN = ("--gpus", "16", "--tp", "2", "--pp", "2", "--zero", "1", "--seq", "64", "--gbs", "64")
# Options that both `design system` and `sweep` take.
SHARED = {
    "monolithic": ("--node", "N5", "--die-area", "700mm2", "--power", "700W", "--memory", "hbm3e"),
    "two dies": ("--node", "N3", "--die-area", "350mm2", "--power", "900W", "--chiplets", "2", "--stacks", "4"),
    "chiplets": ("--node", "N5", "--die-area", "360mm2", "--power", "1300W", "--chiplets", "4", "--stacks", "4",
                 "--joint", "fan_out_bridge", *D2D, "--join", "ring", "--node-size", "4"),
    "bridges": ("--node", "N7", "--die-area", "300mm2", "--power", "500W", "--chiplets", "2", "--unit", "a100",
                "--memory", "hbm2e", "--link", "nvlink3", *D2D, "--joint", "embedded_bridge", "--network",
                "hdr-infiniband", "--like", "dgx-a100-80gb"),
    "fan-out": ("--node", "N5", "--die-area", "300mm2", "--power", "250W", "--joint", "fan_out", "--link", "pcie5"),
}  # fmt: skip


def first_of(done: CompletedProcess[str]) -> dict[str, float]:
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout)["designs"][0]
    return found


@pytest.mark.parametrize("options", SHARED.values(), ids=SHARED)
def test_a_design_costs_and_takes_what_its_file_says(
    cli: Cli, data: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    path, model = str(tmp_path / "box.yaml"), str(data / "configs" / "tiny-llama.json")
    made = cli("design", "system", *options, "-o", path)
    assert made.returncode == 0, made.stderr
    bare = first_of(cli("sweep", "none", *options, "--gpus", "16", "-q", "--format", "json"))
    cost = json.loads(cli("cost", path, "--gpus", "16", "--basis", "build", "--format", "json").stdout)
    assert bare["usd_per_gpu"] * 16 == pytest.approx(cost["metrics"]["usd_capex"], rel=1e-9)
    assert bare["usd_per_gpu_hour"] == pytest.approx(cost["metrics"]["usd_per_gpu_hour"], rel=1e-9)
    assert bare["package_usd"] == pytest.approx(cost["bills"]["package"]["usd"], rel=1e-9)
    assert bare["w_per_gpu"] * 16 == pytest.approx(cost["metrics"]["power_w"], rel=1e-9)
    step = first_of(cli("sweep", model, *options, *PLAN, "--tokens", "1M", "-q", "--format", "json"))
    done = cli("estimate", model, "--system", path, *PLAN, "--tokens", "1M", "--basis", "build", "--format", "json")
    metrics = json.loads(done.stdout)["metrics"]
    shared = set(metrics) & set(step)
    assert {"step_time_s", "usd_per_gpu_hour", "usd_per_step", "usd_run", "j_per_token", "mfu", "tco2e"} <= shared
    for name in shared:
        assert step[name] == pytest.approx(metrics[name], rel=1e-9), name


def test_fine_wires_are_not_swept_on_organic_substrates(cli: Cli) -> None:
    options = ("--die-area", "300mm2", "--power", "250W", "--joint", "organic,fan_out", "--link", "pcie5")
    alone = cli("sweep", "none", *options, "--joint", "organic", "-q")
    assert alone.returncode == 2
    assert "hbm3 needs finer wires than an organic substrate has: join it by interposer, fan_out" in alone.stderr
    found = json.loads(cli("sweep", "none", *options, "-q", "--format", "json").stdout)
    assert (found["num_designs"], found["num_built"], found["designs"][0]["joint"]) == (2, 1, "fan_out")
    kept = json.loads(cli("sweep", "none", *options, "--memory", "gddr6", "-q", "--format", "json").stdout)
    assert (kept["num_designs"], kept["num_built"]) == (2, 2)


def test_the_best_is_a_system(cli: Cli, tmp_path: Path) -> None:
    path = str(tmp_path / "best.yaml")
    options = ("--die-area", "400,700mm2", "--power", "500,700W", "--volume", "20000", "--gross-margin", "0.5")
    done = cli("sweep", "none", *options, "--objective", "+fp16_flop_per_s", "-q", "--best-system", path)
    assert done.returncode == 0
    assert f"wrote {path}" in done.stderr
    best = first_of(cli("sweep", "none", *options, "--objective", "+fp16_flop_per_s", "-q", "--format", "json"))
    cost = json.loads(cli("cost", path, "--gpus", "1024", "--format", "json").stdout)
    assert (best["die_mm2"], best["package_w"]) == (700.0, 700.0)
    assert best["usd_per_gpu"] * 1024 == pytest.approx(cost["metrics"]["usd_capex"], rel=1e-9)
    assert cost["bills"]["package"]["parts"][-1]["name"] == "design"


def test_software_and_prices_are_those_asked_for(cli: Cli, data: Path) -> None:
    model = str(data / "configs" / "tiny-llama.json")

    def one(*more: str) -> dict[str, float]:
        return first_of(cli("sweep", model, *ONE, *PLAN, "-q", "--format", "json", *more))

    usual = one()
    assert one("--stack", "megatron-core")["step_time_s"] != usual["step_time_s"]
    assert one("--calibration", "a100-sxm-80gb")["step_time_s"] != usual["step_time_s"]
    assert one("--set", "prices.nodes.N5.wafer_price=40000USD")["package_usd"] > usual["package_usd"]
    assert one("--set", "units.h100.area=2mm2")["num_sms"] != usual["num_sms"]
    assert one("--prices", "chiplet-actuary")["usd_per_gpu"] != usual["usd_per_gpu"]
    assert one("--set", "network.scale-up.latency=90us")["step_time_s"] > usual["step_time_s"]


def test_a_table_has_the_best_and_csv_has_all(cli: Cli) -> None:
    space = ("--die-area", "100:800:10mm2", "--power-density", "0.8W/mm2", "--chiplets", "1,2")
    done = cli("sweep", "none", *space)
    assert done.returncode == 0
    assert done.stderr.startswith("142 designs in ")
    # A heading, 20 rows, and what is to be said of all: how many, and why some are missing.
    assert len(done.stdout.splitlines()) >= 22
    assert ", 20 of them here; * the " in done.stdout
    rows = list(csv.DictReader(io.StringIO(cli("sweep", "none", *space, "-q", "--format", "csv").stdout)))
    assert len(rows) > 100
    few = cli("sweep", "none", *space, "-q", "--format", "csv", "--top", "3").stdout.splitlines()
    assert len(few) == 1 + 3
    best = list(csv.DictReader(io.StringIO(cli("sweep", "none", *space, "-q", "--format", "csv", "--pareto").stdout)))
    assert best == [row for row in rows if row["pareto"] == "True"]


def test_serving_has_a_price_a_token(cli: Cli, data: Path) -> None:
    model = str(data / "configs" / "tiny-llama.json")
    for phase, name in (("decode", "usd_per_mtok_output"), ("prefill", "usd_per_mtok_input")):
        done = cli("sweep", model, *ONE, "--phase", phase, "--seq", "64", "--mbs", "8", "-q", "--format", "json")
        assert first_of(done)[name] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--die-area", "400", "--power", "5W"), "--die-area: missing unit of '400': allowed: mm2, cm2, m2"),
        (("--die-area", "400mm2"), "one of --power, of a package, and --power-density"),
        ((*ONE, "--power-density", "1W/mm2"), "one of --power, of a package, and --power-density"),
        (("--die-area=-4mm2", "--power", "5W"), "area of a die: -4 is not allowed: above zero, and finite"),
        (("--die-area", "8:4:1mm2", "--power", "5W"), "the last not below the first"),
        ((*ONE, "--node", "N6x"), "unknown node 'N6x'; allowed: N1, N10"),
        ((*ONE, "--node", ""), "a space of designs needs at least one of nodes"),
        ((*ONE, "--unit", "h10"), "unknown unit of compute 'h10'; did you mean 'h100'?"),
        ((*ONE, "--memory", "hbm9"), "unknown memory 'hbm9'; did you mean 'hbm4'?"),
        ((*ONE, "--link", "nvlink9"), "unknown link 'nvlink9'"),
        ((*ONE, "--joint", "glue"), "unknown joint 'glue'; allowed: embedded_bridge"),
        ((*ONE, "--join", "ring"), "--join is of an interface between dies: say which"),
        ((*ONE, "--d2d-bandwidth", "1TB/s"), "--d2d-bandwidth is of an interface between dies: say which"),
        ((*ONE, *D2D, "--join", "star"), "unknown way to join dies 'star'; allowed: fully_connected, line, mesh, ring"),
        ((*ONE, "--d2d", "ucie", "--d2d-bandwidth", "1TB/s"), "unknown D2D interface 'ucie'"),
        ((*ONE, "--d2d", "ucie-advanced", "--chiplets", "2"), "needs a bandwidth to each neighbour"),
        ((*ONE, *D2D, "--chiplets", "3", "--join", "mesh"), "3 dies make no mesh of two rows"),
        ((*ONE, "--chiplets", "1.5"), "--chiplets '1.5': 1.5 is no count"),
        ((*ONE, "--stacks", "0"), "--stacks '0': 0 is no count"),
        ((*ONE, "--stacks", "40"), "the design cannot be built: no room for 40 stacks of memory: at most 2 fit"),
        (("--die-area", "900mm2", "--power", "900W"), "a die of 900 mm2 is beyond the field of 858 mm2"),
        ((*ONE, "--packages", "0"), "packages of a node: 0 is too few: 1 or more"),
        ((*ONE, "--network", "ndr"), "unknown network 'ndr'"),
        ((*ONE, "--like", "dgx-h10"), "unknown system 'dgx-h10'; did you mean 'dgx-h100'?"),
        ((*ONE, "--technology", "none.yaml"), "cannot read technology file 'none.yaml'"),
        ((*ONE, "--objective", "usd"), "unknown objective 'usd'; "),
        ((*ONE, "--objective", ","), "one column or more, each once"),
        ((*ONE, "--format", "xml"), "'xml' is not allowed; allowed: table, json, csv"),
        ((*ONE, "--top", "0"), "0 is not in the range x>=1"),
        ((*ONE, "--gpus", "0"), "--gpus 0: a system has 1 or more"),
        ((*ONE, "--system", "dgx-h100"), "a sweep designs its systems"),
        ((*ONE, "--rent"), "leave --rent out"),
        ((*ONE, "--tokens", "1T"), "a run is of a model"),
        ((*ONE, "--volume", "0"), "a volume of 0 packages: 1 or more"),
        ((*ONE, "--gross-margin", "1"), "a gross margin of 1: from 0 to less than 1"),
        ((*ONE, "--set", "chip.power=3W"), "each design has its own"),
        ((*ONE, "--set", "prices.nodes.N5.wafer_price=-1USD"), "'-1.0' must be zero or more"),
        ((*ONE, "--set", "stack.speed=3"), "unknown key of stack 'speed'"),
        ((*ONE, "--prices", "cheap"), "unknown price profile 'cheap'"),
        ((*ONE, "--stack", "torch"), "unknown stack 'torch'"),
    ],
)  # fmt: skip
def test_what_is_wrong_exits_with_2(cli: Cli, words: tuple[str, ...], message: str) -> None:
    done = cli("sweep", "none", "-q", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--tp", "3"), 2, "does not divide gpus=16"),
        (("--tp", "8", "--pp", "2"), 2, "tp=8"),
        (("--tokens", "1M", "--mtbf", "5h", "--checkpoint-bandwidth", "1GB/s"), 2, "no checkpoints and failures"),
        (("--phase", "decode", "--tokens", "1M"), 2, "are for training runs"),
        (("--seq", "1048576", "--mbs", "64"), 3, "the design has not the memory"),
        (("--seq", "1048576", "--mbs", "64"), 3, "GiB. Try --mbs "),
    ],
)
def test_plans_that_no_design_runs(cli: Cli, data: Path, words: tuple[str, ...], code: int, message: str) -> None:
    model = str(data / "configs" / "tiny-llama.json")
    done = cli("sweep", model, *ONE, "--gpus", "16", "-q", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert cli("sweep", "nonesuch", *ONE).returncode == 2


def test_cooling_is_an_axis_and_machines_keep_to_what_they_say(cli: Cli, tmp_path: Path) -> None:
    """1.5 W/mm2: too hot for air, a design with liquid; a machine of that file takes no air either."""
    words = ("sweep", "none", "--die-area", "400mm2", "--power-density", "1.5W/mm2", "--cooling", "air,liquid")
    file = tmp_path / "hot.yaml"
    done = cli(*words, "--format", "json", "--best-system", str(file))
    assert done.returncode == 0, done.stderr
    assert [row["cooling"] for row in json.loads(done.stdout)["designs"] if row["usd_per_gpu"]] == ["liquid"]
    assert cli("cost", str(file)).returncode == 0
    for like, word in ((str(file), "server.cooling=air"), ("gb200-nvl72", "chip.power=6kW")):
        refused = cli("cost", like, "--set", word)
        assert refused.returncode == 2
        assert "W/mm2, and their cooling by" in refused.stderr
