"""`slipstick calibrate --device`: what is refused before anything is measured."""

from pathlib import Path

import pytest

from slipstick.cli import run


def test_measuring_takes_no_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", "--device", "cpu", "--from", "gemm.csv", "-o", str(tmp_path)]) == 2
    assert "leave out --from" in capsys.readouterr().err


def test_measuring_writes_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", "--device", "cpu", "-o", "cpu.yaml"]) == 2
    assert "give a folder" in capsys.readouterr().err


def test_an_unknown_device_is_named_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", "--device", "cpi", "-o", "here"]) == 2
    assert "allowed: cpu, cuda" in capsys.readouterr().err


def test_something_must_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", "-o", "here"]) == 2
    assert "--from FILE.csv, or --device" in capsys.readouterr().err


def test_what_chooses_rows_of_tables_is_not_ignored(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", "--device", "cpu", "--joint", "--where", "m=1", "-o", "here"]) == 2
    assert "leave out --where, --joint" in capsys.readouterr().err


def test_a_file_in_place_of_the_folder_is_refused_before_measuring(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").write_text("mine")
    assert run(["calibrate", "--device", "cpu", "-o", str(tmp_path / "here")]) == 2
    assert "is a file and not a folder" in capsys.readouterr().err
    assert (tmp_path / "here").read_text() == "mine"
