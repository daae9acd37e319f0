"""Files of a few bytes that ask for hours, for gigabytes, or for what a reader below ours does not expect."""

from __future__ import annotations

import json
import resource
import time
from pathlib import Path

import pytest

from slipstick.cli import run

ROOT = Path(__file__).resolve().parents[2]
GRAPH = ROOT / "tests" / "golden" / "tiny-llama.train.graph"
ON = ("--system", "dgx-h100", "--gpus", "8", "--seq", "256", "--gbs", "16")
JOB = "model: llama-3.1-8b\nsystem: dgx-h100\ngpus: 8\n"
SERVED = "phase: serve\nisl: 100\nosl: 10\nconcurrency: 4\n"
HALF = r"\ud83d"
LONG = {"colons": "1" + ":1" * 300_000, "hex": "0x" + "f" * 5000, "binary": "0b" + "1_1" * 5000}
NONE = ("!!bool x", "!!timestamp x", '!!int ""', "!!int x")
# Digits of no number, by which `str.isdigit` is taken in.
SUPERSCRIPTS = {
    "p.yaml": f'{JOB}gbs: 16\npp: 8\npp_layout: "²,²"\n',
    "t.yaml": f'{JOB}gbs: 16\ntp_plan: "auto:²"\n',
    "d.yaml": f'{JOB}{SERVED}disagg: "²:²"\n',
    "n.sh": "torchrun --nproc_per_node ² pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1\n",
    "a.sh": "A=(1 2)\nvllm serve ${A[²]} --tensor-parallel-size 2\n",
}
CONFIGS = {
    "labels": {"model_type": "llama", "num_labels": 400_000_000},
    "kinds": {"model_type": "gpt_neo", "attention_types": [[["global", "local"], 400_000_000]]},
}


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def ended(words: list[str], capsys: pytest.CaptureFixture[str], codes: tuple[int, ...] = (4,)) -> str:
    """What a command says that refuses, at once and without memory to speak of."""
    start, held = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    capsys.readouterr()
    code = run(words)
    told = capsys.readouterr().err
    assert code in codes, told
    assert "internal" not in told
    assert time.process_time() - start < 20.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held < 1 << 20
    return told


def test_a_key_given_twice_among_many_is_found_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    keys = ",".join(f'"{number:05x}":0' for number in range(99_000))
    Path("r.json").write_text(f'{{{keys},"{98_999:05x}":1}}', encoding="utf-8")
    assert "given twice: 182b7" in ended(["compare", "r.json", "r.json"], capsys)


@pytest.mark.parametrize("kind", LONG)
def test_no_number_of_a_space_is_longer_than_others(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("s.yaml").write_text(f"{JOB}gbs: {LONG[kind]}\n", encoding="utf-8")
    assert "more than 300 digits" in ended(["search", "--space", "s.yaml", "--no-ledger"], capsys)


def test_no_number_of_a_file_of_defaults_is(capsys: pytest.CaptureFixture[str]) -> None:
    Path("slipstick.toml").write_text(f"[estimate]\ngpus = {LONG['hex']}\n", encoding="utf-8")
    assert "more than 300 digits" in ended(["estimate", "llama-3.1-8b"], capsys)


@pytest.mark.parametrize("value", NONE)
def test_a_tag_of_what_a_text_is_not_is_refused(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("s.yaml").write_text(f"{JOB}gbs: {value}\n", encoding="utf-8")
    assert "is not YAML" in ended(["search", "--space", "s.yaml", "--no-ledger"], capsys)


@pytest.mark.parametrize("name", SUPERSCRIPTS)
def test_a_digit_that_is_no_number_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(name).write_text(SUPERSCRIPTS[name], encoding="utf-8")
    ended(["import", name] if name.endswith(".sh") else ["estimate", "--plan", name], capsys, (0, 2, 4))


def test_half_of_a_character_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    text = GRAPH.read_text(encoding="utf-8")
    Path("x.graph").write_text(text.replace('"tiny-llama"', f'"a{HALF}"', 1), encoding="utf-8")
    assert "half of a character" in ended(["estimate", "x.graph", *ON], capsys)
    Path("r.json").write_text(f'{{"schema": "slipstick/report/1", "a": "{HALF}"}}', encoding="utf-8")
    assert "half of a character" in ended(["compare", "r.json", "r.json"], capsys)


def test_a_format_is_not_printed_without_end(capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.sh").write_text(f'A=$(printf "{"x" * 400_000}%s"{" a" * 9000})\nvllm serve m $A\n', encoding="utf-8")
    assert "characters of text" in ended(["import", "x.sh"], capsys)


@pytest.mark.parametrize("kind", CONFIGS)
def test_no_list_of_a_config_is_written_out_without_end(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("m").mkdir()
    Path("m", "config.json").write_text(json.dumps(CONFIGS[kind]), encoding="utf-8")
    assert "400000000" in ended(["trace", "./m", "--no-cache"], capsys)
