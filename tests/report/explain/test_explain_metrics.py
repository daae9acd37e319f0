"""Every metric says its formula, and its figures give the metric again."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.system import System
from slipstick.cost.flops import Convention
from slipstick.driver.estimate import Estimate, estimate
from slipstick.driver.metrics import METRICS
from slipstick.driver.uncertainty.bands import Band
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.plan import Family, make_plan
from slipstick.report import accuracy
from slipstick.report.accuracy import RowAccuracy
from slipstick.report.explain.explain import explain_text
from slipstick.report.explain.metric import metric_lines
from slipstick.report.tables import report_text

Traced = Callable[[str], Graph]
SCREEN = Path(__file__).parents[1] / "tiny-llama.train.screen"
_NUMBER = re.compile(r"\d[\d.]*(?:e[+-]?\d+)?")
UNITS = {"GiB": "2**30", "MiB": "2**20", "KiB": "2**10", "ms": "1e-3", "us": "1e-6", "ns": "1e-9"}


def computed(formula: str) -> float:
    """Work out `= 64 sequences x 64 tokens / 0.5 s / 8 GPUs`: words say what a number is, units scale it."""
    tokens = re.findall(r"[()]|[^\s()]+", formula.rpartition("= ")[2].replace(" x ", " * "))
    kept = (f"*{UNITS[t]}" if t in UNITS else t for t in tokens if _is_kept(t))
    return float(eval("".join(kept)))


def _is_kept(token: str) -> bool:
    return bool(token in "()+*/" or token in UNITS or _NUMBER.fullmatch(token))


def answers(traced: Traced) -> Iterator[Estimate]:
    system = load_system("dgx-h100")
    train = make_plan(num_gpus=16, tp=2, pp=2, seq_len=64, global_batch=64,
                      family=Family(sp=True, pp=True, recompute="full", zero=1))  # fmt: skip
    yield estimate(traced("tiny-llama.train"), system, train)
    yield estimate(traced("tiny-llama.train"), system, train, Convention.CAUSAL)
    host = make_plan(num_gpus=2, seq_len=64, family=Family(zero=1, offload=("optimizer",)))
    yield estimate(traced("tiny-llama.train"), system, host)
    decode = make_plan(num_gpus=2, tp=2, seq_len=1, kv_len=64, family=Family(workload=Workload.DECODE))
    yield estimate(traced("tiny-llama.decode"), system, decode)


def test_figures_of_every_formula_give_the_metric_again(traced: Traced) -> None:
    seen = set()
    for answer in answers(traced):
        for name, value in answer.metrics.items():
            lines = list(metric_lines(answer, name))
            assert lines[0].startswith(f"{name} = {value:.6g} (")
            formulas = [line for line in lines if line.startswith("  = ")]
            if name != "host_mem_bytes":
                assert computed(formulas[0]) == pytest.approx(value, rel=1e-2 if "step_time" in name else 2e-3), lines
            seen.add(name)
    assert {"host_mem_bytes", "tpot_s", "tokens_per_s_per_user", "bubble_fraction"} < seen <= set(METRICS)


def test_flops_say_their_convention(traced: Traced) -> None:
    full, causal, *_ = answers(traced)
    assert "--flops-convention full" in explain_text(full, "mfu")
    assert "--flops-convention causal" in explain_text(causal, "model_flops")
    assert "MFU, HFU: causal attention FLOPs, of 989 TFLOP/s dense bf16" in report_text(causal, 100)
    assert causal.metrics["model_flops"] < full.metrics["model_flops"]


def test_the_step_says_what_bounds_it_what_it_follows_and_how_it_is_known(traced: Traced) -> None:
    text = explain_text(next(answers(traced)), "step time")
    assert re.search(r"bound by: .*launch \+ fixed work \d+\.\d%", text)
    assert re.search(r"for 1 % more of: .*launch \+ fixed work \+0\.\d+ %", text)
    assert "matmul: gemm bf16 pytorch on H100-SXM5-80GB: median " in text
    assert "bubble: no measurement" in text


def test_a_node_says_how_such_kernels_were_measured(traced: Traced) -> None:
    answer = next(answers(traced))
    assert "measured: attention flash2 on H100-SXM5-80GB: median " in explain_text(answer, "attention")


def test_the_screen_is_the_golden_one(
    traced: Traced, made_up: System, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine of round numbers, which no calibration moves, known by measurements that nothing moves either."""
    known = [
        RowAccuracy("training", "toy", "toy", "step", 12, 0.031, 0.092),
        RowAccuracy("memory", "*", "*", "*", 40, 0.022, 0.05),
    ]
    monkeypatch.setattr(accuracy, "packaged", lambda: {(a.table, a.chip, a.library, a.kind): a for a in known})
    monkeypatch.setattr(
        "slipstick.driver.uncertainty.answers.band_of", lambda *_: Band(-0.09, -0.03, 0.04, 0.12, 40, "toy")
    )
    plan = make_plan(num_gpus=16, tp=2, pp=2, seq_len=2048, micro_batch=4, global_batch=256,
                     family=Family(sp=True, pp=True, zero=1))  # fmt: skip
    text = report_text(estimate(traced("tiny-llama.train"), made_up, plan), 100)
    if request.config.getoption("--update-golden", default=False):
        SCREEN.write_text(text, encoding="utf-8")
    assert text == SCREEN.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 45


def test_without_sensitivity_the_step_is_not_priced_again(traced: Traced) -> None:
    answer = next(answers(traced))
    assert "% of time for" not in report_text(answer, 100, with_sensitivity=False)
    assert "What bounds it" in report_text(answer, 100, with_sensitivity=False)
