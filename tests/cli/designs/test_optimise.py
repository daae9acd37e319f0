"""`slipstick design optimise`: its best design is a system that takes what it says; what is wrong is exit 2."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Cli = Callable[..., CompletedProcess[str]]
BUDGETS = ("--area", "700mm2", "--power", "600W")
PLANS = ("--gpus", "16", "--gbs", "64", "--seq", "64")


def test_an_optimum_is_a_system_that_takes_what_it_says(cli: Cli, data: Path, tmp_path: Path) -> None:
    path, plan, answer = str(tmp_path / "best.yaml"), str(tmp_path / "plan.yaml"), tmp_path / "a.json"
    model = str(data / "configs" / "tiny-llama.json")
    nodes = ("--node", "N7,N5", "--memory", "hbm4", "--tp", "2", "--pp", "1", "--objective", "energy")
    words = (model, *BUDGETS, *PLANS, *nodes)
    done = cli("design", "optimise", *words, "--best-system", path, "--best-plan", plan, "-o", str(answer))
    assert done.returncode == 0, done.stderr
    assert re.search(r"N7: energy of a token .* of [\d,]+ designs\nN5: ", done.stderr)
    found = json.loads(answer.read_text(encoding="utf-8"))
    assert (found["schema"], found["objective"]) == ("slipstick/optimised/1", "j_per_token")
    assert [one["node"] for one in found["designs"]] == ["N7", "N5"]
    best = min(found["designs"], key=lambda one: one["j_per_token"])
    for one in found["designs"]:
        assert one["plan"].startswith("tp2 ")
        assert one["j_per_token"] <= one["usual_j_per_token"]
        assert sum(part["power_w"] for part in one["parts"]) <= one["power_w"] * (1 + 1e-9) <= 600 * (1 + 2e-9)
        assert sum(part["area_mm2"] for part in one["parts"]) <= one["area_mm2"] <= 700
        for part in one["parts"]:
            rate = part.get("rate_flop_per_s", part.get("rate_bytes_per_s"))
            assert part["power_w"] == pytest.approx(rate * part["joules"] + part["rest_w"])
    told = cli("estimate", "--plan", plan, "--system", path, "--basis", "build", "--format", "json")
    assert told.returncode == 0, told.stderr
    metrics = json.loads(told.stdout)["metrics"]
    for name in ("step_time_s", "j_per_token", "usd_per_step"):
        assert best["columns"][name] == pytest.approx(metrics[name], rel=1e-9), name


def test_forms_and_reasons_of_an_optimum(cli: Cli, data: Path) -> None:
    model = str(data / "configs" / "tiny-llama.json")
    words = (model, "--node", "N5", *BUDGETS, *PLANS, "--tp", "1", "--pp", "1", "-q")
    table = cli("design", "optimise", *words).stdout
    assert table.startswith("tiny-llama: least step time within 700 mm2 and 600 W\n")
    assert "Part of its rated speed that each component runs at" in table
    assert "Designs that no other beats in time, money, power and area" in table
    assert cli("design", "optimise", *words, "--format", "md").stdout.count("| N5 |") >= 3
    assert cli("design", "optimise", *words, "--format", "svg").stdout.startswith("<svg")
    power = cli("design", "optimise", *words, "--explain", "power").stdout
    # The value is reproduced from what is printed.
    watts = [(float(a), float(b)) for a, b in re.findall(r"  \w+ +([\d.]+) W = [\d.]+ \w+/s x ([\d.]+) pJ", power)]
    assert len(watts) == 4
    total = float(re.findall(r"^power of a device of N5: ([\d.]+) W of", power)[0])
    assert sum(w for w, _ in watts) == pytest.approx(total, rel=1e-3)
    assert "step_time_s = " in cli("design", "optimise", *words, "--explain", "step_time_s").stdout


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--power", "600W", *PLANS), 2, "one of --area, of all dies together, and --die-area"),
        (("--area", "700mm2", *PLANS), 2, "missing --power: a number and one of: W"),
        ((*BUDGETS, *PLANS, "--node", "N6"), 2, "unknown node 'N6'"),
        ((*BUDGETS, *PLANS, "--memory", "hbm9"), 2, "unknown memory 'hbm9'"),
        ((*BUDGETS, "--seq", "64", "--gbs", "64"), 2, "--gpus"),
        ((*BUDGETS, "--gpus", "16", "--seq", "64"), 2, "needs --gbs"),
        ((*BUDGETS, *PLANS, "--objective", "speed"), 2, "unknown objective 'speed'"),
        ((*BUDGETS, *PLANS, "--objective", "mfu,step_time_s"), 2, "one; the front has time, power, area and money"),
        ((*BUDGETS, *PLANS, "--tokens", "1T"), 2, "--tokens says nothing to a search of plans"),
        (("--area", "50mm2", "--power", "600W", *PLANS), 2, "no room for a stack of memory beside the die"),
        ((*BUDGETS, *PLANS, "--explain", "colour"), 2, "unknown"),
    ],
)
def test_what_cannot_be_optimised(cli: Cli, data: Path, words: tuple[str, ...], code: int, message: str) -> None:
    more = ("--node", "N5", "--tp", "1", "--pp", "1") if "--node" not in words else ()
    done = cli("design", "optimise", str(data / "configs" / "tiny-llama.json"), *more, *words, "-q")
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr


def test_optimise_stands_first_and_has_a_help_of_its_own(cli: Cli) -> None:
    assert "optimise stands first" in cli("design", "--node", "N5", "optimise").stderr
    assert "Usage: slipstick design optimise [OPTIONS] MODEL" in cli("design", "optimise", "--help").stdout
    assert cli("help", "design", "optimise", "plan").stdout.startswith("Usage: slipstick design optimise")
