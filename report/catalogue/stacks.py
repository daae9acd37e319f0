"""Software stacks of the catalogue: a line each, and every number of one with its unit and source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING

from ..columns import in_columns

if TYPE_CHECKING:
    from ...backends.machine.files.records import NumberRecord
    from ...backends.machine.software.stack import StackConstants
    from ...backends.machine.software.stack_record import FitRecord

Record = Mapping[str, object]


def stacks() -> list[Record]:
    """Return the stacks of the catalogue, in short."""
    from ...backends.machine.load import load_stack, stack_names
    from ...backends.machine.software.stack_record import fit_records

    return [_short(load_stack(name), fit_records(name)) for name in stack_names()]


def _short(stack: StackConstants, fits: Sequence[FitRecord]) -> Record:
    return {
        "name": stack.name,
        "as_of": stack.as_of or None,
        "phases": stack.phases,
        "kernels": stack.decides.kernels,
        "library": stack.library,
        "host_layer_s": stack.host.layer_s,
        "overlap": [f"{axis} {share:g}" for axis, share in asdict(stack.overlap).items() if share],
        "fitted_to": sorted({name for fit in fits for name in fit.data_sets}),
    }


def stack_record(name: str) -> tuple[str, Record, Sequence[NumberRecord]]:
    """Return a title, everything as raw numbers, and every number as written, of one stack by name or path."""
    from ...backends.machine.load import load_stack, stack_numbers
    from ...backends.machine.software.stack_record import fit_records

    stack, fits = load_stack(name), fit_records(name)
    written = {number.path: number for number in stack_numbers(name)}
    # Numbers of no section stand first, as one part.
    numbers = sorted({**{n.path: n for n in _usual(stack)}, **written}.values(), key=lambda n: _order(n.path))
    # What is no number.
    said = ("name", "as_of", "version_of", "versions", "since", "until")
    chosen = {f.name: getattr(stack, f.name) for f in fields(stack) if f.name not in said}
    chosen |= {"phases": ", ".join(stack.phases), **asdict(stack.decides)}
    rows = [
        [key, (value if isinstance(value, str) else "yes" if value else "no")]
        for key, value in chosen.items()
        if isinstance(value, str | bool)
    ]
    lines = [f"{stack.name}: software{f' as of {stack.as_of}' if stack.as_of else ''}", "", in_columns(rows)]
    return (
        "\n".join([*lines, "", *map(_fit, fits)] if fits else lines),
        {**asdict(stack), "fits": [asdict(fit) for fit in fits]},
        numbers,
    )


def _order(path: str) -> tuple[int, str]:
    parts = ("", "host", "overlap", "slowdown", "kernel_slowdown", "network", "chips")
    section = path.partition(".")[0] if "." in path else ""
    return parts.index(section), section


def _fit(fit: FitRecord) -> str:
    part = "half of the configurations of " if fit.split == "half" else ""
    judged = "" if fit.judged_median is None else f"; {fit.judged_median:.1%} on {fit.num_judged} rows that judge"
    sets = ", ".join(fit.data_sets)
    return f"{fit.stack} is fitted to {part}{sets}: median error {fit.median:.1%} on {fit.num_fitted} rows{judged}"


def _usual(stack: StackConstants) -> Iterator[NumberRecord]:
    """Numbers that a stack has whether or not a file gives them."""
    from ...backends.machine.files.records import NumberRecord
    from ...backends.machine.software.stack_limits import MOVABLE

    for at in MOVABLE.values():
        value, dimension = at.of(stack), "s" if at.unit else "1"
        yield NumberRecord(
            at.path, value / at.scale, at.unit, value, dimension, "no file gives it: the usual", "estimated", None
        )
