"""`slipstick choose --also`: GPUs and servers add up, what is shared is priced as one system, faults are said."""

from __future__ import annotations

import json
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import TypeAlias

import pytest

from slipstick.backends.machine.load import load_system
from slipstick.cost.money import system_money

Cli: TypeAlias = Callable[..., "CompletedProcess[str]"]
_ASKED = (
    *("choose", "llama-3.1-8b", "--system", "dgx-h100,dgx-b200", "--rps", "20", "--isl", "512", "--osl", "128"),
    *("--ttft", "1s", "--tpot", "50ms", "--engine", "vllm", "--disagg", "off", "--tp", "1", "--pp", "1", "-q"),
)
_ALSO = ("--also", "llama-3.1-8b rps=10 isl=2048")


def test_models_share_servers_and_no_gpu(cli: Cli) -> None:
    document = json.loads(cli(*_ASKED, *_ALSO, "--format", "json").stdout)
    assert [one["rate_per_s"] for one in document["models"]] == [20, 10]
    for fleet in document["fleets"]:
        gpus = sum(one["num_gpus"] for one in fleet["models"])
        assert fleet["metrics"]["num_gpus"] == gpus
        apart = sum(-(-one["num_gpus"] // 8) for one in fleet["models"])
        assert (fleet["num_servers"], fleet["servers_saved"]) == (-(-gpus // 8), apart - -(-gpus // 8))
        # Write-off, interest and operations are those of one system of all GPUs; energy is less than at full load.
        owned = system_money(load_system(fleet["system"]), gpus).owned
        fixed = sum(float(part.usd) for part in owned.year.parts if part.name != "energy")
        assert fixed / owned.hours < fleet["metrics"]["usd_per_hour"] < float(owned.year.usd) / owned.hours
        assert fleet["metrics"]["usd_per_hour"] < sum(one["metrics"]["usd_per_hour"] for one in fleet["models"])


def test_the_text_says_what_each_model_gets(cli: Cli) -> None:
    text = cli(*_ASKED, *_ALSO).stdout
    assert "1 server fewer than a set for each model" in text
    assert "dgx-h100, llama-3.1-8b: TTFT" in text
    assert "no GPU" in text


@pytest.mark.parametrize(
    ("also", "told"),
    [
        ("llama-3.2-3b isl=3", "say its rate"),
        ("llama-3.2-3b rps=3 rate=2", "word of --also"),
        ("llama-3.2-3b rps=", "needs a value"),
        ("llama-3.2-3 rps=3", "did you mean"),
        ("llama-3.1-8b rps=3,4", "one rate each"),
    ],
)
def test_a_further_model_that_is_not_understood(cli: Cli, also: str, told: str) -> None:
    done = cli(*_ASKED, "--also", also)
    assert done.returncode == 2
    assert told in done.stderr
