"""Degrees of experts as engines mean them: whole experts over the tensor-parallel ranks."""

from __future__ import annotations

import json
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

Cli = Callable[..., "CompletedProcess[str]"]
GRAPH = "mixtral-8x7b"
ASKED = (
    "estimate",
    GRAPH,
    "--phase",
    "serve",
    "--system",
    "dgx-h200",
    "--isl",
    "128",
    "--osl",
    "16",
    "--concurrency",
    "8",
)


@pytest.mark.parametrize("degrees", [("--tp", "2", "--ep", "2"), ("--tp", "2", "--dp", "4", "--ep", "8")])
def test_an_ep_over_ranks_of_tp_means_whole_experts(cli: Cli, degrees: tuple[str, ...]) -> None:
    done = cli(*ASKED, *degrees, "--format", "json", "-q")
    named = cli(*ASKED, *degrees, "--etp", "1", "--format", "json", "-q")
    assert done.returncode == named.returncode == 0, done.stderr
    assert json.loads(done.stdout)["metrics"] == json.loads(named.stdout)["metrics"]


def test_an_ep_inside_dp_stays_what_it_is(cli: Cli) -> None:
    degrees = ("--tp", "2", "--dp", "4", "--ep", "4")
    done, named = (cli(*ASKED, *degrees, *more, "--format", "json", "-q") for more in ((), ("--etp", "2")))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["metrics"] == json.loads(named.stdout)["metrics"]


def test_a_step_that_refuses_such_an_ep_says_how_it_is_written(cli: Cli) -> None:
    done = cli("estimate", GRAPH, "--system", "dgx-h100", "--tp", "8", "--ep", "8", "-q")
    assert done.returncode == 2
    assert "legal ep: 1; over ranks of tp experts lie whole: add --etp 1 --sp" in done.stderr
    degrees = ("--tp", "8", "--ep", "8", "--etp", "1", "--sp")
    assert cli("estimate", GRAPH, "--system", "dgx-h100", *degrees, "--allow-infeasible", "-q").returncode == 0
