"""Defaults of one's own: which source counts, what is said of them, and what a saved command holds."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

import slipstick
from slipstick.app.plans.own_defaults import _EFFECTS
from slipstick.cli import VERBS, root, run
from slipstick.cli.flags.names import flag_name
from slipstick.cli.flags.settings import OwnDefaults

ASK = ("estimate", "llama-3.1-8b", "--gbs", "64", "--format", "json")


@pytest.fixture(autouse=True)
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    return tmp_path


def answer(capsys: pytest.CaptureFixture[str], *more: str) -> tuple[dict[str, object], str, str]:
    assert run((*ASK, *more)) == 0
    said = capsys.readouterr()
    report = json.loads(said.out)
    return report["inputs"]["plan"], str(report["inputs"]["system"]["name"]), said.err


def test_the_nearest_source_counts(
    at: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (at / "slipstick.toml").write_text(
        "[defaults]\nsystem = 'dgx-h100'\ngpus = 8\ntp = 2\n[estimate]\ntp = 4\nzero = 1\n", encoding="utf-8"
    )
    monkeypatch.setenv("SLIPSTICK_ZERO", "2")
    monkeypatch.setenv("SLIPSTICK_ESTIMATE_ZERO", "3")
    plan, system, err = answer(capsys)
    assert (plan["dp"], plan["tp"], plan["zero"], system) == (8 // 4, 4, 3, "dgx-h100")
    assert "--tp 4 (slipstick.toml [estimate])" in err
    assert "--zero 3 (SLIPSTICK_ESTIMATE_ZERO)" in err
    # Plan files are nearer, flags the nearest.
    (at / "plan.yaml").write_text("tp: 8\nzero: 0\n", encoding="utf-8")
    plan, _, err = answer(capsys, "--plan", "plan.yaml", "--zero", "1", "--quiet")
    assert err.count("\n") == 1
    assert err.startswith("defaults: --system dgx-h100")
    assert (plan["tp"], plan["zero"]) == (8, 1)


def test_a_file_of_the_user_counts_where_the_folder_has_none(at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = at / "home" / "slipstick"
    home.mkdir(parents=True)
    (home / "slipstick.toml").write_text("[defaults]\nsystem = 'dgx-h200'\ngpus = 8\ntp = 8\n", encoding="utf-8")
    assert answer(capsys)[1] == "dgx-h200"
    (at / "slipstick.toml").write_text("[defaults]\nsystem = 'dgx-h100'\ngpus = 8\ntp = 8\n", encoding="utf-8")
    assert answer(capsys)[1] == "dgx-h100"


def test_a_saved_command_says_defaults_as_flags(at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (at / "slipstick.toml").write_text(
        "[estimate]\nsystem = 'dgx-h100'\ngpus = 8\ntp = 8\nset = {'chip.memory.hbm.bandwidth' = '4.8TB/s'}\n",
        encoding="utf-8",
    )
    assert run(("estimate", "llama-3.1-8b", "--tp", "4", "--zero", "1", "-o", "a.md")) == 0
    command = next(line for line in (at / "a.md").read_text().splitlines() if line.startswith("slipstick estimate"))
    assert set(command.split()[3:]) == {
        "--tp", "4", "--zero", "1", "-o", "a.md", "--gpus=8", "--system=dgx-h100",
        "--set=chip.memory.hbm.bandwidth=4.8TB/s",
    }  # fmt: skip
    assert "--set {'chip.memory.hbm.bandwidth': '4.8TB/s'} (slipstick.toml [estimate])" in capsys.readouterr().err
    # The screen says them too, where nobody reads stderr.
    assert run(("estimate", "llama-3.1-8b", "--tp", "4", "--zero", "1", "-q")) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("defaults of slipstick.toml")
    assert "--set=chip.memory.hbm.bandwidth=4.8TB/s" in last


def test_python_takes_the_same_defaults(at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (at / "slipstick.toml").write_text("[defaults]\ngpus = 8\n[estimate]\ntp = 8\nzero = 1\n", encoding="utf-8")
    assert run(("estimate", "llama-3.1-8b", "--system", "dgx-h100", "--format", "json", "-q")) == 0
    answer = slipstick.estimate("llama-3.1-8b", "dgx-h100")
    assert answer.to_dict() == json.loads(capsys.readouterr().out)
    assert set(answer.defaults) == {"--gpus=8", "--tp=8", "--zero=1"}


@pytest.mark.parametrize(
    "name",
    ["output", "quiet", "runs", "plan", "from", "resume", "loss", "draft", "best_plan", "front", "dump-dir", "address"],
)
@pytest.mark.parametrize("section", ["defaults", "estimate"])
def test_a_file_only_describes_a_job(name: str, section: str, at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (at / "victim.txt").write_text("precious", encoding="utf-8")
    (at / "slipstick.toml").write_text(f"[{section}]\n{name} = '../victim.txt'\n", encoding="utf-8")
    assert run((*ASK, "--system", "dgx-h100", "--gpus", "8", "--tp", "8")) == 4
    assert f"type --{name.replace('_', '-')}" in capsys.readouterr().err
    assert (at / "victim.txt").read_text(encoding="utf-8") == "precious"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[estimate]\ngpu = 8\n", "did you mean 'gpus'"),
        ("[estimat]\ngpus = 8\n", "did you mean 'estimate'"),
        ("system = 'dgx-h100'\n", "a section holds flags"),
        ("[estimate\n", "slipstick.toml"),
        ("[defaults]\nphase = true\n", "'true' is not allowed"),
    ],
)
def test_a_fault_is_said_with_the_file(text: str, told: str, at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (at / "slipstick.toml").write_text(text, encoding="utf-8")
    assert run(ASK) in (2, 4)
    err = capsys.readouterr().err
    assert told in err
    assert "internal" not in err


@pytest.mark.parametrize("value", ["true", "1.5", "[true, 2]", "{a = true}"])
def test_a_value_of_any_kind_arrives_as_if_typed(value: str, at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in VERBS:
        command = root.get_command(click.Context(root), verb)
        assert command is not None
        options = {str(p.name): p for p in command.get_params(click.Context(command)) if isinstance(p, click.Option)}
        names = [flag_name(p) for p in options.values() if flag_name(p) not in _EFFECTS]
        (at / "slipstick.toml").write_text("\n".join(["[defaults]", *(f"{n} = {value}" for n in names)]), "utf-8")
        for name, given in OwnDefaults(root, print)[verb].items():
            kinds = {type(one) for one in given} if isinstance(given, list) else {type(given)}
            assert kinds == {bool if options[name].is_flag and value == "true" else str}, (verb, name)
            assert isinstance(given, list) == options[name].multiple or options[name].is_flag, (verb, name)


def test_another_file_or_none_may_be_named(
    at: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (at / "slipstick.toml").write_text("[estimat]\n", encoding="utf-8")
    (at / "mine.toml").write_text("[defaults]\nsystem = 'dgx-h100'\ngpus = 8\ntp = 8\n", encoding="utf-8")
    monkeypatch.setenv("SLIPSTICK_CONFIG", "mine.toml")
    assert answer(capsys)[1] == "dgx-h100"
    monkeypatch.setenv("SLIPSTICK_CONFIG", "")
    assert run((*ASK, "--system", "dgx-h100", "--gpus", "8", "--tp", "8")) == 0


@pytest.mark.parametrize(("color", "bold"), [("always", True), ("never", False), ("auto", False)])
def test_color_is_as_asked_for(color: str, bold: bool, capsys: pytest.CaptureFixture[str]) -> None:
    assert run((*ASK[:4], "--system", "dgx-h100", "--gpus", "8", "--tp", "8", "--quiet", "--color", color)) == 0
    assert ("\x1b[" in capsys.readouterr().out) is bold
