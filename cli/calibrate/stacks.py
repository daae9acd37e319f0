"""`slipstick calibrate --stack`: numbers of software stacks from measured training steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...ir.errors import UsageError
from ..output.files import columns, writing

if TYPE_CHECKING:
    from ...validation.fit.stacks.fit import StackFit

# Every profile of the catalogue that says what is free.
ALL = "all"


def calibrate_stacks(
    files: tuple[Path, ...], asked: str, part: str, output: Path, report: Callable[[str], None]
) -> int:  # fmt: skip
    """Fit the numbers of stacks and write them; what was fitted stands on stdout."""
    from ...frontend import GraphCache
    from ...validation.fit.stacks.fit import fit_stacks
    from ...validation.fit.stacks.fit_file import refuse_other

    groups = _groups(asked)
    names = [name for group in groups for name in group]
    paths = {name: _path(output, name, len(names)) for name in names}
    # Said before minutes of fitting, not behind them.
    for path in paths.values():
        refuse_other(path)
    cache = GraphCache.default()
    for group in groups:
        fits = fit_stacks(files, group, report, part, cache)
        from ...report.columns import in_columns

        click.echo(f"{in_columns(_numbers(fits), columns())}\n\n{in_columns(_figures(fits), columns())}")
        for fit in fits:
            _write(paths[fit.profile.name], fit)
    return 0


def _groups(asked: str) -> Sequence[tuple[str, ...]]:
    from ...validation.fit.stacks.profiles import all_profiles

    if asked != ALL:
        names = tuple(name.strip() for name in asked.split(","))
        if not all(names):
            raise UsageError(f"--stack '{asked}': write names with commas between, as in nanotron,nanotron-per-rank")
        return [names]
    groups = all_profiles()
    if not groups:
        raise UsageError("no stack of the catalogue says what is free in a section fit: see docs/calibration.md")
    return groups


def _path(output: Path, name: str, num: int) -> Path:
    if output.suffix not in (".yaml", ".yml"):
        return output / f"{Path(name).stem}.yaml"
    if num > 1:
        raise UsageError(f"'{output}' would hold {num} stacks: give a folder, which gets one file a stack")
    return output


def _write(path: Path, fit: StackFit) -> None:
    from ... import __version__
    from ...ir.text.files import write_whole
    from ...validation.fit.calibration_file import text_of
    from ...validation.fit.stacks.fit_file import check, tree_of

    tree = tree_of(fit, f"slipstick {__version__}", path.parent)
    check(fit, tree)
    heading = f"Numbers of the stack {tree['name']} fitted to measured steps; `slipstick calibrate --stack`."
    with writing(path):
        write_whole(path, text_of(tree, heading))


def _numbers(fits: Sequence[StackFit]) -> list[list[str]]:
    from ...backends.machine.software.stack_limits import movable

    lines = [["stack", "number", "before", "fitted", ""]]
    for fit in fits:
        for number in fit.numbers:
            at = movable(number.path)
            before, after = (f"{x / at.scale:.4g} {at.unit}".strip() for x in (number.before, number.value))
            end = "at the end of its range" if number.value in (at.low, at.high) else ""
            lines.append([fit.profile.name, number.path, before, after, end])
        lines += [[fit.profile.name, path, "", "", "no row depends on it: left as it was"] for path in fit.untold]
    return lines


def _figures(fits: Sequence[StackFit]) -> list[list[str]]:
    lines = [["stack", "fitted", "median", "p90", "judged", "median", "p90", "bias", "excluded"]]
    for fit in fits:
        j = fit.judged
        ours = [str(fit.fit.num), f"{fit.fit.median:.1%}", f"{fit.fit.p90:.1%}"]
        theirs = ["0", "", "", ""] if j is None else [str(j.num), f"{j.median:.1%}", f"{j.p90:.1%}", f"{j.bias:+.1%}"]
        lines.append([fit.profile.name, *ours, *theirs, str(fit.num_excluded)])
    return lines
