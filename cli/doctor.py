"""`slipstick doctor`: which versions run here, where things are kept, what is missing and how to get it."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

import click

from ..ir.records import dataclass
from ..ir.text.json_text import json_text
from .flags.numbers import Named

# `numpy>=2.0`, `optuna>=5; extra == "search"`: a name, the least version, and the extra that asks for it.
_REQUIREMENT = re.compile(r"([\w.-]+)\s*(?:>=\s*([0-9.]+))?[^;]*(?:;.*extra == [\"'](\w+)[\"'])?")
# Extras that developers need alone.
_OF_DEVELOPERS = ("dev", "docs")


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the answer.

    Attributes:
        what: a package or a folder.
        found: its version, or where it is; empty where there is none.
        is_needed: whether the product works without it only in part.
        mend: what to do; empty where all is well.
    """

    what: str
    found: str
    is_needed: bool
    mend: str = ""


@click.command("doctor")
@click.option(
    "--format", "form", type=Named(("table", "json")), default="table", show_default=True, help="Output format."
)
def doctor_command(form: str) -> int:
    """Check this installation: versions, extras, folders; exit code 5 when something needed is missing."""
    found = [*_packages(), *_folders()]
    if form == "json":
        click.echo(json_text([asdict(finding) for finding in found], indent=2))
    else:
        wide = max(len(finding.what) for finding in found)
        for finding in found:
            state = finding.found or "missing"
            click.echo(f"{finding.what:<{wide}}  {state}{f'; {finding.mend}' if finding.mend else ''}")
    return 5 if any(finding.mend and finding.is_needed for finding in found) else 0


def _packages() -> Iterator[Finding]:
    """Yield Python, ourselves, and every package that we ask for, by name or by extra."""
    yield Finding("python", f"{platform.python_version()} ({sys.executable})", True)
    ours = distribution("slipstick")
    yield Finding("slipstick", f"{ours.version} ({Path(__file__).parents[1]})", True)
    seen = set[str]()
    for requirement in ours.requires or ():
        match = _REQUIREMENT.match(requirement)
        assert match is not None  # any text begins with a name
        name, least, extra = match.groups()
        if extra in _OF_DEVELOPERS or name in seen:
            continue
        seen.add(name)
        install = f"pip install '{f'slipstick[{extra}]' if extra else name + (f'>={least}' if least else '')}'"
        try:
            has = version(name)
        except PackageNotFoundError:
            yield Finding(name, "", extra is None, install)
            continue
        old = least is not None and _numbers(has) < _numbers(least)
        yield Finding(name, has, extra is None, f"{least} or newer is needed: {install}" if old else "")


def _numbers(text: str) -> tuple[int, ...]:
    """Return the release of a version as numbers.

    >>> _numbers("2.13.0+cpu"), _numbers("2.13") <= _numbers("2.13.0")
    ((2, 13, 0), True)
    """
    release = re.match(r"[0-9]+(?:\.[0-9]+)*", text)
    return tuple(map(int, release[0].split("."))) if release else ()


def _folders() -> Iterator[Finding]:
    """Yield the folders of graphs and of runs, with what lies in them."""
    from ..explore.runs.runs import LedgerFolder
    from ..frontend.cache import GraphCache

    for what, variable, folder in (
        ("cache of graphs", "SLIPSTICK_CACHE", GraphCache.default().folder),
        ("runs of searches", "SLIPSTICK_RUNS", LedgerFolder.default().folder),
    ):
        there = next(path for path in (folder, *folder.parents) if path.exists())
        files = [path for path in folder.rglob("*") if path.is_file()] if folder.exists() else []
        size = sum(path.stat().st_size for path in files) / 2**20
        mend = "" if os.access(there, os.W_OK) else f"it cannot be written: set {variable} to a folder that can"
        yield Finding(what, f"{folder} ({len(files):,} files, {size:,.1f} MiB)", False, mend)
