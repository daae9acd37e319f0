"""What is no regular file is refused at once; what is too large is not read."""

from __future__ import annotations

import gzip
import io
import os
import socket
import sys
import time
from pathlib import Path

import pytest

from slipstick.cli import run
from slipstick.ir.errors import ParseError
from slipstick.ir.text.untrusted import open_regular, read_bytes, read_settings, read_stdin, read_text

posix = pytest.mark.skipif(os.name != "posix", reason="pipes and devices are those of POSIX")


def test_a_file_is_read_and_unpacked(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfgr\xc3\xbcn\r\n")
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"text"))
    assert read_text(tmp_path / "a.txt") == "grün\r\n"
    assert read_bytes(tmp_path / "a.gz") == b"text"
    with open_regular(tmp_path / "a.txt") as file:
        assert file.read(3) == b"\xef\xbb\xbf"


def test_what_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    with path.open("wb") as file:
        file.truncate(4_000_001)
    with pytest.raises(ParseError, match=r"a.yaml: 4,000,001 bytes; at most 4,000,000 are read; SLIPSTICK_LIMITS=N"):
        read_settings(path)
    assert len(read_text(path)) == 4_000_001


def test_the_line_of_what_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(ParseError, match=r"a.yaml:2: it is not UTF-8 text: invalid start byte"):
        read_text(tmp_path / "a.yaml")


def test_what_the_system_says(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "nowhere")
    with pytest.raises(IsADirectoryError) as error:
        read_bytes(tmp_path)
    assert error.value.filename == str(tmp_path)


@posix
@pytest.mark.parametrize("kind", ["a pipe", "a device", "a socket"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("x.yaml")
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a device":
        path.symlink_to("/dev/zero")
    else:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    start = time.monotonic()
    with pytest.raises((ParseError, OSError), match=kind if kind != "a socket" else "No such device"):
        read_bytes(path)
    assert time.monotonic() - start < 1


@posix
@pytest.mark.parametrize(
    "words",
    [
        ["estimate", "llama-3.1-8b", "--system", "x.yaml"],
        ["estimate", "llama-3.1-8b", "--system", "dgx-h100", "--stack", "x.yaml"],
        ["estimate", "llama-3.1-8b", "--system", "dgx-h100", "--calibration", "x.yaml"],
        ["estimate", "llama-3.1-8b", "--system", "dgx-h100", "--tp", "2", "--gpus", "2", "--tp-plan", "x.yaml"],
        ["estimate", "llama-3.1-8b", "--system", "dgx-h100", "--phase", "serve", "--engine", "x.yaml"],
        ["estimate", "llama-3.1-8b", "--system", "dgx-h100", "--phase", "serve", "--serve", "x.csv"],
        ["estimate", "--plan", "x.yaml"],
        ["estimate", "x.json", "--system", "dgx-h100"],
        ["estimate", "x.graph", "--system", "dgx-h100"],
        ["estimate", "x.graph.gz", "--system", "dgx-h100"],
        ["cost", "dgx-h100", "--prices", "x.yaml"],
        ["search", "llama-3.1-8b", "--space", "x.yaml"],
        ["trace", "x.onnx"],
        ["trace", "x.pt2"],
        ["compare", "x.json", "x.json"],
        ["report", "x.json"],
        ["validate", "x.csv"],
        ["validate", "x.json"],
        ["import", "x.yaml"],
        ["calibrate", "--from", "x.csv", "-o", "out.yaml"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_no_verb_waits_for_a_pipe(
    words: list[str], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for suffix in ("yaml", "json", "csv", "graph", "graph.gz", "onnx", "pt2"):
        if kind == "pipe":
            os.mkfifo(f"x.{suffix}")
        else:
            Path(f"x.{suffix}").symlink_to("/dev/zero")
    assert run(words) in (2, 4)
    assert "x." in capsys.readouterr().err


def test_stdin_is_text_of_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    def given(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    given(b"12345")
    assert read_stdin() == "12345"
    given(b"12345")
    with pytest.raises(ParseError, match="stdin: more than 4 bytes"):
        read_stdin(4)
    given(b"\xff")
    with pytest.raises(ParseError, match="stdin:1: it is not UTF-8"):
        read_stdin()
