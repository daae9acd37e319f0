"""`slipstick validate` on the command line."""

from __future__ import annotations

import csv
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


def test_a_table_is_judged_and_the_rest_listed(cli: Cli, table: str, tmp_path: Path) -> None:
    done = cli("validate", table, "--rows", str(tmp_path / "rows.csv"))
    assert done.returncode == 0
    line = next(line for line in done.stdout.splitlines() if line.startswith("mine "))
    assert line.split()[:4] == ["mine", "allocated", "judged", "1"]
    assert "vocab is not given" in done.stdout
    rows = list(csv.DictReader((tmp_path / "rows.csv").read_text(encoding="utf-8").splitlines()))
    assert [(r["id"], r["part"]) for r in rows] == [("a", "judged"), ("b", "skipped"), ("c", "judged")]
    assert list(rows[0])[:7] == ["id", "dataset", "part", "predicted_us", "measured_us", "error", "reason"]


def test_accuracies_are_written_for_estimates_to_read(cli: Cli, table: str, tmp_path: Path) -> None:
    out = tmp_path / "accuracy.csv"
    assert cli("validate", table, "--accuracy", str(out)).returncode == 0
    lines = out.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "table,chip,library,kind,rows,median,p90"
    # The accelerator of such a table is no system of the catalogue.
    assert [line.split(",")[:5] for line in lines[1:]] == [
        ["memory", "*", "*", "*", "2"], ["memory", "*", "*", "allocated", "2"]
    ]  # fmt: skip


def test_progress_goes_to_stderr_and_can_be_silenced(cli: Cli, table: str) -> None:
    assert "recording" in cli("validate", table, "--no-cache").stderr
    assert cli("validate", table, "--no-cache", "-q").stderr == ""


def test_json_holds_errors_as_fractions(cli: Cli, table: str) -> None:
    done = cli("validate", table, "--format", "json", "--where", "dataset=yours", "--worst", "1", "-q")
    found = json.loads(done.stdout)
    assert list(found["datasets"]) == ["yours"]
    row, yours = found["rows"][0], found["datasets"]["yours"]
    assert row["error"] == row["predicted_bytes"] / 3e6 - 1
    assert yours["bias"] == row["error"]
    assert yours["median_ape"] == yours["mean_ape"] == yours["p90_ape"] == abs(row["error"])
    assert (yours["n"], yours["skipped"], found["overall"]["n"], found["left_out"]) == (1, 0, 1, [])


def test_a_suffix_says_the_form(cli: Cli, table: str, tmp_path: Path) -> None:
    rows, answer, wrong = (str(tmp_path / name) for name in ("rows.csv", "answer.csv", "answer.gif"))
    assert cli("validate", table, "-q", "--rows", rows, "-o", answer).returncode == 0
    assert Path(answer).read_text(encoding="utf-8") == Path(rows).read_text(encoding="utf-8")
    assert (
        "formats of this result: .json, .csv, .parquet, .md, .html, .svg, .png, .txt"
        in cli("validate", table, "-o", wrong).stderr
    )
    picture = tmp_path / "answer.png"
    assert cli("validate", table, "-q", "-o", str(picture)).returncode == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    for suffix, begins in ((".md", "# validation"), (".html", "<!doctype html>")):
        page = tmp_path / f"answer{suffix}"
        assert cli("validate", table, "-q", "-o", str(page)).returncode == 0
        assert page.read_text(encoding="utf-8").startswith(begins)


def test_a_limit_on_errors_is_an_exit_code(cli: Cli, table: str) -> None:
    assert cli("validate", table, "-q", "--max-error", "1000").returncode == 0
    done = cli("validate", table, "-q", "--max-error", "1")
    assert done.returncode == 5
    assert "above 1%: mine" in done.stderr
    assert "data set" in done.stdout


def test_no_judged_row_is_within_no_limit(cli: Cli, table: str) -> None:
    done = cli("validate", table, "-q", "--where", "layers>1e12", "--max-error", "1000")
    assert done.returncode == 5
    assert "no row was judged" in done.stderr


def test_one_half_alone_may_be_asked_for(cli: Cli, table: str) -> None:
    assert cli("validate", table, "-q", "--part", "judged").stdout == cli("validate", table, "-q").stdout
    assert "mine" in cli("validate", table, "-q", "--part", "fit").stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "FILE.csv"),
        (("absent.csv",), "cannot read"),
        (("TABLE", "--where", "dataset=min"), "mine"),
        (("TABLE", "--where", "datset=mine"), "dataset"),
        (("TABLE", "--calibration", "defualt"), "default"),
        (("TABLE", "--part", "judge"), "judged"),
        (("TABLE", "--max-error", "nan"), "nan is"),
        (("TABLE", "--where", "layers>=nan"), "not a number"),
    ],
)
def test_mistakes_are_answered(cli: Cli, table: str, words: tuple[str, ...], said: str) -> None:
    done = cli("validate", *(table if w == "TABLE" else w for w in words))
    assert done.returncode == 2
    assert said in done.stderr


STEPS = (
    "id,dataset,accelerator,model,n_gpus,layers,hidden,heads,ffn_hidden,vocab,seq_len,tp,pp,dp,micro_batch,"
    "global_batch,precision,step_time_s,tokens_per_s_per_gpu"
)


@pytest.mark.slow
def test_steps_of_ones_own_are_judged(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    sizes = "H100-SXM-80GB,small,2,2,64,4,96,160,64,1,1,2,1,4,bf16"
    rows = [f"a,mine,{sizes},1.0,", f"b,mine,{sizes},,64", f"c,mine,{sizes},,"]
    path.write_text("\n".join([STEPS, *rows]) + "\n")
    done = cli("validate", str(path), "-q", "--beyond", "25", "--format", "json", "--jobs", "1")
    found = json.loads(done.stdout)
    # The farthest first.
    second, first = found["beyond"]
    # 4 sequences of 64 tokens on 2 GPUs at 64 tokens a second each.
    assert (first["measured_s"], second["measured_s"]) == (1.0, 2.0)
    assert first["predicted_s"] == second["predicted_s"] < 0.1
    assert found["left_out"][0]["reason"] == "it gives no time, no rate and no utilisation of a step"


def test_rows_beyond_an_error_are_listed_with_the_cause(cli: Cli, table: str) -> None:
    done = cli("validate", table, "-q", "--beyond", "10")
    assert "off by more than 10%" in done.stdout
    assert "open" in done.stdout
    assert "off by more" not in cli("validate", table, "-q", "--beyond", "100000").stdout
