"""Spaces of servers as text, and what their files hold: what tells one search from another."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path

import yaml

from ..machine import Machine
from ..machine import contents as of_machines
from .space import ServingSpace


def space_text(space: ServingSpace) -> str:
    """Return a space as YAML, without what is as usual."""
    usual = {f.name: f.default for f in fields(ServingSpace)}
    given = {name: value for name, value in asdict(space).items() if value != usual[name]}
    given["systems"] = [_said(machine) for machine in space.systems]
    return str(yaml.safe_dump({name: _plain(value) for name, value in given.items()}, sort_keys=False))


def _said(machine: Machine) -> str | dict[str, object]:
    """A system by its name alone, where nothing else is said of it."""
    usual = asdict(Machine(name=machine.name))
    given = {name: _plain(value) for name, value in asdict(machine).items() if value != usual[name]}
    return {"name": machine.name, **given} if given else machine.name


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def contents(space: ServingSpace) -> Iterator[str]:
    """Yield the digests of all files that a space names: what they hold is part of what is searched."""
    yield from of_machines(space.systems)
    for name in (space.model, *space.engines):
        if Path(name).suffix and Path(name).is_file():
            yield hashlib.sha256(Path(name).read_bytes()).hexdigest()
