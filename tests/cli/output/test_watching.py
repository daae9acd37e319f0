"""What verbs say on stderr while they work: nothing by default, all with -v, the running stage on a terminal."""

import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from slipstick.cli.output import watching
from slipstick.frontend import GraphCache, load
from slipstick.ir.text.stages import LOGGER, stage

Cli = Callable[..., "CompletedProcess[str]"]

STEP = ("--system", "dgx-h100", "--gpus", "8", "--tp", "8", "--seq", "2048", "--gbs", "8")
# Verbs that may take more than two seconds, each with a small question.
LONG = {
    "size": "size gpt2 --system dgx-h100 --target-rps 10 --isl 100 --osl 20 --tp 1 --pp 1 --disagg off",
    "choose": "choose gpt2 --system dgx-h100 --tokens 1B --gpus 8 --seq 512 --gbs 64 --tp 1 --pp 1 --cp 1 --zero 1",
    "search": "search gpt2 --system dgx-h100 --gpus 8 --seq 512 --gbs 8 --tp 1 --pp 1 --cp 1 --zero 1 --no-ledger",
    "recompute": "recompute gpt2 --system dgx-h100 --gpus 8 --seq 512 --gbs 64",
    "posttrain": "posttrain gpt2 --system dgx-h100 --gpus 8 --prompts 8 --group 2 --max-tokens 256 --isl 64 --osl 64",
    "sweep": "sweep none --die-area 400,600mm2 --power 700W --gpus 8",
}


def test_verbose_says_what_is_read_from_where_and_the_seconds_of_stages(cli: Cli) -> None:
    done = cli("estimate", "llama-3.1-8b", *STEP, "-v")
    lines = done.stderr.splitlines()
    assert any(line.startswith("system dgx-h100: ") and "systems/dgx-h100.yaml" in line for line in lines)
    assert any(line.startswith("graph of llama-3.1-8b (train): of the package") for line in lines)
    assert sum(bool(re.fullmatch(r"(lower|price) .*: \d+\.\d\d s", line)) for line in lines) == 2
    assert len(set(lines)) == len(lines)
    assert done.stdout == cli("estimate", "llama-3.1-8b", *STEP).stdout


def test_the_cache_says_which_graphs_it_keeps_and_reads(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    graph, cache = load("llama-3.1-8b", cache=GraphCache(tmp_path)), GraphCache(tmp_path)
    with caplog.at_level("INFO", LOGGER):
        cache.put("a", graph)
        assert cache.get("a") is not None
    where = tmp_path / "graphs" / "a.graph.gz"
    assert [record.getMessage() for record in caplog.records] == [
        f"graph of llama-3.1-8b (train): kept in the cache, {where}",
        f"graph of llama-3.1-8b (train): from the cache, {where}",
    ]


def test_without_a_terminal_nothing_is_said(cli: Cli) -> None:
    assert cli(*LONG["size"].split()).stderr == ""
    assert not logging.getLogger(LOGGER).handlers


@pytest.mark.parametrize("verb", LONG)
def test_long_verbs_show_progress_on_a_terminal(cli: Cli, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_SOON_S", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    done = cli(*LONG[verb].split())
    assert done.returncode == 0, done.stderr
    assert "\x1b[2K" in done.stderr
    assert "\x1b" not in cli(*LONG[verb].split(), "-q").stderr


def test_a_stage_that_fails_says_no_seconds(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", LOGGER), pytest.raises(ValueError, match="no"), stage("read a file"):
        raise ValueError("no")
    assert [record.getMessage() for record in caplog.records] == ["read a file"]
