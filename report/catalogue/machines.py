"""Systems, chips, networks and stacks of the catalogue: as records, and every number with its unit and source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING

from ...ir.text.json_text import json_text
from ..columns import in_columns
from ..numbers import by_origin, named, shown_value
from .engines import engine_record
from .packages import machine_lines, package_text
from .stacks import stack_record

if TYPE_CHECKING:
    from ...backends.machine.files.records import NumberRecord
    from ...backends.network.topology.level import NetworkLevel
from ...backends.machine.chip import Chip
from ...backends.machine.system import System

# What JSON shows: numbers are raw, in SI units; the end of a key says which.
Record = Mapping[str, object]
Rows = list[list[str]]


def systems() -> list[Record]:
    """Return the systems of the catalogue."""
    from ...backends.machine.load import load_system, system_names

    return [
        {
            "name": s.name,
            "chip": s.chip.name,
            "gpus_a_node": s.node_size,
            "bf16_peak_flop_per_s": s.chip.peak_flop_per_s.bf16,
            "hbm_capacity_bytes": s.chip.hbm_bytes,
            "hbm_bandwidth_bytes_per_s": s.chip.hbm_bytes_per_s,
            "network": [level.name for level in s.levels],
        }
        for s in map(load_system, system_names())
    ]


def chips() -> list[Record]:
    """Return the chips of the catalogue."""
    from ...backends.machine.load import chip_names, load_chip

    return [_chip(name, load_chip(name)[0]) for name in chip_names()]


def _chip(name: str, chip: Chip) -> Record:
    peaks = chip.peak_flop_per_s
    return {
        "name": name,
        "num_sms": chip.num_sms,
        "bf16_peak_flop_per_s": peaks.bf16,
        "fp8_peak_flop_per_s": peaks.fp8,
        "hbm_capacity_bytes": chip.hbm_bytes,
        "hbm_bandwidth_bytes_per_s": chip.hbm_bytes_per_s,
        "power_w": chip.power_w,
    }


def networks() -> list[Record]:
    """Return the networks of the catalogue."""
    from ...backends.machine.load import load_network, network_names

    return [_network(name, load_network(name)[0]) for name in network_names()]


def _network(name: str, levels: Sequence[NetworkLevel]) -> Record:
    return {
        "name": name,
        "levels": [level.name for level in levels],
        "topology": [level.topology for level in levels],
        "outer_bandwidth_bytes_per_s": levels[-1].bytes_per_s,
    }


def show_machine(
    kind: str, name: str, overrides: Sequence[str], as_json: bool, columns: int | None, constants: bool = True
) -> str:
    """Return every number of a system, chip, network, stack or engine with its unit, how sure it is, and its source.

    Constants of kernels, of which there are many, are counted only, unless asked for; JSON has them all.
    """
    title, record, numbers = _READERS[kind](name, overrides)
    if as_json:
        return json_text({**record, "numbers": [asdict(n) for n in numbers]}, indent=2)
    silicon = [n for n in numbers if constants or not n.path.startswith("calibration.")]
    return f"{title}\n\n{numbers_text(silicon, columns)}{_left_out([n for n in numbers if n not in silicon])}"


def _left_out(numbers: Sequence[NumberRecord]) -> str:
    kinds = {n.path.rpartition(".")[0] for n in numbers}
    return f"\n\ncalibration: {len(numbers)} constants of {len(kinds)} kinds of kernels (--constants)" if kinds else ""


def _of_system(name: str, overrides: Sequence[str]) -> tuple[str, Record, Sequence[NumberRecord]]:
    from ...backends.machine.load import load_system, system_numbers

    system = load_system(name, overrides)
    title = "\n".join([_title(system), *machine_lines(system)])
    return title, {"name": system.name, "chip": system.chip.name}, system_numbers(system)


def _title(system: System) -> str:
    levels = ", ".join(f"{v.name} ({v.topology}, {v.size or 'any number'})" for v in system.levels)
    return (
        f"{system.name}: {system.chip.name}, {system.node_size} a node; {levels}; "
        f"software {system.stack.name}; constants {system.kernels.name}"
    )


def _of_chip(name: str, overrides: Sequence[str]) -> tuple[str, Record, Sequence[NumberRecord]]:
    from ...backends.machine.load import load_chip, load_package

    chip, numbers = load_chip(name)
    package = load_package(name)
    shown = "" if package is None else f"\npackage: {package_text(package)}"
    return f"{name}: {chip.name}{shown}", {"name": name, "chip": chip.name}, numbers


def _of_network(name: str, overrides: Sequence[str]) -> tuple[str, Record, Sequence[NumberRecord]]:
    from ...backends.machine.load import load_network

    levels, numbers = load_network(name)
    shown = ", ".join(f"{v.name} ({v.topology}, {v.size or 'any number'})" for v in levels)
    return f"{name}: {shown}", {"name": name, "levels": [v.name for v in levels]}, numbers


def _of_stack(name: str, overrides: Sequence[str]) -> tuple[str, Record, Sequence[NumberRecord]]:
    return stack_record(name)


def _of_engine(name: str, overrides: Sequence[str]) -> tuple[str, Record, Sequence[NumberRecord]]:
    return engine_record(name)


_READERS: Mapping[str, Callable[[str, Sequence[str]], tuple[str, Record, Sequence[NumberRecord]]]] = MappingProxyType(
    {"systems": _of_system, "chips": _of_chip, "networks": _of_network, "stacks": _of_stack, "engines": _of_engine}
)
MACHINES = tuple(_READERS)


def numbers_text(numbers: Iterable[NumberRecord], columns: int | None = None) -> str:
    """Write a number a line, parts of a machine apart; constants of kernels a kind a line."""
    parts = groupby(numbers, key=lambda n: _part(n.path))
    tables = [list(_constants(found) if part == "calibration" else map(_row, found)) for part, found in parts]
    rows = [row for table in tables for row in table]
    lines = in_columns(rows, columns).splitlines() if rows else []
    return "\n".join(_apart(lines, tables, columns))


def _apart(lines: Sequence[str], tables: Sequence[Rows], columns: int | None) -> Iterator[str]:
    """Put a blank line before the first line of each part but the first."""
    starts = {table[0][0] for table in tables[1:]}
    for line in lines:
        if line.split("  ")[0] in starts:
            yield ""
        yield line


def _part(path: str) -> str:
    """The part of a machine that a number is shown with: a level of the network, else what its path begins with."""
    keys = path.split(".")
    return ".".join(keys[:2]) if keys[0] in ("network", "levels") else keys[0] if len(keys) > 1 else ""


def _row(number: NumberRecord) -> list[str]:
    return [number.path, shown_value(number), number.confidence, number.source]


def _constants(numbers: Iterable[NumberRecord]) -> Iterator[list[str]]:
    """Constants of a kind that have one source, in one row."""
    for (kind, confidence, source), found in by_origin(numbers).items():
        yield [kind, "", confidence, f"{named(found)}: {source}"]
