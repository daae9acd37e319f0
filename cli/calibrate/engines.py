"""`slipstick calibrate --engine`: numbers of serving engines from measured requests, chip by chip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...ir.errors import UsageError
from ..output.files import columns, writing

if TYPE_CHECKING:
    from ...validation.fit.engines.fit import EngineFit

# Every engine of the catalogue that says what is free.
ALL = "all"


def calibrate_engines(
    files: tuple[Path, ...], asked: str, part: str, output: Path, report: Callable[[str], None]
) -> int:
    """Fit the numbers of engines and write them; what was fitted stands on stdout."""
    from ...frontend import GraphCache
    from ...validation.fit.engines.fit import fit_engine
    from ...validation.fit.engines.fit_file import refuse_other

    names = _names(asked)
    paths = {name: _path(output, name, len(names)) for name in names}
    # Said before minutes of fitting, not behind them.
    for path in paths.values():
        refuse_other(path)
    cache = GraphCache.default()
    for name in names:
        fits = fit_engine(files, name, report, part, cache)
        from ...report.columns import in_columns

        click.echo(f"{in_columns(_numbers(fits), columns())}\n\n{in_columns(_figures(fits), columns())}")
        _write(paths[name], fits)
    return 0


def _names(asked: str) -> Sequence[str]:
    from ...validation.fit.engines.profiles import all_profiles

    if asked == ALL:
        found = all_profiles()
        if not found:
            raise UsageError("no engine of the catalogue says what is free in a section fit: see docs/calibration.md")
        return found
    names = [name.strip() for name in asked.split(",")]
    if not all(names):
        raise UsageError(f"--engine '{asked}': write names with commas between, as in vllm,sglang")
    return names


def _path(output: Path, name: str, num: int) -> Path:
    if output.suffix not in (".yaml", ".yml"):
        return output / f"{Path(name).stem}.yaml"
    if num > 1:
        raise UsageError(f"'{output}' would hold {num} engines: give a folder, which gets one file an engine")
    return output


def _write(path: Path, fits: Sequence[EngineFit]) -> None:
    from ... import __version__
    from ...ir.text.files import write_whole
    from ...validation.fit.calibration_file import text_of
    from ...validation.fit.engines.fit_file import check, tree_of

    tree = tree_of(fits, f"slipstick {__version__}", path.parent)
    check(fits, tree)
    heading = f"Numbers of the engine {tree['name']} fitted to served requests; `slipstick calibrate --engine`."
    with writing(path):
        write_whole(path, text_of(tree, heading))


def _numbers(fits: Sequence[EngineFit]) -> list[list[str]]:
    from ...backends.machine.software.engine_limits import ENGINE_MOVABLE
    from ...backends.machine.software.stack_limits import movable

    lines = [["engine", "chip", "number", "before", "fitted", ""]]
    for fit in fits:
        for number in fit.numbers:
            at = movable(number.path, ENGINE_MOVABLE)
            before, after = (f"{x / at.scale:.4g} {at.unit}".strip() for x in (number.before, number.value))
            end = "at the end of its range" if number.value in (at.low, at.high) else ""
            lines.append([fit.profile.name, fit.chip, number.path, before, after, end])
        lines += [[fit.profile.name, fit.chip, path, "", "", "no row depends on it: left as it was"]
                  for path in fit.untold]  # fmt: skip
    return lines


def _figures(fits: Sequence[EngineFit]) -> list[list[str]]:
    lines = [["engine", "chip", "fitted", "median", "p90", "judged", "median", "p90", "bias", "excluded"]]
    for fit in fits:
        j = fit.judged
        ours = [str(fit.fit.num), f"{fit.fit.median:.1%}", f"{fit.fit.p90:.1%}"]
        theirs = ["0", "", "", ""] if j is None else [str(j.num), f"{j.median:.1%}", f"{j.p90:.1%}", f"{j.bias:+.1%}"]
        lines.append([fit.profile.name, fit.chip, *ours, *theirs, str(fit.num_excluded)])
    return lines
