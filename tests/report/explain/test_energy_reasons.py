"""Every part of the joules of a step is the product of the numbers printed beside it, and the sum that of the parts."""

import re
from collections.abc import Callable
from itertools import pairwise
from math import prod

import pytest

from slipstick.backends.machine.load import load_system, read_system
from slipstick.backends.machine.system import System
from slipstick.backends.technology.data import load_technology
from slipstick.backends.technology.design import Budget, design
from slipstick.backends.technology.files.chip_file import system_text
from slipstick.cost.run.training_run import TrainingRun
from slipstick.driver.estimate import Estimate, estimate, train, worth
from slipstick.ir.graph import Graph
from slipstick.ir.plan import Family, make_plan
from slipstick.report.cost.money import metrics_of
from slipstick.report.explain.explain import explain_text

SCALE = {"p": 1e-12, "n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
JOULES = r"(-?[\d.e+-]+) ([pnumkMG]?)J"
# With and without a law of the node, its own measurement, dies that are ranks, and a limit that holds it.
MACHINES = ("dgx-h100", "tpu-v5p-pod", "dgx-a100-80gb", "dgx-b200", "mi250x-node", "dgx-h100 limited", "designed")
# Metrics of energy and carbon whose first line is their whole formula.
FORMULAS = ("gpu_power_w", "average_power_w", "j_per_token", "j_per_token_facility", "kwh", "model_flop_per_s_per_w")


def machine(name: str) -> System:
    if name == "designed":
        technology = load_technology()
        budget = Budget("N3", 800.0, 1000.0, memory="hbm3e", num_dies=2, d2d="ucie-advanced", d2d_bytes_per_s=1e12)
        return read_system(system_text(design(budget, technology), name, 8, "ndr-infiniband", technology), name)
    limit = ("chip.power_limit=250 W",) if name.endswith("limited") else ()
    return load_system(name.split()[0], limit)


@pytest.fixture(scope="module", params=MACHINES)
def answer(request: pytest.FixtureRequest, traced: Callable[[str], Graph]) -> Estimate:
    plan = make_plan(num_gpus=16, tp=2, seq_len=64, global_batch=32, family=Family(sp=True))
    return worth(train(estimate(traced("tiny-llama.train"), machine(request.param), plan), TrainingRun(amount=1e12)))


def read_joules(text: str) -> float:
    found = re.search(JOULES, text)
    assert found is not None, text
    return float(found[1]) * SCALE[found[2]]


def product(text: str) -> float:
    """Work out `3 packages x 5 W x 2 s + 7 B x 2 pJ`."""
    terms = [[re.match(r"([\d.e+-]+) ?(pJ)?", one) for one in term.split(" x ")] for term in text.split(" + ")]
    return sum(prod(float(m[1]) * (1e-12 if m[2] else 1.0) for m in term if m) for term in terms)


def test_parts_are_the_products_of_their_terms_and_add_up(answer: Estimate) -> None:
    lines = explain_text(answer, "j_per_token_facility").splitlines()
    whole = read_joules(lines[2])
    named = {
        name: read_joules(rest) for name, rest in re.findall(r"(?:: |, )([a-z ]+) (-?[\d.e+-]+ [pnumkMG]?J)", lines[3])
    }
    assert sum(named.values()) == pytest.approx(whole, rel=1e-5)
    seen = set()
    for head, formula in pairwise(lines):
        part = re.match(rf"  ([a-z ]+) = {JOULES}, ", head)
        if part is not None and part[1] != "power limit":
            seen.add(part[1])
            assert product(formula.removeprefix("    = ").partition(";")[0]) == pytest.approx(named[part[1]], rel=2e-5)
    assert seen == set(named) - {"power limit"}
    assert named.get("power limit", 0.0) <= 0.0


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_of_energy_give_their_metric_again(answer: Estimate, name: str) -> None:
    head, _, formula, *_ = explain_text(answer, name).splitlines()
    text = re.sub(JOULES, lambda m: repr(float(m[1]) * SCALE[m[2]]), formula)
    text = re.sub(r",(?=\d{3})", "", text)
    words = re.findall(r"(?<![A-Za-z])\d+\.?\d*(?:e[+-]?\d+)?|(?<= )[x/+](?= )|[()]", text)
    value = float(eval("".join("*" if word == "x" else word for word in words), {"__builtins__": {}}))
    assert value == pytest.approx(metrics_of(answer.money)[name], rel=2e-5)
    assert head.startswith(f"{name} = ")
