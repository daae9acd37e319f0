"""Servers as deployments: what each pool runs is read back, as many times as was planned."""

from __future__ import annotations

from collections.abc import Callable
from subprocess import CompletedProcess

import pytest
import yaml

from slipstick.frameworks.reading import read_launch

Cli = Callable[..., "CompletedProcess[str]"]
ASKED = ("llama-3.1-70b", "--phase", "serve", "--system", "dgx-h100", "--isl", "3000", "--osl", "500", "--tp", "4")


def export(cli: Cli, *words: str) -> str:
    done = cli("export", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_a_manifest_is_read_back_as_its_plan(cli: Cli, engine: str) -> None:
    text = export(cli, *ASKED, "--gpus", "16", "--engine", engine, "--to", "kubernetes")
    launch = read_launch(text, "server.yaml")
    assert (launch.framework, launch.words["tp"]) == (engine, 4)
    workload, service = yaml.safe_load_all(text)
    assert workload["spec"]["replicas"] == 4
    assert service["spec"]["selector"] == workload["spec"]["template"]["metadata"]["labels"]
    assert "# measure it: " in text


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_a_graph_of_dynamo_has_both_pools(cli: Cli, engine: str) -> None:
    words = (*ASKED, "--engine", engine, "--disagg", "2:3", "--prefill-tp", "2", "--to", "dynamo")
    services = yaml.safe_load(export(cli, *words))["spec"]["services"]
    workers = {name: one for name, one in services.items() if one["componentType"] == "worker"}
    found = {one["subComponentType"]: (one["replicas"], one["resources"]["limits"]["gpu"]) for one in workers.values()}
    assert found == {"prefill": (2, "2"), "decode": (3, "4")}
    for one in workers.values():
        assert one["subComponentType"] in " ".join(one["extraPodSpec"]["mainContainer"]["args"])


def test_values_of_llm_d_leave_parallelism_to_the_chart(cli: Cli) -> None:
    values = yaml.safe_load(export(cli, *ASKED, "--disagg", "2:3", "--prefill-tp", "2", "--to", "llm-d"))
    assert [values[role]["parallelism"] for role in ("prefill", "decode")] == [{"tensor": 2}, {"tensor": 4}]
    assert [values[role]["replicas"] for role in ("prefill", "decode")] == [2, 3]
    assert "--tensor-parallel-size" not in values["decode"]["containers"][0]["args"]
    alone = yaml.safe_load(export(cli, *ASKED, "--gpus", "8", "--to", "llm-d"))
    assert (alone["prefill"]["create"], alone["decode"]["replicas"]) == (False, 2)


def test_a_server_of_several_nodes_is_a_set_of_pods(cli: Cli) -> None:
    words = ("deepseek-v3", *ASKED[1:4], "dgx-h200", *ASKED[5:9], "--gpus", "16", "--tp", "1", "--ep", "16")
    more = ("--precision", "as-published", "--engine", "sglang", "--to", "kubernetes")
    text = export(cli, *words, *more)
    workload = next(yaml.safe_load_all(text))
    assert (workload["kind"], workload["spec"]["leaderWorkerTemplate"]["size"]) == ("LeaderWorkerSet", 2)
    assert "--node-rank $LWS_WORKER_INDEX" in text


def test_what_cannot_be_deployed_is_refused(cli: Cli) -> None:
    done = cli("export", *ASKED, "--gpus", "8", "--engine", "sglang", "--to", "llm-d")
    assert (done.returncode, "give --engine vllm" in done.stderr) == (2, True)
    done = cli("export", "llama-3.1-8b", "--gpus", "8", "--to", "dynamo")
    assert (done.returncode, "give a plan of --phase serve" in done.stderr) == (2, True)
    done = cli("export", *ASKED, "--disagg", "2:3", "--to", "vllm")
    assert (done.returncode, "two pools of servers" in done.stderr) == (2, True)
