"""Spaces of servers as YAML, and back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import cast

import yaml

from ...ir.errors import UnknownNameError, UsageError
from .serving_space import Machine, ServingSpace


def space_text(space: ServingSpace) -> str:
    """Return a space as YAML, without what is as usual; `read_space` reads it."""
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


def read_space(text: str) -> ServingSpace:
    """Read a space of servers: its fields by their names, a system by its name or as a mapping.

    UsageError lists all that is wrong; UnknownNameError names the nearest for a key that there is not.

    >>> read_space("{model: llama-3.1-8b, systems: [dgx-h100], gpus: 8, prompt: 1000, output: 200, tp: [1, 2]}").tp
    (1, 2)
    """
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"a space of servers is not YAML: {error}") from None
    if not isinstance(found, dict):
        raise UsageError("a space of servers is a mapping: model, systems, gpus, prompt, output, ...")
    given = cast("dict[str, object]", found)
    _check_keys("space of servers", given, {f.name for f in fields(ServingSpace)})
    systems = given.get("systems")
    if isinstance(systems, list):
        given = {**given, "systems": [_machine(one) for one in systems]}
    return _checked(given)


def _machine(given: object) -> object:
    if isinstance(given, str):
        return {"name": given}
    if isinstance(given, dict):
        _check_keys("system of a space", cast("dict[str, object]", given), {f.name for f in fields(Machine)})
    return given


def _check_keys(what: str, given: Mapping[str, object], known: set[str]) -> None:
    for key in given:
        if key not in known:
            raise UnknownNameError.of(f"key of a {what}", str(key), known)


def _checked(given: Mapping[str, object]) -> ServingSpace:
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(ServingSpace).validate_python(given)
    except ValidationError as error:
        faults = [(".".join(map(str, f["loc"])), f["msg"].removeprefix("Value error, ")) for f in error.errors()]
        told = "; ".join(f"{path}: {message}" if path else message for path, message in faults)
        raise UsageError(f"space of servers: {told}") from None


def contents(space: ServingSpace) -> Iterator[str]:
    """Yield the digests of all files that a space names: what they hold is part of what is searched."""
    of_systems = (word for m in space.systems for word in (m.name, m.stack, m.calibration, m.prices))
    for name in (space.model, *space.engines, *of_systems):
        path = None if name is None else Path(name)
        if path is not None and path.suffix and path.is_file():
            yield hashlib.sha256(path.read_bytes()).hexdigest()
