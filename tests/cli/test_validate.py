"""`slipstick validate` on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

Cli = Callable[..., CompletedProcess[str]]
HEADER = "id,dataset,accelerator,layers,hidden,heads,ffn_hidden,vocab,seq_len,tp,pp,dp,micro_batch,peak_allocated_bytes"


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "memory.csv"
    rows = ["a,mine,H100-80GB,2,64,4,96,160,64,1,1,1,1,1000000", "b,mine,H100-80GB,2,64,4,96,,64,1,1,1,1,1000000"]
    path.write_text("\n".join([HEADER, *rows, "c,yours,H100-80GB,2,64,4,96,160,64,1,1,1,1,3000000"]) + "\n")
    return str(path)


def test_a_table_is_judged_and_the_rest_listed(cli: Cli, table: str) -> None:
    done = cli("validate", "memory", table, "--rows")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[1].split()[:4] == ["mine", "allocated", "1", "1"]
    assert any(line.startswith("a ") for line in lines)
    assert "vocab is not given" in done.stdout


def test_progress_goes_to_stderr_and_can_be_silenced(cli: Cli, table: str) -> None:
    assert "recording" in cli("validate", "memory", table, "--no-cache").stderr
    assert cli("validate", "memory", table, "--no-cache", "-q").stderr == ""


def test_json_holds_errors_as_fractions(cli: Cli, table: str) -> None:
    done = cli("validate", "memory", table, "--format", "json", "--dataset", "yours", "--worst", "1", "-q")
    found = json.loads(done.stdout)
    assert list(found["datasets"]) == ["yours"]
    assert found["rows"][0]["error"] == found["rows"][0]["predicted_bytes"] / 3e6 - 1
    assert found["left_out"] == []


def test_without_a_table_it_says_which_one_it_needs(cli: Cli) -> None:
    done = cli("validate", "memory")
    assert done.returncode == 2
    assert "tests/validation/memory.csv" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("speed", "t.csv"), "memory"),
        (("memory", "absent.csv"), "cannot read"),
        (("memory", "TABLE", "--dataset", "min"), "mine"),
    ],
)
def test_mistakes_are_answered(cli: Cli, table: str, words: tuple[str, ...], said: str) -> None:
    done = cli("validate", *(table if w == "TABLE" else w for w in words))
    assert done.returncode == 2
    assert said in done.stderr
