"""`slipstick doctor`: what is found, what is missing, and the exit code that says so."""

import json
from contextlib import redirect_stdout
from importlib.metadata import PackageNotFoundError, distribution, version
from io import StringIO
from pathlib import Path

import pytest

from slipstick.cli import doctor, run

Record = dict[str, object]


def asked() -> tuple[int, dict[str, Record]]:
    with redirect_stdout(StringIO()) as text:
        code = run(["doctor", "--format", "json"])
    found: list[Record] = json.loads(text.getvalue())
    return code, {str(record["what"]): record for record in found}


def test_every_package_that_is_asked_for_is_named_with_its_version() -> None:
    code, found = asked()
    assert code == 0
    assert found["torch"]["found"] == version("torch")
    asked_for = distribution("slipstick").requires or ()
    requirements = [r for r in asked_for if not any(f'extra == "{extra}"' in r for extra in ("dev", "docs"))]
    assert all(any(r.lower().startswith(name) for name in found) for r in requirements)


def test_what_is_missing_or_old_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(name: str) -> str:
        if name in ("optuna", "onnx"):
            raise PackageNotFoundError(name)
        return "1.0" if name == "ray" else version(name)

    monkeypatch.setattr(doctor, "version", other)
    code, found = asked()
    assert code == 5
    assert found["optuna"]["mend"] == "pip install 'slipstick[search]'"
    assert str(found["onnx"]["mend"]).startswith("pip install 'onnx>=")
    assert "or newer is needed" in str(found["ray"]["mend"])


def test_an_extra_that_is_missing_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(name: str) -> str:
        if name == "optuna":
            raise PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(doctor, "version", other)
    code, found = asked()
    assert (code, found["optuna"]["found"]) == (0, "")


def test_folders_say_what_lies_in_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a.graph").write_text("x" * 2**20, encoding="utf-8")
    monkeypatch.setenv("SLIPSTICK_CACHE", str(tmp_path))
    assert asked()[1]["cache of graphs"]["found"] == f"{tmp_path} (1 files, 1.0 MiB)"
