"""What times rest on: shares add up, follow the chip, and refuse what rests on guesses."""

import json
from dataclasses import asdict

import pytest

from slipstick.app.python.verbs import estimate, serve
from slipstick.cli import run
from slipstick.driver.estimate import Estimate
from slipstick.ir.errors import GateError
from slipstick.report.explain.beyond import beyond_fits
from slipstick.report.explain.provenance import (
    Basis,
    check_strict,
    provenance,
    provenance_record,
    provenance_text,
    shares_line,
    shares_of,
    shares_of_server,
)


def answer_on(system: str, tp: int = 8, pp: int = 1) -> Estimate:
    return estimate("llama-3.1-8b", system, tp=tp, pp=pp, gpus=8, seq=4096, gbs=8).answer


def test_operators_and_shares_add_up_to_the_step() -> None:
    answer = answer_on("dgx-h100", tp=4, pp=2)
    assert sum(one.share for one in provenance(answer)) == pytest.approx(1.0)
    assert sum(shares_of(answer).values()) == pytest.approx(1.0)
    assert all(0.0 <= one.of_light <= 1.0 for one in provenance(answer))


def test_a_measured_chip_rests_on_measurements_and_a_strange_one_on_guesses() -> None:
    here = shares_of(answer_on("dgx-h100"))
    assert here[Basis.MEASURED] > 0.8
    # No kernel of Trainium is in any table: nothing of it is measured on the chip.
    there = shares_of(answer_on("trn2-ultraserver"))
    assert there[Basis.MEASURED] == 0.0
    assert there[Basis.GUESS] > 0.0


def test_light_is_the_least_time_that_peak_and_memory_allow() -> None:
    answer = estimate("llama-3.1-8b", "dgx-h100", phase="decode", tp=1, gpus=1, seq=1024, mbs=1).answer
    products = next(one for one in provenance(answer) if one.op == "matmul")
    # One token reads all weights but the embedding's: 7.5e9 of 2 bytes at 3.35e12 B/s.
    least_s = (8.03e9 - 128256 * 4096) * 2 / 3.35e12
    seconds = products.share * answer.metrics["step_time_s"]
    assert products.of_light == pytest.approx(least_s / seconds, rel=0.01)


def test_strict_refuses_above_the_share() -> None:
    shares = {**dict.fromkeys(Basis, 0.0), Basis.MEASURED: 0.7, Basis.GUESS: 0.3}
    check_strict(shares, 0.3)
    check_strict(shares, None)
    with pytest.raises(GateError, match="30% of the time rests on guesses"):
        check_strict(shares, 0.29)
    assert shares_line(shares) == "70% measured on this chip, 30% guess"


def test_shares_of_a_server_are_those_of_its_steps() -> None:
    answer = serve("llama-3.1-8b", "dgx-h100", tp=1, engine="vllm", isl=512, osl=64, concurrency=4).answer
    shares, steps = shares_of_server(answer), (shares_of(answer.prefill), shares_of(answer.decode))
    assert sum(shares.values()) == pytest.approx(1.0)
    for basis, share in shares.items():
        assert min(s[basis] for s in steps) - 1e-9 <= share <= max(s[basis] for s in steps) + 1e-9


WORDS = ("estimate", "llama-3.1-8b", "--tp", "8", "--gpus", "8", "--seq", "4096", "--gbs", "8", "--quiet")


def test_strict_is_a_gate_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*WORDS, "--system", "dgx-h100", "--strict", "0"]) == 0
    assert run([*WORDS, "--system", "trn2-ultraserver", "--strict", "0"]) == GateError.exit_code
    assert "rests on guesses" in capsys.readouterr().err


def test_provenance_and_intervals_are_in_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*WORDS, "--system", "dgx-h100", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert sum(document["provenance"]["shares"].values()) == pytest.approx(1.0)
    found = document["intervals"]["metrics"]
    time, rate = found["step_time_s"], found["tokens_per_s"]
    assert time["least"] < time["low"] < time["high"] < time["most"]
    # A rate is the inverse of the time.
    tokens = document["metrics"]["tokens_per_s"] * document["metrics"]["step_time_s"]
    assert rate["most"] * time["least"] == pytest.approx(tokens)
    assert {"usd_per_mtok", "peak_mem_bytes", "mfu"} <= set(found)


def test_explain_provenance_names_what_operators_go_by(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*WORDS, "--system", "dgx-h100", "--explain", "provenance"]) == 0
    text = capsys.readouterr().out
    assert "gemm bf16" in text
    assert "of light" in text


@pytest.mark.parametrize(
    ("changes", "kernels", "name"),
    [
        (("chip.memory.hbm.bandwidth=60 TB/s",), {"products", "attention", "element-wise"}, "FLOP/B"),
        (("chip.matmul.bf16=9000 TFLOP/s", "chip.matmul.fp16=9000 TFLOP/s"), {"products", "attention"}, "FLOP/B"),
        ((), {"messages"}, "ranks"),
    ],
)
def test_every_class_says_what_of_it_no_row_has_fitted(changes: tuple[str, ...], kernels: set[str], name: str) -> None:
    """60 TB/s for 3.35, nine times the peak, or a message of 16 ranks where rows have 2 to 8: in JSON and in text."""
    answer = estimate("llama-3.1-8b", "dgx-h100", gpus=16, seq=1024, gbs=16, zero=1, set=changes).answer
    told = [asdict(one) for one in beyond_fits(answer)]
    assert provenance_record(answer)["beyond"] == told
    told = [one for one in told if one["name"] in (name, "TB/s")]
    assert {one["kernels"] for one in told} == kernels
    assert all(one["value"] < one["low"] or one["value"] > one["high"] for one in told)
    assert all(0.0 < one["share"] <= 1.0 for one in told)
    assert f"beyond the measurements: {max(told, key=lambda one: one['share'])['share']:.1%} " in provenance_text(
        answer
    )
