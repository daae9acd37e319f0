"""What a search refuses, of plans and of servers, rather than price something else in its place; and what `all` is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slipstick.app.search.axes import MOST_SYSTEMS, numbers_of, parameter, values_of
from slipstick.app.search.choose import counts_of
from slipstick.ir.errors import UnknownNameError, UsageError

from ..conftest import Cli

PLANS = (
    "search", "tests/golden/tiny-llama.train.graph", "--system", "dgx-h100", "--gpus", "4", "--seq", "256", "--gbs",
    "8", "--no-ledger",
)  # fmt: skip
SERVERS = ("search", "llama-3.1-8b", "--phase", "serve", "--system", "dgx-h100", "--no-ledger")
# One plan that takes no time.
ONE = ("--tp", "2", "--pp", "1", "--cp", "1", "--mbs", "1", "--no-sp", "--zero", "1", "--fix", "recompute=none")


def refused(cli: Cli, *words: str) -> str:
    done = cli(*words)
    assert done.returncode == 2, done.stdout
    return done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--tp", "2", "--etp", "4"), "or 2, which is tp"),
        (("--tp", "2", "--fix", "etp=4"), "etp=4 with tp=2"),
        (("--vary", "tp=2,4", "--vary", "etp=1,4"), "etp=4 with tp=2,4"),
        (("--etp", "2"), "etp=2 with tp free"),
        (("--schedule", "interleaved", "--vpp", "1"), "--vpp 2 or more"),
        (("--vary", "schedule=interleaved,1f1b", "--vpp", "1"), "--vpp 2 or more"),
        (("--vary", "schedule=interleaved,gpipe"), "add 1f1b"),
        (("--vary", "offload=all"), "no list of all its values"),
        (("--vary", "dtype=all"), "a search has one"),
        (("--fix", "precision=all"), "one value is fixed"),
        (("--fix", "set=chip.power.tdp=500W"), "says nothing"),
        (
            ("--recompute", "none", "--vary", "recompute-modules=mlp"),
            "recompute=none, recompute-modules=mlp: recompute",
        ),
        (("--zero", "1", "--vary", "offload=optimizer+params"), "offload of params goes with zero=3"),
        (("--zero", "0", "--vary", "dp-shard=2"), "zero=0 shards none"),
        (("--space", "nope.yaml"), "cannot read space 'nope.yaml': No such file or directory\n"),
    ],
)
def test_a_search_of_plans_says_why_not(cli: Cli, words: tuple[str, ...], told: str) -> None:
    assert told in refused(cli, *PLANS, *words)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--vary", "ep-exchange=alltoall,allgather"), "a search of servers has one ep-exchange"),
        (("--vary", "kernels=eager,fused"), "a search of servers has one kernels"),
        (("--vary", "mla=all"), "a search of servers has one mla"),
        (("--vary", "etp=tp"), "as in --etp 8"),
        (("--dim", "batch=4"), "--dims says nothing to a search of servers"),
        (("--allow-unpriced",), "says nothing to a search of servers"),
        (("--tokens", "1T"), "says nothing to a search of servers"),
        (("--seq", "4096"), "says nothing to a search of servers"),
    ],
)
def test_a_search_of_servers_drops_nothing_that_is_said(cli: Cli, words: tuple[str, ...], told: str) -> None:
    assert told in refused(cli, *SERVERS, "--gpus", "8", *words)


def test_a_search_of_servers_has_one_number_of_gpus(cli: Cli) -> None:
    assert "one number of GPUs; servers that use fewer are tried anyway up to 32" in refused(
        cli, *SERVERS, "--vary", "gpus=4,8"
    )


@pytest.mark.parametrize("vary", ["schedule=interleaved", "vpp=1,2"])
def test_interleaved_plans_have_two_chunks_or_more(cli: Cli, vary: str) -> None:
    # Two stages of a model of two layers, but for what has one chunk, leave nothing: a second chunk needs four layers.
    words = ("--pp", "2", *(("--schedule", "interleaved") if vary == "vpp=1,2" else ()), "--vary", vary)
    assert "the space is empty: no plan has" in refused(cli, *PLANS, *words)


def test_all_words_of_a_choice_are_tried_but_for_those_of_another_phase(cli: Cli) -> None:
    done = cli(*PLANS, *ONE, "--vary", "kernels=all", "--vary", "async-tp=all", "--format", "json")
    assert done.returncode == 0, done.stderr
    # async-tp needs sp, which is off.
    assert {row["base"] for row in json.loads(done.stdout)["best"]} == {
        f"async_tp=False kernels={word}" for word in ("plain", "eager", "merged", "torch", "compiled", "fused")
    }  # fmt: skip
    # as-published, w8a16 and the like are of inference.
    found = cli(*PLANS, *ONE, "--vary", "precision=all", "--format", "json", "--top", "99")
    assert found.returncode == 0, found.stderr
    recipes = {row["base"] for row in json.loads(found.stdout)["best"]}
    assert {"precision=none", "precision=fp8", "precision=fp8-delayed", "precision=int8"} <= recipes
    assert not {"precision=w8a16", "precision=as-published"} & recipes


def test_all_is_taken_where_there_is_a_list_of_all_values() -> None:
    for key in ("tp", "sp", "zero", "etp", "cp-method", "kernels", "fuse"):
        assert values_of(key, "all") == ("all",)
    for key in ("gpus", "gbs", "engine", "chunked-prefill", "pp-layout"):
        with pytest.raises(UsageError, match="name those to try"):
            values_of(key, "all")


@pytest.mark.parametrize("count", [1, MOST_SYSTEMS + 1, 10**8, 10**17, int("9" * 400), 0])
def test_a_range_is_not_written_out_beyond_what_is_searched(count: int) -> None:
    assert len(numbers_of("system.hbm.bandwidth", f"1TB/s:9TB/s:{MOST_SYSTEMS}")) == MOST_SYSTEMS
    with pytest.raises(UsageError, match="count of 2 to 10,000"):
        numbers_of("system.hbm.bandwidth", f"1TB/s:9TB/s:{count}")


@pytest.mark.parametrize(
    "text", ["1:999999999999999999:1", "1:" + "9" * 5000, "9" * 5000, "1,2," + "9" * 5000, "1:9:0x1"]
)
def test_numbers_of_gpus_are_bounded_before_they_are_listed(text: str) -> None:
    with pytest.raises(UsageError, match="1 to 200 numbers"):
        counts_of(text)


def test_a_flag_has_a_thousand_values_at_most() -> None:
    assert len(values_of("gpus", [str(k) for k in range(1, 1001)])) == 1000
    with pytest.raises(UsageError, match="1,001 values: at most 1,000"):
        values_of("gpus", [str(k) for k in range(1, 1002)])


def test_an_expression_of_a_space_is_refused_before_plans_are_made(cli: Cli, tmp_path: Path) -> None:
    space = "schema: slipstick/space/1\nmodel: llama-3.1-8b\nsystem: dgx-h100\ngpus: 8\nphase: prefill\nprecision_of: "
    for pattern in ("(((", "((a+)+)+", "[z-a]", "(?P<x>"):
        (tmp_path / "space.yaml").write_text(f"{space}['re:{pattern}=fp8']\n", encoding="utf-8")
        done = cli("search", "--space", str(tmp_path / "space.yaml"), "--no-ledger")
        assert (done.returncode, "'re:" in done.stderr, "candidates" in done.stderr) == (4, True, False)


@pytest.mark.parametrize(("key", "near"), [("tpp", "did you mean 'tp'"), ("qqqqqq", "slipstick search --help")])
def test_an_unknown_axis_names_the_nearest_few(key: str, near: str) -> None:
    with pytest.raises(UnknownNameError) as told:
        parameter(key)
    assert near in str(told.value)
    assert len(str(told.value)) < 300


def test_the_help_of_a_search_promises_nothing_that_it_refuses(cli: Cli) -> None:
    text = cli("search", "--help-all").stdout
    assert "--tp," in text
    for flag in ("--mtbf", "--tokens", "--passes", "--scatter-p2p", "Training run", "lognormal"):
        assert flag not in text


def test_a_space_that_is_no_text_is_refused(cli: Cli, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_bytes(b"\xff\xfe\xff")
    done = cli(*PLANS, "--space", str(wrong))
    assert (done.returncode, "wrong.yaml:1: it is not UTF-8 text" in done.stderr) == (4, True)


@pytest.mark.parametrize("count", ["1", "10001", "100000000", "9" * 5000])
def test_an_axis_of_more_values_than_are_tried_is_refused_before_they_are_made(count: str) -> None:
    with pytest.raises(UsageError, match="of 2 to 10,000"):
        numbers_of("chip.memory.hbm.bandwidth", f"1TB/s:9TB/s:{count}")


def test_a_number_with_no_value_is_refused(cli: Cli, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("vary:\n  chip.clock: []\n", encoding="utf-8")
    done = cli(*PLANS, "--space", str(wrong))
    assert (done.returncode, "chip.clock: no value is given" in done.stderr) == (2, True)
