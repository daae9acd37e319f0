"""`slipstick calibrate --stack` and `--engine`: numbers of software from measured steps or requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...ir.errors import UsageError
from ..output.files import columns, writing

if TYPE_CHECKING:
    from ...backends.machine.files.system_tree import Tree
    from ...backends.machine.software.stack_limits import Movable
    from ...validation.fit.profiles import ProfileFit

# Every stack or engine of the catalogue that says what is free.
ALL = "all"


def calibrate_stacks(
    files: tuple[Path, ...], asked: str, part: str, output: Path, report: Callable[[str], None]
) -> int:
    """Fit the numbers of stacks and write them; what was fitted stands on stdout."""
    from ...backends.machine.software.stack_limits import MOVABLE
    from ...frontend import GraphCache
    from ...validation.fit.stacks.fit import fit_stacks
    from ...validation.fit.stacks.fit_file import check, refuse_other, tree_of
    from ...validation.fit.stacks.profiles import all_profiles

    # Profiles that are named together share a fit.
    groups = all_profiles() if asked == ALL else [_names(asked, "stack", "nanotron,nanotron-per-rank")]
    paths = _paths(output, [name for group in groups for name in group], "stack", refuse_other)
    cache = GraphCache.default()
    for group in groups:
        fits = fit_stacks(files, group, report, part, cache)
        click.echo(_text("stack", [([fit.profile.name], fit) for fit in fits], MOVABLE))
        for fit in fits:
            path = paths[fit.profile.name]
            tree = tree_of(fit, _tool(), path.parent)
            check(fit, tree)
            _write(path, tree, "stack", "measured steps")
    return 0


def calibrate_engines(
    files: tuple[Path, ...], asked: str, part: str, output: Path, report: Callable[[str], None]
) -> int:
    """Fit the numbers of engines, chip by chip, and write them; what was fitted stands on stdout."""
    from ...backends.machine.software.engine_limits import ENGINE_MOVABLE
    from ...frontend import GraphCache
    from ...validation.fit.engines.fit import fit_engine
    from ...validation.fit.engines.fit_file import check, refuse_other, tree_of
    from ...validation.fit.engines.profiles import all_profiles

    names = all_profiles() if asked == ALL else _names(asked, "engine", "vllm,sglang")
    paths = _paths(output, names, "engine", refuse_other)
    cache = GraphCache.default()
    for name in names:
        fits = fit_engine(files, name, report, part, cache)
        click.echo(_text("engine", [([fit.profile.name, fit.chip], fit) for fit in fits], ENGINE_MOVABLE))
        tree = tree_of(fits, _tool(), paths[name].parent)
        check(fits, tree)
        _write(paths[name], tree, "engine", "served requests")
    return 0


def _names(asked: str, what: str, example: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in asked.split(","))
    if not all(names):
        raise UsageError(f"--{what} '{asked}': write names with commas between, as in {example}")
    return names


def _paths(output: Path, names: Sequence[str], what: str, refuse_other: Callable[[Path], None]) -> dict[str, Path]:
    """The file of each name; what cannot be written is said before minutes of fitting, not behind them."""
    if not names:
        raise UsageError(f"no {what} of the catalogue says what is free in a section fit: see docs/calibration.md")
    one_file = output.suffix in (".yaml", ".yml")
    if one_file and len(names) > 1:
        article = "an" if what == "engine" else "a"
        raise UsageError(
            f"'{output}' would hold {len(names)} {what}s: give a folder, which gets one file {article} {what}"
        )
    paths = {name: output if one_file else output / f"{Path(name).stem}.yaml" for name in names}
    for path in paths.values():
        refuse_other(path)
    return paths


def _tool() -> str:
    from ...ir import __version__

    return f"slipstick {__version__}"


def _write(path: Path, tree: dict[str, Tree], what: str, source: str) -> None:
    from ...ir.text.files import write_whole
    from ...validation.fit.calibration_file import text_of

    heading = f"Numbers of the {what} {tree['name']} fitted to {source}; `slipstick calibrate --{what}`."
    with writing(path):
        write_whole(path, text_of(tree, heading))


def _text(what: str, fits: Sequence[tuple[list[str], ProfileFit]], known: Mapping[str, Movable]) -> str:
    """Two tables, of the numbers and of how near they come; a line of either starts with whose they are."""
    from ...backends.machine.software.stack_limits import movable
    from ...report.columns import in_columns

    head = [what, "chip"][: len(fits[0][0])]
    numbers = [[*head, "number", "before", "fitted", ""]]
    figures = [[*head, "fitted", "median", "p90", "judged", "median", "p90", "bias", "excluded"]]
    for whose, fit in fits:
        for number in fit.numbers:
            at = movable(number.path, known)
            before, after = (f"{x / at.scale:.4g} {at.unit}".strip() for x in (number.before, number.value))
            end = "at the end of its range" if number.value in (at.low, at.high) else ""
            numbers.append([*whose, number.path, before, after, end])
        numbers += [[*whose, path, "", "", "no row depends on it: left as it was"] for path in fit.untold]
        j = fit.judged
        ours = [str(fit.fit.num), f"{fit.fit.median:.1%}", f"{fit.fit.p90:.1%}"]
        theirs = ["0", "", "", ""] if j is None else [str(j.num), f"{j.median:.1%}", f"{j.p90:.1%}", f"{j.bias:+.1%}"]
        figures.append([*whose, *ours, *theirs, str(fit.num_excluded)])
    return f"{in_columns(numbers, columns())}\n\n{in_columns(figures, columns())}"
