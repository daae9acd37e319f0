"""The supply chain: a lock that says what the constraints say, and archives of the same bytes on any machine."""

from __future__ import annotations

import io
import re
import tarfile
from pathlib import Path

from slipstick.benchmarks.release import repack_archive

ROOT = Path(__file__).resolve().parents[2]


def _pins(name: str) -> dict[str, str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    found = re.findall(r"^([A-Za-z0-9_.-]+)==([^\s+]+)", text, flags=re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", package).lower(): version for package, version in found}


def test_the_lock_pins_what_the_constraints_pin() -> None:
    assert _pins("requirements.lock") == _pins("constraints.txt")


def test_every_pin_of_the_lock_has_hashes() -> None:
    entries = re.split(r"\n(?=\S)", (ROOT / "requirements.lock").read_text(encoding="utf-8").strip())
    assert [entry for entry in entries if not re.search(r"--hash=sha256:[0-9a-f]{64}(\s|$)", entry)] == []


def _archive(names: list[str], mtime: int, owner: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.uname, member.mode = len(name), mtime, owner, 0o600
            tar.addfile(member, io.BytesIO(name.encode()))
    return out.getvalue()


def test_an_archive_depends_on_what_is_in_it_alone() -> None:
    first = repack_archive(_archive(["p-1/a", "p-1/b"], 5, "me"), 1_000, b"{}")
    second = repack_archive(_archive(["p-1/b", "p-1/a"], 77, "you"), 1_000, b"{}")
    assert first == second
    with tarfile.open(fileobj=io.BytesIO(first)) as tar:
        assert tar.getnames() == ["p-1/a", "p-1/b", "p-1/sbom.cdx.json"]
        assert {(member.mtime, member.uname) for member in tar.getmembers()} == {(1_000, "")}
