"""Code runs only if its name was typed: no key of a plan, a space or a file of defaults, and no variable, runs it."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

import slipstick
from slipstick.app.plans.own_defaults import RESERVED
from slipstick.app.plans.words import plan_words
from slipstick.cli import VERBS, root, run
from slipstick.cli.flags.names import flag_name
from slipstick.ir.errors import NotUnderstoodError

EVIL = (
    "import pathlib\npathlib.Path('MARK').write_text('ran')\nimport torch\n"
    "def f(*a, **k): return torch.nn.Linear(4, 4)\n"
)
ESTIMATE = ("estimate", "llama-3.1-8b", "--system", "dgx-h100", "--gpus", "8", "--tp", "8", "--gbs", "8", "--quiet")
SERVE = (*ESTIMATE[:4], "--phase", "serve", "--isl", "100", "--osl", "50", "--concurrency", "4", "--quiet")
NOT_UNDERSTOOD = 4


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    (tmp_path / "evil.py").write_text(EVIL, encoding="utf-8")
    return tmp_path


def options(verb: str) -> list[str]:
    command = root.get_command(click.Context(root), verb)
    assert command is not None
    params = command.get_params(click.Context(command))
    return sorted({flag_name(p) for p in params if isinstance(p, click.Option)} - {"help", "help_all"})


def plan_keys() -> list[str]:
    return sorted(plan_words())


@pytest.mark.parametrize("base", [ESTIMATE, SERVE], ids=["train", "serve"])
def test_no_key_of_a_plan_runs_code(base: tuple[str, ...], folder: Path) -> None:
    keys = plan_keys()
    assert {"model", "loss", "draft", "tp_plan"} <= set(keys)
    for key in keys:
        (folder / "plan.yaml").write_text(f"{key}: evil.py:f\nacceptance: 0.7\n", encoding="utf-8")
        run((base[0], *(base[2:] if key == "model" else base[1:]), "--plan", "plan.yaml"))
        assert not (folder / "MARK").exists(), key


@pytest.mark.parametrize("where", ["file", "variable"])
def test_no_default_runs_code(where: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in options("estimate"):
        with monkeypatch.context() as patch:
            if where == "file":
                (folder / "slipstick.toml").write_text(f'[estimate]\n{name} = "evil.py:f"\n', encoding="utf-8")
            elif name.upper() not in RESERVED:
                patch.setenv(f"SLIPSTICK_ESTIMATE_{name.upper()}", "evil.py:f")
            for base in (ESTIMATE, SERVE):
                run(base)
                assert not (folder / "MARK").exists(), name


@pytest.mark.parametrize("verb", ["estimate", "compile", "export", "trace", "recompute", "choose"])
def test_a_plan_with_code_is_refused_by_every_verb(verb: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "plan.yaml").write_text("model: evil.py:f\nsystem: dgx-h100\ngpus: 8\nseq: 128\ngbs: 8\n", "utf-8")
    assert verb in VERBS
    code = run((verb, "--plan", "plan.yaml"))
    assert code in (2, NOT_UNDERSTOOD)
    assert not (folder / "MARK").exists()
    assert "Traceback" not in capsys.readouterr().err


def test_a_space_does_not_run_code(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "space.yaml").write_text("model: evil.py:f\nsystem: dgx-h100\ngpus: 8\nseq: 128\ngbs: 8\n", "utf-8")
    assert run(("search", "--space", "space.yaml", "--no-ledger")) == NOT_UNDERSTOOD
    assert not (folder / "MARK").exists()
    assert "evil.py:f" in capsys.readouterr().err


def test_what_is_typed_runs(folder: Path) -> None:
    run(("estimate", "evil.py:f", "--system", "dgx-h100", "--gpus", "8", "--gbs", "8", "--input", "x=float[batch,4]"))
    assert (folder / "MARK").exists()


def test_a_plan_beside_a_call_of_python_does_not_run_code(folder: Path) -> None:
    (folder / "plan.yaml").write_text(
        "phase: serve\ngpus: 1\nisl: 100\nosl: 50\nconcurrency: 4\ndraft: evil.py:f\nacceptance: 0.7\n", "utf-8"
    )
    with pytest.raises(NotUnderstoodError, match=r"type evil\.py:f"):
        slipstick.serve("llama-3.1-8b", "dgx-h100", plan="plan.yaml")
    assert not (folder / "MARK").exists()
