"""Commands without a home, with closed or full streams, odd letters and little memory: an answer or an error."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from slipstick.ir.errors import ParseError
from slipstick.ir.host import folders
from slipstick.ir.text.files import write_whole
from slipstick.ir.text.formats import read_json, read_yaml
from slipstick.report.charts.chart import drawable

SLIPSTICK = f"{shlex.quote(sys.executable)} -m slipstick"
COST = "cost dgx-h100 -q"
# Read by Python as it starts: no user has an entry, as in a container that runs under a number of its own.
NOBODY = """
import pwd
def refuse(key): raise KeyError(key)
pwd.getpwuid = pwd.getpwnam = refuse
"""
_HOMES = ("HOME", "USER", "LOGNAME", "SLIPSTICK_CACHE", "SLIPSTICK_RUNS", "XDG_CACHE_HOME", "XDG_STATE_HOME")


def shell(command: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        cwd=folder,
        env={**os.environ, **variables},
        check=False,
        encoding="utf-8",
        errors="strict",
    )
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The variables of a user without a home; temporary folders lie in one of the test."""
    pytest.importorskip("pwd")
    for name in _HOMES:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(NOBODY, encoding="utf-8")
    return {"PYTHONPATH": str(tmp_path / "site"), "TMPDIR": str(tmp_path)}


def test_without_a_home_verbs_answer_and_one_line_says_where_things_are(tmp_path: Path, nobody: dict[str, str]) -> None:
    line = (
        f"there is no home folder: caches and runs are kept in '{tmp_path}/slipstick-{os.getuid()}'; "
        "set HOME to a folder that can be written\n"
    )
    for command, told in (("list metrics", ""), (COST, line)):
        done = shell(f"{SLIPSTICK} {command}", tmp_path, **nobody)
        assert (done.returncode, done.stderr) == (0, told)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs users")
@pytest.mark.parametrize("kind", ["ours", "open", "link", "file"])
def test_a_temporary_home_that_others_may_enter_is_not_used(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(folders, "home_folder", lambda: None)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    place = tmp_path / f"slipstick-{os.getuid()}"
    if kind == "open":
        place.mkdir()
        place.chmod(0o777)
    elif kind == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        place.symlink_to(tmp_path / "elsewhere")
    elif kind == "file":
        place.touch()
    folders._temporary_home.cache_clear()
    try:
        found = folders.user_folder("XDG_CACHE_HOME", ".cache")
    finally:
        folders._temporary_home.cache_clear()
    assert found == (place if kind == "ours" else Path(os.devnull)) / ".cache"


@pytest.mark.parametrize(
    "command", ["report - <&-", "import - <&-", "compare - nothing.json <&-", "report - 0>/dev/null"]
)
def test_stdin_that_cannot_be_read_is_wrong_usage(command: str, tmp_path: Path) -> None:
    done = shell(f"{SLIPSTICK} {command}", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(("error: stdin is closed; name a file", "error: stdin cannot be read: "))


def test_a_file_is_never_taken_for_a_stream_that_is_closed(tmp_path: Path) -> None:
    done = shell(f"{SLIPSTICK} {COST} -o a.json <&- >&- 2>&-", tmp_path)
    assert done.returncode == 0
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["schema"]


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs a device that is always full")
@pytest.mark.parametrize(("command", "code"), [(f"{COST} -o /dev/full", 2), ("cost nothing 2>/dev/full", 2)])
def test_a_full_device_keeps_the_exit_code(command: str, code: int, tmp_path: Path) -> None:
    assert shell(f"{SLIPSTICK} {command}", tmp_path).returncode == code


@pytest.mark.parametrize("place", ["/dev/full", "/proc/self"])
def test_a_cache_that_cannot_be_written_costs_no_answer(place: str, tmp_path: Path) -> None:
    done = shell(f"{SLIPSTICK} {COST}", tmp_path, SLIPSTICK_CACHE=place)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("encoding", ["ascii:strict", "latin1:strict", "utf-8:strict"])
def test_letters_that_a_stream_lacks_are_written_out(encoding: str, tmp_path: Path) -> None:
    name = r"$'a\xff\xe9b'"
    done = shell(f"{SLIPSTICK} show system {name}", tmp_path, PYTHONIOENCODING=encoding, LC_ALL="C")
    assert done.returncode == 2
    assert done.stderr.startswith(r"error: unknown system 'a\udcff\udce9b'; ")


def test_half_a_letter_is_refused_in_files_and_written_out_elsewhere(tmp_path: Path) -> None:
    assert read_json(r'["\ud83d\ude00", "\\ud800"]', "a.json") == ["\U0001f600", r"\ud800"]
    for text in (r'["a", "\ud800"]', r'["\udc00\ud800"]', r'{"\\\uDFFF": 1}'):
        with pytest.raises(ParseError, match=r"a\.json:1: half of a character in a text"):
            read_json(text, "a.json")
    with pytest.raises(ParseError, match=r"a\.yaml:1: a control character in a text: \\ud800"):
        read_yaml(r'a: "x\ud800y"', "a.yaml")
    write_whole(tmp_path / "a.txt", "a\udcffb")
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == r"a\udcffb"


@pytest.mark.skipif(not drawable(), reason="charts need slipstick[report]")
@pytest.mark.skipif(sys.platform != "linux", reason="limits addresses")
def test_the_end_of_what_draws_is_an_error_by_name(tmp_path: Path) -> None:
    done = shell(f"ulimit -c 0 -v 9000000; {SLIPSTICK} {COST} -o a.svg", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: the process that draws charts ended by SIG")
    assert "ulimit -v unlimited" in done.stderr
    assert not (tmp_path / "a.svg").exists()
