"""Numbers at the door: none that is no number, none beyond what is counted; and no flag takes any other type."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import click
import pytest

import slipstick
from slipstick.cli import VERBS, root, run
from slipstick.ir.errors import SlipstickError

SERVE = ["estimate", "llama-3.1-8b", "--system", "dgx-h100", "--phase", "serve"]
STEP = ["estimate", "llama-3.1-8b", "--system", "dgx-h100"]
LONG = "9" * 400


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([*SERVE, "--prefix-hit", "nan"], "nan is not a finite number"),
        ([*SERVE, "--memory-utilization", "nan"], "nan is not a finite number"),
        ([*SERVE, "--cut", "nan", "--serve", "burst:4"], "nan is not a finite number"),
        ([*SERVE, "--isl", LONG], "a whole number of 1 or more, and up to 1,000,000,000"),
        ([*SERVE, "--isl", str(2**63 + 1)], "up to 1,000,000,000"),
        ([*SERVE, "--osl", "nan"], "a whole number of 1 or more"),
        ([*SERVE, "--cached", LONG], "...: at most 1,000,000,000 is allowed"),
        ([*SERVE, "--max-num-seqs", LONG], "...: at most 1,000,000,000 is allowed"),
        ([*SERVE, "--block-size", "9" * 5000], "...: at most 1,000,000,000 is allowed"),
        ([*SERVE, "--serve", "poisson:4,seed=-1"], "seed must be 0 or more, and is -1"),
        ([*SERVE, "--serve", "poisson:4,n=1000000000"], "n must be at most 2,000,000, and is 1000000000"),
        ([*SERVE, "--serve", "poisson:4,duration=1e300s"], "more than 2,000,000 requests"),
        ([*SERVE, "--serve", "closed:2000000"], "at most 2,000,000"),
        ([*SERVE, "--serve", f"burst:{LONG}"], "at most 2,000,000"),
        ([*SERVE, "--serve", "burst:4", "--isl", f"1..{2**63}"], "high must be at most 1,000,000,000"),
        ([*SERVE, "--serve", "burst:4", "--isl", "lognormal:1e30,1"], "a mean of 1 or more, to 1,000,000,000"),
        ([*SERVE, "--serve", "burst:4", "--isl", "lognormal:100,nan"], "no negative deviation"),
        ([*SERVE, "--concurrency", LONG], "concurrency"),
        ([*SERVE, "--request-rate", "nan"], "'nan' is not a count"),
        ([*STEP, "--seq", LONG], "1 to 1000000000"),
        ([*STEP, "--gbs", str(2**63)], "1 to 1000000000"),
        ([*STEP, "--gpus", "9" * 5000], "--gpus"),
        ([*STEP, "--set", "chip.clock=1e400GHz"], "is not a finite number"),
        (["trace", "llama-3.1-8b", "--batch", LONG], "at most 1,000,000,000 is allowed"),
        (["sweep", "--volume", "inf"], "inf is not a finite number"),
    ],
    ids=lambda value: " ".join(value[-2:])[:40] if isinstance(value, list) else "",
)
def test_a_number_that_is_none_or_beyond_all_is_refused(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    assert told in capsys.readouterr().err


ARABIC = {ord("0") + n: chr(0x660 + n) for n in range(10)}
IN_TEXTS = (
    [*STEP, "--gpus", "8", "--set", "chip.clock=2GHz"],
    [*STEP, "--gpus", "8", "--recompute", "full", "--pp-layout", "16,16"],
    [*STEP, "--gpus", "8", "--tokens", "15T"],
    [*STEP, "--gpus", "8", "--seq", "8k"],
    [*SERVE, "--isl", "128", "--osl", "64", "--concurrency", "8"],
    [*SERVE, "--serve", "poisson:4,n=100"],
    [*SERVE, "--serve", "burst:4", "--isl", "10..99"],
    [*SERVE, "--disagg", "2:6"],
    ["sweep", "none", "--die-area", "200:800:50mm2"],
    ["search", "gpt2", "--system", "dgx-h100", "--gpus", "8", "--vary", "tp=1,2"],
    ["choose", "gpt2", "--system", "dgx-h100", "--gpus", "8:16:8"],
)


@pytest.mark.parametrize("digits", [ARABIC, {ord(str(n)): f"{n}_{n}" for n in range(10)}], ids=["script", "parted"])
def test_a_number_is_in_digits_from_0_to_9(digits: dict[int, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Python reads numbers of other scripts and with underscores: no type of a flag does, of any verb."""
    tried = 0
    for verb in VERBS:
        command = root.get_command(click.Context(root), verb)
        assert command is not None
        for param in command.get_params(click.Context(command)):
            for number in ("1", "64"):
                try:
                    param.type.convert(number, None, None)
                except (click.UsageError, SlipstickError):
                    continue
                if isinstance(param.type, click.types._NumberParamTypeBase):
                    with pytest.raises(click.UsageError, match="is no number"):
                        param.type.convert(number.translate(digits), param, None)
                    tried += 1
    assert tried > 200
    for words in IN_TEXTS if digits is ARABIC else ():
        *rest, last = words
        assert run([*rest, last.translate(digits), "-q"]) in (2, 4), last
        assert "Traceback" not in capsys.readouterr().err


def test_no_code_reads_digits_of_other_scripts() -> None:
    """Digits of a pattern are [0-9], those of a text `is_digits`: `\\d` and isdecimal() take 760 others."""
    top, odd = Path(slipstick.__file__).parent, re.compile(r"\\d|\.(isdecimal|isnumeric|isdigit)\(")
    shipped = [floor.parent for floor in top.glob("*/__init__.py") if floor.parent.name not in ("tests", "benchmarks")]
    paths = [path for floor in shipped for path in floor.rglob("*.py")]
    found = [str(path.relative_to(top)) for path in paths if odd.search(path.read_text(encoding="utf-8"))]
    assert found == ["ir/units.py"]


def test_numbers_of_flags_are_checked_by_these_types_alone() -> None:
    """The types of click let through what is no number, and any length."""
    found = []
    for path in Path("cli").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "type" and path.name != "numbers.py":
                text = ast.unparse(node.value)
                if text in ("int", "float", "click.INT", "click.FLOAT") or "IntRange" in text or "FloatRange" in text:
                    found.append(f"{path}:{node.value.lineno}")
    assert found == []


@pytest.mark.parametrize(("flag", "told"), [("--seq-len", "seq 8192"), ("--seq", "seq 8192")])
def test_a_length_may_be_in_thousands_of_tokens(flag: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*STEP, "--gpus", "8", "--tp-size", "8", flag, "8k", "-q"]) == 0
    assert told in capsys.readouterr().out
    assert run([*STEP, "--gpus", "8", "--tp", "8", flag, "8q", "-q"]) == 2
    assert "'8q' is not a valid integer" in capsys.readouterr().err


def test_a_prompt_in_thousands_of_tokens_is_as_long_as_a_sequence(capsys: pytest.CaptureFixture[str]) -> None:
    answers = []
    for length in ("1k", "1024"):
        assert run([*SERVE, "--gpus", "1", "--isl", length, "--osl", "64", "-q", "--format", "json"]) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0].split('"metrics"')[1] == answers[1].split('"metrics"')[1]


@pytest.mark.parametrize(("verb", "cure"), [("search", "--vary tp=1,2 tries several"), ("choose", "give one")])
def test_several_numbers_of_a_plan_are_told_where_they_go(
    verb: str, cure: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([verb, "gpt2", "--system", "dgx-h100", "--gpus", "8", "--tp", "1,2"]) == 2
    assert f"'1,2' is no single number: {cure}." in capsys.readouterr().err
