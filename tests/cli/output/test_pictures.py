"""Pictures stand below tables on a terminal or where they are asked for, and nowhere else."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from slipstick.cli import run

Cli = Callable[..., CompletedProcess[str]]
SHADES = re.compile(r"[█▓▒░]")
STEP = "--system dgx-h100 --gpus 2 --tp 2 --seq 128 -q"


@pytest.fixture
def step(data: Path) -> list[str]:
    return ["estimate", str(data / "configs" / "tiny-llama.json"), *STEP.split()]


class Terminal(io.StringIO):
    """A screen that keeps what it shows."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def on_terminal(words: list[str], monkeypatch: pytest.MonkeyPatch, encoding: str = "utf-8") -> str:
    screen = Terminal()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", screen)
        patched.setattr(Terminal, "encoding", encoding)
        patched.setenv("COLUMNS", "80")
        assert run(words) == 0
    return screen.getvalue()


def test_a_terminal_shows_pictures_and_a_pipe_does_not(
    step: list[str], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SHADES.search(on_terminal(step, monkeypatch))
    assert not SHADES.search(on_terminal([*step, "--no-plot"], monkeypatch))
    assert not SHADES.search(cli(*step).stdout)
    assert SHADES.search(cli(*step, "--plot").stdout)


def test_a_terminal_without_the_letters_shows_none(step: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert not SHADES.search(on_terminal(step, monkeypatch, "ascii"))


def test_no_color_leaves_pictures_without_colors(step: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" in on_terminal(step, monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    plain = on_terminal(step, monkeypatch)
    assert "\x1b[" not in plain
    assert SHADES.search(plain)


@pytest.mark.parametrize("form", ["json", "csv", "md", "html"])
def test_other_forms_have_none(form: str, step: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert not SHADES.search(on_terminal([*step, "--format", form], monkeypatch))


@pytest.mark.parametrize("words", ["--format json", "-o x.txt", "-o x.json"])
def test_a_picture_in_a_file_is_refused_before_anything_slow(words: str, step: list[str], cli: Cli) -> None:
    found = cli(*step, "--plot", *words.split())
    assert found.returncode == 2
    assert "--plot draws below a table on stdout" in found.stderr


def test_a_step_is_drawn_in_its_shares(step: list[str], cli: Cli) -> None:
    report = json.loads(cli(*step, "--format", "json").stdout)
    largest = max(report["breakdown"].values()) / report["metrics"]["step_time_s"]
    shown = cli(*step, "--plot").stdout.partition("\nA step of ")[2].splitlines()
    # The greatest part comes first, in full blocks, and the bar of a hundred columns has one for each percent.
    assert len(re.match("█+", shown[1])[0]) == round(100 * largest)  # type: ignore[index]
    assert f" {largest:.1%}" in shown[2]


@pytest.mark.parametrize(
    ("words", "title"),
    [
        ("sweep none --die-area 400:800:100mm2 --power 700W -q", "FLOP/$, more is better"),
        ("sweep none --die-area 400,800mm2 --power 500,700W -q", "power of the package, W (down) by die, mm2 (across)"),
        ("sweep none --die-area 400,800mm2 --power 500,700W --chiplets 1,2 -q", "o Pareto-optimal"),
        ("sweep none --die-area 800mm2 --power 700W --node N7,N5 --objective usd_per_gpu -q", ""),
        ("design study --node N7,N5 --area 814mm2 --power 700W -q", "fp16 peak"),
        ("design area --die ga100 -q", "ga100, 858.3 mm2"),
        ("design area", "area of a die"),
        ("cost dgx-h100 -q", "GPU-hour, $"),
        ("cost dgx-h100 --breakdown package", "package, $"),
        ("list nodes -q", ""),
    ],
)
def test_verbs_draw_what_they_answer(words: str, title: str, cli: Cli) -> None:
    plain, drawn = (cli(*words.split(), *more) for more in ([], ["--plot"]))
    assert plain.returncode == drawn.returncode == 0
    assert drawn.stdout.startswith(plain.stdout)
    assert title in drawn.stdout[len(plain.stdout) :]


@pytest.mark.parametrize(
    "words",
    [
        "cost dgx-h100",
        "sweep none --die-area 400,800mm2 --power 500,700W -q",
        "size {model} --system dgx-h100 --target-rps 10 --isl 64 --osl 16 --tp 1 --pp 1 -q",
        "estimate {model} --phase serve --system dgx-h100 --isl 64 --osl 16 -q",
    ],
)
def test_charts_are_files_by_suffix(words: str, data: Path, cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="charts need slipstick[report]")
    given = words.format(model=data / "configs" / "tiny-llama.json").split()
    picture = tmp_path / "a.svg"
    assert cli(*given, "-o", str(picture)).returncode == 0
    assert picture.read_text(encoding="utf-8").startswith("<svg")


def test_own_defaults_are_of_tables_alone(
    step: list[str], cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "slipstick.toml").write_text('[defaults]\nplot = true\nsystem = "dgx-h100"\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert SHADES.search(cli(*step).stdout)
    assert cli(*step, "-o", "x.json").returncode == 0
    # A sweep makes its systems: that of the defaults is not its own.
    assert cli("sweep", "none", "--die-area", "800mm2", "--power", "700W", "-q").returncode == 0
