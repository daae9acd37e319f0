"""`python -m benchmarks.release FOLDER [--sbom FILE]`: the wheel and the archive of a release, each built twice.

Both carry the time of the last commit, so that anyone who builds this commit gets these bytes. Exit code 1 where the
two builds differ.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"


def main() -> None:
    """Build a release twice and keep it where both builds have the same bytes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.release", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sbom", type=Path, help="put into the archive as sbom.cdx.json")
    given = parser.parse_args()
    sbom = given.sbom.read_bytes() if given.sbom else None
    first, second = build_release(sbom), build_release(sbom)
    if different := sorted(name for name in first | second if first.get(name) != second.get(name)):
        sys.exit(f"two builds differ: {', '.join(different)}")
    given.folder.mkdir(parents=True, exist_ok=True)
    for name, data in first.items():
        (given.folder / name).write_bytes(data)
        print(given.folder / name)


def build_release(sbom: bytes | None) -> dict[str, bytes]:
    """Build the last commit in a folder of its own, and return the bytes of the wheel and of the archive by name."""
    epoch_s = int(_git("log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory() as folder:
        source, dist = Path(folder, "source"), Path(folder, "dist")
        with tarfile.open(fileobj=io.BytesIO(_git("archive", "HEAD"))) as tar:
            tar.extractall(source, filter="data")
        dist.mkdir()
        environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch_s)}
        for kind in ("build_sdist", "build_wheel"):
            command = [sys.executable, "-c", _BUILD, kind, str(dist)]
            subprocess.run(command, cwd=source, env=environment, check=True, capture_output=True)
        for archive in dist.glob("*.tar.gz"):
            archive.write_bytes(repack_archive(archive.read_bytes(), epoch_s, sbom))
        found = {path.name: path.read_bytes() for path in dist.iterdir()}
    return found


def repack_archive(data: bytes, epoch_s: int, sbom: bytes | None) -> bytes:
    """Return a .tar.gz with its files in order, of one time and of nobody, and with the list of what is installed."""
    tarred = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(data)) as old,
        tarfile.open(fileobj=tarred, mode="w", format=tarfile.GNU_FORMAT) as new,
    ):
        top = old.getnames()[0].split("/")[0]
        files = {member.name: (member, old.extractfile(member)) for member in old.getmembers()}
        if sbom is not None:
            member = tarfile.TarInfo(f"{top}/sbom.cdx.json")
            member.size = len(sbom)
            files[member.name] = (member, io.BytesIO(sbom))
        for _, (member, content) in sorted(files.items()):
            member.pax_headers, member.mtime = {}, epoch_s
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(member, content)
    return gzip.compress(tarred.getvalue(), mtime=epoch_s)


def _git(*words: str) -> bytes:
    return subprocess.run(["git", "-C", ROOT, *words], check=True, stdout=subprocess.PIPE).stdout


if __name__ == "__main__":
    main()
