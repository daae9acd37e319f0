"""`slipstick compile`: each kind to files, folders and stdout; dumps; graphs read back."""

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from slipstick.ir.text.files import load_graph
from slipstick.ir.text.parse import parse_graph

Cli = Callable[..., CompletedProcess[str]]


def test_graphs_need_no_system(cli: Cli) -> None:
    for kind, axes in (("graph", ()), ("sharded", ("dp", "tp"))):
        done = cli("compile", "gpt2", "--tp", "2", "--gpus", "2", "--emit", kind)
        assert done.returncode == 0
        assert parse_graph(done.stdout).axes == axes


def test_the_graph_is_the_default(cli: Cli) -> None:
    assert cli("compile", "gpt2").stdout == cli("compile", "gpt2", "--emit", "graph").stdout


def test_what_is_written_is_said_on_stderr(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "new" / "gpt2.graph"
    done = cli("compile", "gpt2", "-o", str(path))
    assert (done.returncode, done.stdout, done.stderr.splitlines()[-1]) == (0, "", f"wrote {path}")
    assert load_graph(path).name == "gpt2"


def test_gz_is_compressed_and_the_same_twice(cli: Cli, tmp_path: Path) -> None:
    first, second = tmp_path / "a.graph.gz", tmp_path / "b.graph.gz"
    for path in (first, second):
        assert cli("compile", "gpt2", "-o", str(path)).returncode == 0
    assert first.read_bytes() == second.read_bytes()
    assert gzip.decompress(first.read_bytes()).decode() == cli("compile", "gpt2").stdout


def test_several_kinds_go_into_a_folder(cli: Cli, tmp_path: Path) -> None:
    done = cli("compile", "gpt2", "--system", "dgx-h100", "--emit", "graph, sharded,costed,report", "-o", str(tmp_path))
    assert done.returncode == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["costed.csv", "report.json", "sharded.graph", "traced.graph"]
    assert json.loads((tmp_path / "report.json").read_text())["schema"] == "slipstick/report/1"


def test_the_report_is_that_of_estimate(cli: Cli, tmp_path: Path) -> None:
    words = ("gpt2", "--system", "dgx-h100", "--seq", "128")
    assert cli("compile", *words, "--emit", "report").stdout == cli("estimate", *words, "--format", "json").stdout


@pytest.mark.parametrize("suffix", [".csv", ".json", ".txt", ".csv.gz"])
def test_costed_nodes_follow_the_suffix(cli: Cli, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"nodes{suffix}"
    assert cli("compile", "gpt2", "--system", "dgx-h100", "--emit", "costed", "-o", str(path)).returncode == 0
    data = path.read_bytes()
    text = (gzip.decompress(data) if suffix.endswith(".gz") else data).decode()
    if suffix.startswith(".csv"):
        assert {"node", "op", "time_s", "bound"} <= set(next(csv.DictReader(text.splitlines())))
    elif suffix == ".json":
        bounds = {row["bound"] for row in json.loads(text)}
        assert {"sustained", "memory", "overhead"} <= bounds
        assert "" not in bounds
    else:
        assert text.splitlines()[0].split()[:3] == ["node", "op", "scope"]


def test_costed_nodes_of_what_does_not_fit_come_with_a_warning(cli: Cli) -> None:
    small = ("--set", "chip.memory.hbm.capacity=3GiB")
    done = cli("compile", "gpt2", "--system", "dgx-h100", "--emit", "costed", *small)
    assert done.returncode == 0
    assert "warning: DOES NOT FIT: needs" in done.stderr


def test_stop_after_leaves_the_rest_out(cli: Cli) -> None:
    done = cli("compile", "gpt2", "--emit", "sharded", "--stop-after", "shard")
    assert "optimizer_step" not in done.stdout
    assert "optimizer_step" in cli("compile", "gpt2", "--emit", "sharded").stdout


def test_one_pass_or_all_can_be_dumped(cli: Cli, tmp_path: Path) -> None:
    done = cli("compile", "gpt2", "--emit", "sharded", "--dump-after", "shard", "--dump-dir", str(tmp_path / "one"))
    assert [p.name for p in (tmp_path / "one").iterdir()] == ["01_shard.graph"]
    assert f"wrote {tmp_path / 'one' / '01_shard.graph'}" in done.stderr
    cli("compile", "gpt2", "--emit", "sharded", "--dump-after", "all", "--dump-dir", str(tmp_path / "all"))
    names = sorted(p.name for p in (tmp_path / "all").iterdir())
    assert names == ["00_accumulate.graph", "01_shard.graph", "02_bucket.graph", "03_optimizer.graph", "04_fuse.graph"]
    assert load_graph(tmp_path / "all" / "04_fuse.graph").axes == ("dp",)


@pytest.mark.parametrize("suffix", [".graph", ".graph.gz"])
def test_a_saved_graph_is_a_model(cli: Cli, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"mine{suffix}"
    cli("compile", "gpt2", "-o", str(path))
    words = ("--system", "dgx-h100", "--seq", "128", "--format", "json")
    saved, named = (json.loads(cli("estimate", model, *words).stdout) for model in (str(path), "gpt2"))
    assert saved == named


def test_a_saved_graph_is_of_one_phase(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "mine.graph"
    cli("compile", "gpt2", "-o", str(path))
    done = cli("estimate", str(path), "--system", "dgx-h100", "--phase", "decode")
    assert done.returncode == 4
    assert "ask for --phase train" in done.stderr


@pytest.mark.parametrize(
    "words", [("--emit", "graph", "-o"), ("--emit", "sharded", "--dump-after", "all", "--dump-dir")]
)
def test_a_place_that_cannot_be_written_is_exit_2(cli: Cli, tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "file").write_text("in the way")
    done = cli("compile", "gpt2", *words, str(tmp_path / "file" / "below"))
    assert done.returncode == 2
    assert f"cannot write '{tmp_path / 'file' / 'below'}" in done.stderr


def test_a_folder_is_no_file(cli: Cli, tmp_path: Path) -> None:
    done = cli("compile", "gpt2", "-o", str(tmp_path))
    assert done.returncode == 2
    assert f"cannot write '{tmp_path}'" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_graph_is_sharded_once(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "sharded.graph"
    cli("compile", "gpt2", "--emit", "sharded", "-o", str(path))
    done = cli("estimate", str(path), "--system", "dgx-h100")
    assert done.returncode == 2
    assert "is sharded already, over dp:" in done.stderr


def test_an_unfinished_graph_has_no_costs(cli: Cli) -> None:
    done = cli("compile", "gpt2", "--system", "dgx-h100", "--emit", "costed", "--stop-after", "shard")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--stop-after" in done.stderr


def test_a_sharded_graph_is_proven_and_nothing_else_is_written(cli: Cli) -> None:
    done = cli("compile", "gpt2", "--tp", "2", "--pp", "2", "--verify", "proof")
    assert done.returncode == 0
    first, *rest = done.stdout.splitlines()
    assert first == "proof      gpt2: holds"
    assert any(line.startswith("schedule   1f1b, 2 stages") for line in rest)
    assert not any(line.startswith(("slipstick.graph", "unproven")) for line in rest)
