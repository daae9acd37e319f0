"""Software with a date: which file stands for a version or a month, and what is said where none quite does."""

import json
from itertools import pairwise

import pytest

from slipstick.backends.machine.files.catalogue import dated, names, versions_of
from slipstick.backends.machine.files.versions import Validity, chosen, month_of, younger
from slipstick.backends.machine.load import load_stack
from slipstick.backends.machine.software.engine_file import load_engine
from slipstick.cli import run
from slipstick.ir.errors import UnknownNameError, UsageError

KNOWN = (
    Validity("mine", "2.0 ..", "2025-03"),
    Validity("mine-1", "1.4 .. 1.9", "2024-02", "2024-11"),
    Validity("mine-0", "0.3", "2023-05", "2024-01"),
)


@pytest.mark.parametrize(
    ("asked", "name", "note"),
    [
        ("mine@1.4", "mine-1", ""),
        ("mine@v1.9.2.post1", "mine-1", ""),
        ("mine@2.11", "mine", ""),
        ("mine@2024-02-01", "mine-1", ""),
        ("mine@2023", "mine-0", ""),
        ("mine@2024", "mine-1", "nothing is known of that month"),
        ("mine@2026-01", "mine", ""),
        ("mine@2022", "mine-0", "nothing is known of that month"),
        ("mine@1.2", "mine-0", "no such version is known; the nearest stands for it, mine-0 (0.3, 2023-05 to 2024-01)"),
        ("mine@0.1", "mine-0", "no such version is known"),
    ],
)
def test_the_file_whose_versions_or_months_hold_what_was_asked_for(asked: str, name: str, note: str) -> None:
    found = chosen(asked, KNOWN)
    assert found.name == name
    assert note in found.note
    assert bool(found.note) is bool(note)


def test_what_is_neither_a_version_nor_a_date_names_what_there_is() -> None:
    with pytest.raises(UsageError, match=r"'newest' is neither .* mine-1 \(1.4 .. 1.9, 2024-02 to 2024-11\)"):
        chosen("mine@newest", KNOWN)


def test_software_without_versions_is_taken_as_it_is_and_says_so() -> None:
    for asked in ("other@2024", "other@0.3"):
        assert "it is taken as it is today" in chosen(asked, [Validity("other")]).note


def test_a_run_is_older_than_software_that_began_later() -> None:
    assert (
        younger("2024-12", KNOWN[0]) == "a run of 2024-12 is older than its software, mine (2.0 .., 2025-03 to today)"
    )
    assert not younger("2025-03", KNOWN[0])
    assert month_of("2024") == "2024-12"
    assert month_of("2024-13") is None


@pytest.mark.parametrize("kind", ["stacks", "engines"])
def test_an_older_version_is_named_after_its_product_and_no_month_has_two(kind: str) -> None:
    for name in names(kind):
        loaded = load_stack(name) if kind == "stacks" else load_engine(name)
        product = loaded.version_of
        assert not product or name.startswith(f"{product}-")
        if product:
            known = sorted((one.since, one.until or "9999-12") for one in versions_of(kind, product))
            assert all(until < since for (_, until), (since, _) in pairwise(known))


def test_an_older_engine_runs_the_stack_of_its_time() -> None:
    assert load_engine("vllm@0.6.3").stack == "vllm-0.6"
    assert load_engine("vllm@2024-06", "mi300x").version_of == "vllm"
    assert load_stack("vllm@0.6").since == "2024-04"
    assert load_engine("vllm").version_of == ""
    with pytest.raises(UnknownNameError, match="did you mean 'vllm'"):
        dated("engines", "vlm@0.6")


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, list[str]]:
    plain = ("estimate", "llama-3.1-8b", "--system", "dgx-h100", "--phase", "serve", "--format", "json", "-q")
    assert run([*plain, *arguments]) == 0
    answer = json.loads(capsys.readouterr().out)
    return answer["inputs"]["engine"]["name"], answer["warnings"]


@pytest.mark.parametrize(
    ("arguments", "engine", "warning"),
    [
        (("--engine", "vllm", "--as-of", "2024-06"), "vllm-0.6", ""),
        (("--as-of", "2024-06"), "vllm-0.6", ""),
        (("--engine", "vllm@0.8", "--as-of", "2024-06"), "vllm-0.8", "a run of 2024-06 is older than its software"),
        (("--engine", "lmdeploy", "--as-of", "2024-06"), "lmdeploy", "it is taken as it is today"),
        (("--engine", "vllm"), "vllm", ""),
    ],
)
def test_an_answer_says_where_its_software_is_of_another_time(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], engine: str, warning: str
) -> None:
    name, warnings = told(capsys, *arguments)
    assert name == engine
    assert any(warning in one for one in warnings) if warning else not any("@" in one for one in warnings)


def test_a_date_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["estimate", "llama-3.1-8b", "--system", "dgx-h100", "--stack", "vllm", "--as-of", "June"]) == 2
    assert "--as-of June: give a year, a month or a day" in capsys.readouterr().err
