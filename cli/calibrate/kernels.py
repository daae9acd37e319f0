"""`slipstick calibrate`: constants of kernels from tables of measurements, or from the machine at hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...ir.errors import UsageError
from ...ir.text.untrusted import read_settings
from ..flags.numbers import Named, Whole
from ..flags.talk import Watched, talk_flags
from ..output.files import check_suffix, columns, writing

if TYPE_CHECKING:
    from ...backends.machine.files.system_tree import Tree
    from ...validation.fit.calibrate import FitChoice, KindFit


@click.command("calibrate", cls=Watched, params=[*talk_flags()])
@click.option(
    "--from",
    "files",
    multiple=True,
    metavar="FILE.csv",
    type=click.Path(path_type=Path),
    help="A table of measured kernels, as for `slipstick validate`. Repeatable.",
)
@click.option(
    "--where",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Fit the rows with this cell only, e.g. accelerator=L40S. Repeatable, as for `slipstick validate`.",
)
@click.option("--leave-out", multiple=True, metavar="SYSTEM", help="Exclude the rows of this system. Repeatable.")
@click.option(
    "--part",
    type=Named(("half", "all")),
    default="half",
    show_default=True,
    help="Configurations to fit: half of them, so that the other half tests the fit, or all.",
)
@click.option(
    "--joint",
    is_flag=True,
    help="Fit one set of constants over all chips, for a chip that was never measured.  [default: per chip and "
    "library]",
)
@click.option(
    "--stack",
    metavar="NAME[,NAME...]",
    help="Fit the free parameters of these software stacks jointly to measured training steps, instead of kernels; "
    "`all`: every stack that has some.",
)
@click.option(
    "--engine",
    metavar="NAME[,NAME...]",
    help="Fit the free parameters of these serving engines, chip by chip, to measured requests, instead of kernels; "
    "`all`: every engine that has some.",
)
@click.option(
    "--device",
    type=Named(("cpu", "cuda")),
    help="Measure this machine instead: kernels as PyTorch runs them, peaks, bandwidth; under torchrun collectives.",
)
@click.option(
    "--measured",
    metavar="TRACE",
    type=click.Path(path_type=Path),
    help="Fit the software stack of --predicted to this trace of torch.profiler instead: every other step, the others "
    "judge.",
)
@click.option(
    "--predicted", metavar="REPORT.json", help="With --measured: what `slipstick estimate -o` wrote of the run."
)
@click.option("--steps", type=Whole(min=1), metavar="N", help="With --measured: steps of a trace without marks.")
@click.option(
    "--threads", type=Whole(), metavar="N", default=1, show_default=True, help="With --device: threads to use."
)
@click.option("--quick", is_flag=True, help="With --device: few sizes, once; seconds instead of minutes.")
@click.option("--check", is_flag=True, help="With --device: train a small Llama afterwards, predicted and measured.")
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="OUT.yaml|FOLDER",
    help="File to write; or a folder, which gets one file a chip. Kinds of kernels that are in a file and are not "
    "fitted stay.",
)
def calibrate_command(
    files: tuple[Path, ...], where: tuple[str, ...], leave_out: tuple[str, ...], part: str, joint: bool,
    stack: str | None, engine: str | None, device: str | None, measured: Path | None, predicted: str | None,
    steps: int | None, threads: int, quick: bool, check: bool, output: str, quiet: bool,
) -> int:  # fmt: skip
    """Fit the constants of kernel models to tables of measurements and write them as a calibration.

    Robust least squares on the logarithm of predicted / measured. The file says which data sets were fitted, which half
    of their configurations, and the errors of both halves; `slipstick validate` reads it to tell rows that were fitted
    from rows that judge.

    With --device the machine at hand is measured first. The folder gets DEVICE.yaml, a system that --system takes,
    DEVICE.calibration.yaml with its constants, and the tables.

    With --stack the host's time, overlap and slowdowns of software stacks are fitted to training steps: the numbers
    that a stack's file leaves free, to the data sets that it names. The output is a stack that inherits the one fitted.

    With --engine the host's time of serving engines is fitted to measured requests in the same way, chip by chip.

    With --measured a stack for your own machine is fitted to a trace of a run beside its prediction; estimates take it
    with --stack.
    """
    report = _reporter(quiet)
    choices = {"--where": where, "--leave-out": leave_out, "--joint": joint, "--part": part != "half"}
    measures = {"--quick": quick, "--check": check}
    if measured is not None:
        others = {"--from": files, **choices, "--engine": engine, "--device": device, **measures}
        _refuse(others, "--measured fits a stack to one trace: leave out {}")
        if predicted is None:
            raise UsageError(
                "--measured needs the prediction of the run: --predicted REPORT.json, which `slipstick "
                "estimate ... -o REPORT.json` writes"
            )
        from .measured import calibrate_trace

        return calibrate_trace(measured, predicted, stack, Path(output), steps, report)
    if predicted is not None or steps is not None:
        raise UsageError("--predicted and --steps are of a trace: give one with --measured TRACE")
    if device is not None:
        _refuse({"--from": files}, "--device measures what it fits: leave out {}")
        _refuse({**choices, "--stack": stack, "--engine": engine}, "--device fits all that it measures: leave out {}")
        _refuse_file(output)
        return _measure(device, threads, quick, check, Path(output), report)
    if not files:
        raise UsageError("nothing to fit: give --from FILE.csv, or --device cpu to measure this machine")
    _refuse({**measures, "--threads": threads != 1}, "{}: only with --device, which measures")
    if stack is not None and engine is not None:
        raise UsageError("--stack and --engine are two fits: give one of them")
    if stack is not None or engine is not None:
        del choices["--part"]
        _refuse(choices, "{}: not with --stack or --engine, whose files say which rows they are fitted to")
        return _of_software(files, stack, engine, part, Path(output), report)
    from ...validation.fit.calibrate import FitChoice

    return _of_kernels(files, FitChoice(where=where, leave_out=leave_out, split=part, joint=joint), output, report)


def _reporter(quiet: bool) -> Callable[[str], None]:
    """Return what writes progress to stderr, or nowhere."""
    return (lambda _: None) if quiet else (lambda line: click.echo(line, err=True))


def _of_software(
    files: tuple[Path, ...],
    stack: str | None,
    engine: str | None,
    part: str,
    output: Path,
    report: Callable[[str], None],
) -> int:
    from .fits import calibrate_engines, calibrate_stacks

    if engine is not None:
        return calibrate_engines(files, engine, part, output, report)
    return calibrate_stacks(files, stack or "", part, output, report)


def _of_kernels(files: tuple[Path, ...], choice: FitChoice, output: str, report: Callable[[str], None]) -> int:
    from ...validation.fit.calibrate import calibrate

    _refuse_unreadable(Path(output))
    found = calibrate(files, choice, report)
    for why, rows in found.skipped.items():
        report(f"{rows} rows in no fit: {why}")
    by_file = _by_file(Path(output), found.fits, choice.joint)
    click.echo(_table(found.fits))
    for path, fits in by_file.items():
        _write(path, fits)
    return 0


def _refuse(flags: Mapping[str, object], why: str) -> None:
    """UsageError where any of these flags was given; `why` has {} for their names."""
    if given := [name for name, value in flags.items() if value]:
        raise UsageError(why.format(", ".join(given)))


def _refuse_file(output: str) -> None:
    """Say before minutes of measuring, not behind them, that the output must be a folder."""
    if output.endswith((".yaml", ".yml")):
        raise UsageError(f"--device writes several files: give a folder instead of '{output}'")
    if Path(output).exists() and not Path(output).is_dir():
        raise UsageError(f"--device writes several files: '{output}' is a file and not a folder")


def _refuse_unreadable(output: Path) -> None:
    """Say before a fit that the file it would update is no calibration."""
    check_suffix(str(output), ".yaml")
    if output.suffix in (".yaml", ".yml"):
        _tree_of(output)


def _tree_of(path: Path) -> tuple[str, Mapping[str, Tree]]:
    """Return the text and the tree of a calibration; both are empty where there is no file."""
    from ...backends.machine.files.system_tree import read_tree

    if path.is_dir():
        raise UsageError(f"cannot write '{path}': Is a directory")
    try:
        old = read_settings(path) if path.is_file() else ""
    except OSError as error:
        raise UsageError(f"cannot read '{path}', the calibration to update: {error}") from error
    return old, read_tree(old, path.name) if old else {}


def _measure(device: str, threads: int, quick: bool, check: bool, folder: Path, report: Callable[[str], None]) -> int:
    from ...validation.measure.run import MeasurementPlan, calibrate_device

    wanted = MeasurementPlan(device, threads, quick, check)
    found = calibrate_device(wanted, folder, report)
    if found.fits:
        click.echo(_table(found.fits))
    for judged in found.checks:
        click.echo(f"\n{judged.text()}")
    for path in found.files:
        click.echo(f"wrote {path}", err=True)
    return 0


def _by_file(output: Path, fits: Sequence[KindFit], joint: bool) -> dict[Path, list[KindFit]]:
    one_file = output.suffix in (".yaml", ".yml")
    owners = dict.fromkeys(fit.owner for fit in fits)
    if one_file and len(owners) > 1:
        raise UsageError(
            f"'{output}' would hold {len(owners)} chips ({', '.join(owners)}): give a folder, --where or "
            "--leave-out for one of them, or --joint"
        )
    if joint and not one_file:
        raise UsageError(f"--joint makes one file: give -o NAME.yaml instead of the folder '{output}'")
    found: dict[Path, list[KindFit]] = {}
    for fit in fits:
        found.setdefault(output if one_file else output / f"{fit.owner}.yaml", []).append(fit)
    return found


def _write(path: Path, fits: Sequence[KindFit]) -> None:
    from ...ir import __version__
    from ...ir.text.files import write_whole
    from ...validation.fit.calibration_file import check, heading_of, text_of, updated
    from ...validation.rows.machine_room import base_layers

    old, before = _tree_of(path)
    tree = updated(before, fits, f"slipstick {__version__}", path.stem)
    check(tree, base_layers())
    heading = heading_of(old) or f"Constants of kernels fitted to measurements{_of(fits)}; `slipstick calibrate`."
    with writing(path):
        write_whole(path, text_of(tree, heading))


def _of(fits: Sequence[KindFit]) -> str:
    return f" of {fits[0].owner}" if fits[0].owner else ""


def _table(fits: Sequence[KindFit]) -> str:
    from ...report.columns import in_columns

    lines = [["chip", "class", "kind", "fitted", "median", "p90", "judged", "median", "p90", "bias", "excluded"]]
    for fit in fits:
        ours = [str(fit.fit.num), f"{fit.fit.median:.1%}", f"{fit.fit.p90:.1%}"]
        j = fit.judged
        theirs = ["0", "", "", ""] if j is None else [str(j.num), f"{j.median:.1%}", f"{j.p90:.1%}", f"{j.bias:+.1%}"]
        lines.append([fit.owner or "all", fit.cls, fit.kind, *ours, *theirs, str(fit.num_excluded)])
    return in_columns(lines, columns())
