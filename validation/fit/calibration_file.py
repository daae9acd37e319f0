"""Fitted constants into the text of a calibration; what was not fitted stays as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeAlias, cast

import yaml

from ...backends.kernels.constants import read_constants
from ...ir.units import format_si
from ..rows.split import HALF, RULE
from .calibrate import KindFit

if TYPE_CHECKING:
    from ...backends.machine.files.system_tree import Tree

Record: TypeAlias = "dict[str, Tree]"
_DIGITS = 4


class _Dumper(yaml.SafeDumper):
    """Mappings a line a key, lists in one line."""


_Dumper.add_representer(list, lambda dumper, items: dumper.represent_sequence("tag:yaml.org,2002:seq", items, True))


def updated(tree: Mapping[str, Tree], fits: Sequence[KindFit], tool: str, name: str) -> Record:
    """Return the tree of a calibration with the kinds that were fitted put in; other kinds stay.

    `tool` is what fitted them, as in `slipstick 0.1.0`.
    """
    found: Record = {"name": name, **tree}
    for part in ("kernels", "libraries", "fit"):
        found[part] = found.pop(part, {})
    for fit in fits:
        if fit.shared:
            _lay(found, ("kernels", fit.cls, fit.kind), _block(fit, fit.shared))
        for library, values in fit.by_library.items():
            _lay(found, ("libraries", library, fit.cls, fit.kind), _block(fit, values))
        _lay(found, ("fit", fit.cls), {fit.kind: _record(fit, tool)})
    return found


def check(tree: Mapping[str, Tree], below: Sequence[tuple[str, Mapping[str, Tree]]]) -> None:
    """Read the constants under every library, as an estimate will; SystemFileError when they break the rules.

    `below` are the calibrations under this one.
    """
    libraries = tree["libraries"]
    layers = [*below, (str(tree["name"]), tree)]
    for library in ["", *(libraries if isinstance(libraries, dict) else ())]:
        read_constants(str(tree["name"]), layers, library)


def text_of(tree: Mapping[str, Tree], heading: str) -> str:
    """Return YAML under a heading of comments."""
    lines = [f"# {line}".rstrip() for line in heading.splitlines()]
    body = yaml.dump(dict(tree), Dumper=_Dumper, sort_keys=False, width=116, allow_unicode=True)
    return "\n".join([*lines, body])


def heading_of(text: str) -> str:
    """Return the comments that a file begins with, without their signs."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").removeprefix(" "))
    return "\n".join(lines)


def _lay(tree: Record, path: Sequence[str], block: Record) -> None:
    """Lay a block over the one at a path; what it does not hold stays."""
    here = tree
    for key in path:
        below = here.get(key)
        here[key] = dict(below) if isinstance(below, dict) else {}
        here = cast(Record, here[key])
    here.update(block)


def _block(fit: KindFit, values: Mapping[str, float]) -> Record:
    written: Record = {name.removesuffix("_s"): _written(name, value) for name, value in values.items()}
    part = "half of the configurations of " if fit.seen.split == HALF else ""
    source = f"robust fit to {part}{', '.join(fit.seen.data_sets)} ({', '.join(fit.seen.systems)})"
    return {**written, "confidence": "measured", "source": source}


def _written(name: str, value: float) -> Tree:
    """Return a number of a file: times with their unit, all of them as precise as a fit is, counts exact."""
    if name.endswith("_s"):
        return format_si(value, "s", _DIGITS)
    return int(value) if value == int(value) else float(f"{value:.{_DIGITS}g}")


def _record(fit: KindFit, tool: str) -> Record:
    seen = fit.seen
    found: Record = {
        "table": seen.table,
        "data_sets": list(seen.data_sets),
        "systems": list(seen.systems),
        "split": seen.split,
        "joint": seen.joint,
        "rule": RULE,
        "excluded": fit.num_excluded,
        "tool": tool,
    }
    for part, accuracy in (("fitted", fit.fit), ("judged", fit.judged)):
        if accuracy is not None:
            figures = asdict(accuracy)
            found[part] = {
                "rows": accuracy.num,
                **{name: round(figures[name], 4) for name in ("median", "p90", "bias")},
            }
    return found
