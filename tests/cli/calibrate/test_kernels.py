"""`slipstick calibrate` on the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Cli = Callable[..., CompletedProcess[str]]
MEMORY = "tests/validation/memory.csv"


@pytest.fixture
def memory() -> str:
    return str(Path(__file__).parents[2] / "validation" / "memory.csv")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-o", "x.yaml"), "--from"),
        (("--from", "TABLE"), "--output"),
        (("--from", "TABLE", "-o", "x.yaml"), "no constants are fitted to a table of kind memory"),
        (("--from", "TABLE", "-o", "x.yaml", "--part", "hafl"), "half"),
        (("--from", "absent.csv", "-o", "x.yaml"), "cannot read"),
        (("--from", "TABLE", "--where", "datset=x", "-o", "x.yaml"), "dataset"),
        (("--from", "TABLE", "-o", "x.yaml", "--quick", "--check"), "--quick, --check: only with --device"),
    ],
)
def test_mistakes_are_answered_and_nothing_is_written(
    cli: Cli, memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = cli("calibrate", *(memory if w == "TABLE" else w for w in words))
    assert done.returncode == 2
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("held", "said"), [(b"a: [", "old.yaml:2: is not YAML"), (b"\xff\xfe", "old.yaml:1: it is not UTF-8 text")]
)
def test_a_file_that_is_no_calibration_is_refused_before_the_fit_and_stays(
    cli: Cli, memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: bytes, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.yaml").write_bytes(held)
    done = cli("calibrate", "--from", memory, "-o", "old.yaml")
    assert (done.returncode, Path("old.yaml").read_bytes()) == (4, held)
    assert said in done.stderr
