"""Every explanation gives its value again from what it prints: all metrics of answers drawn at random."""

import re
from collections import Counter
from collections.abc import Callable
from math import ceil, exp
from random import Random
from typing import cast

import pytest

import slipstick
from slipstick.backends.machine.load import system_names
from slipstick.ir.errors import SlipstickError
from slipstick.report.results.steps import ServeResult, StepResult

_NUMBER = re.compile(r"-?\d[\d.]*(?:e[+-]?\d+)?")
_SI = {"p": 1e-12, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_UNITS = {
    **{f"{prefix}{unit}": factor for prefix, factor in _SI.items() for unit in ("s", "J", "W", "B", "FLOP")},
    **{f"{prefix}iB": 2.0 ** (10 * power) for power, prefix in enumerate("KMGT", 1)},
}
_OPERATORS = {"x": "*", "+": "+", "-": "-", "/": "/", "(": "(", ")": ")", "exp(": "exp(", "ceil(": "ceil("}


def work_out(formula: str) -> float:
    """Return the value of a formula: words say what a number is, units scale it, `;` ends it."""
    text = formula.partition("= ")[2].partition(";")[0]
    spaced = re.sub(r"(?<![\w])(?:exp|ceil)\(|[()]", lambda m: f" {m[0]} ", re.sub(r",(?=\d{3})", "", text))
    kept: list[str] = []
    for token in (word.strip(",$") for word in spaced.split()):
        percent = token.endswith("%") and bool(_NUMBER.fullmatch(token[:-1]))
        if token in _OPERATORS:
            kept.append(_OPERATORS[token])
        elif percent or _NUMBER.fullmatch(token):
            kept.append(f"{token[:-1]}*0.01" if percent else token)
        elif token in _UNITS and kept and kept[-1][-1].isdigit():
            kept[-1] = f"({kept[-1]}*{_UNITS[token]!r})"
    return float(eval("".join(kept), {"__builtins__": {}, "exp": exp, "ceil": ceil}))


def formulas_of(text: str) -> list[str]:
    """Return the lines of an explanation that say its value, `= ...`, the first of all in front."""
    return [line.strip() for line in text.splitlines()[1:] if line.startswith("  = ")]


# What is given, counted in a graph, or found by a search or a simulation, and is no formula of other numbers.
ROOTS = re.compile(
    r"checkpoint_bytes|checkpoint_stall_s|ttft_(low|high|tail)_s|tpot_tail_s|(max_)?batch|kv_bytes_.*|.*_p\d\d_s"
)
MODELS = ("gpt2", "llama-3.1-8b", "mixtral-8x7b")
RUNS: tuple[dict[str, object], ...] = (
    {},
    {"tokens": "1T"},
    {"tokens": "3B", "checkpoint_bandwidth": "5GB/s", "mtbf": "20000h"},
    {"steps": 1000, "checkpoint_every": "100steps", "checkpoint_stall": "20s"},
)
WORDS: tuple[dict[str, object], ...] = (
    {},
    {"zero": 1},
    {"zero": 3},
    {"recompute": "full"},
    {"zero": 1, "offload": "optimizer"},
)
ESTIMATE = cast("Callable[..., StepResult]", slipstick.estimate)
SERVE = cast("Callable[..., ServeResult]", slipstick.serve)
LOADS: tuple[dict[str, object], ...] = ({"concurrency": 16}, {"request_rate": 2}, {"batch": 8})


def draw(random: Random) -> StepResult | ServeResult:
    """Return a random answer of a step or a server on a random system; SlipstickError for what cannot be."""
    model, system = random.choice(MODELS), random.choice(system_names())
    tp, pp, dp = random.choice((1, 2, 4)), random.choice((1, 2)), random.choice((1, 2, 3))
    phase, seq, mbs = random.choice(("train", "prefill", "decode", "serve")), *random.choice(((256, 1), (1000, 3)))
    words: dict[str, object] = {"tp": tp, **({"rent": True} if random.random() < 0.2 else {})}
    if phase == "serve":
        engine = random.choice(("vllm", "sglang", "tensorrt-llm"))
        return SERVE(model, system, engine=engine, isl=seq, osl=100, **random.choice(LOADS), **words)
    if phase == "train":
        words |= {"pp": pp, "gpus": tp * pp * dp, "gbs": dp * 4, **random.choice(WORDS), **random.choice(RUNS)}
    else:
        words |= {"gpus": tp, "phase": phase, "mbs": mbs, "gbs": mbs}
    return ESTIMATE(model, system, seq=seq, **words)


def check_all(seeds: range) -> Counter[str]:
    """Explain every metric of the answers of some seeds; return how many were worked out, by name."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        try:
            answer = draw(Random(seed))
        except SlipstickError:
            continue
        for name, value in cast("dict[str, float]", answer.to_dict()["metrics"]).items():
            text = slipstick.explain(answer, name)
            first = float(text.split(" = ")[1].split()[0])
            assert first == pytest.approx(value, rel=1e-5)
            for formula in formulas_of(text):
                assert work_out(formula) == pytest.approx(value, rel=2e-5, abs=1e-12), (seed, name, text)
            assert formulas_of(text) or ROOTS.fullmatch(name), (seed, name, text)
            seen[name] += 1
    return seen


def test_every_metric_gives_its_value_again() -> None:
    seen = check_all(range(24))
    assert sum(seen.values()) > 300
    assert len(seen) > 60


@pytest.mark.deep
def test_every_metric_of_many_answers_gives_its_value_again() -> None:
    assert sum(check_all(range(24, 400)).values()) > 5_000
