"""`slipstick compile`: the graph after each stage of the compiler, as files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import click

from ..app.compile import compile_model
from ..app.prepare import system_of
from ..app.request import Request
from ..app.run_words import run_of
from ..app.software import with_software
from ..app.sources import VerbArguments
from ..ir.errors import UsageError
from ..ir.units import is_digits
from ..verify.kinds import VERIFIERS
from ..verify.request import read_sizes
from .flags.command import PlanCommand
from .output.answers import AppCommand
from .output.files import check_suffix, write_text

if TYPE_CHECKING:
    from ..driver.estimate import Estimate
    from ..report.results.compiled import CompiledResult
    from ..report.results.result import Result

# What can be written, and the names of the files when there are several.
FILES = {
    "graph": "traced.graph",
    "sharded": "sharded.graph",
    "costed": "costed.csv",
    "report": "report.json",
    "plan": "plan.yaml",
    "chakra": "chakra",
    "model-explorer": "model-explorer",
    "onnx": "costed.onnx",
}
# The most ranks that a list of them may name; what needs a price, and so a system.
MOST_RANKS = 2**22
_PRICED = {"costed", "report", "chakra", "model-explorer", "onnx"}
_FOLDERS = {"chakra", "model-explorer"}
_NO_TEXT = {*_FOLDERS, "onnx"}


class CompileCommand(AppCommand, PlanCommand):
    """A verb that writes one or several of the graphs that a model becomes, and what they cost."""

    delivered: ClassVar[tuple[str, ...]] = ("emit", "output", "ranks", "verify", "verify_sizes")

    def form_of(self, said: Mapping[str, object], arguments: VerbArguments) -> str:
        """Return what to write, checked against the other flags; UsageError where they do not go together."""
        kinds, request = _kinds(str(said["emit"])), with_software(Request.of(arguments))
        if request.compiler.stop_after is not None and _PRICED & set(kinds):
            raise UsageError("--stop-after leaves an unfinished graph, which has no costs; see it with --emit sharded")
        if kinds == ("onnx",) and said["output"] == "-":
            raise UsageError("--emit onnx writes a file that is no text: name it with -o costed.onnx")
        if (len(kinds) > 1 or _FOLDERS & set(kinds)) and said["output"] == "-":
            raise UsageError(f"--emit {said['emit']} writes several files: name a folder with -o")
        if len(kinds) == 1 and kinds[0] not in _FOLDERS:
            check_suffix(
                str(said["output"]), Path(FILES[kinds[0]]).suffix, *((".json",) if kinds == ("costed",) else ())
            )
        if said["ranks"] is not None and "chakra" not in kinds:
            raise UsageError(f"--ranks is of --emit chakra, and --emit {said['emit']} writes no traces of ranks")
        if (text := said["verify_sizes"]) is not None:
            if not isinstance(said["verify"], tuple) or "numeric" not in said["verify"]:
                raise UsageError("--verify-sizes is of --verify numeric, which is not asked for")
            read_sizes(str(text))
        if run_of(request.run, request.words.phase) is not None and "report" not in kinds:
            raise UsageError(f"a training run is part of the report, and --emit {said['emit']} writes none")
        if _PRICED & set(kinds):
            system_of(request)
        return ",".join(kinds)

    def deliver(self, result: Result, form: str, said: Mapping[str, object], arguments: VerbArguments) -> int:
        """Print what verifying found, and write the kinds."""
        from ..report.results.compiled import CompiledResult

        assert isinstance(result, CompiledResult)
        verify = said["verify"]
        text = str(said["verify_sizes"] or "")
        assert isinstance(verify, tuple)
        for kind in verify:
            click.echo(result.verify(kind, read_sizes(text) if text and kind == "numeric" else {}))
        if verify and not arguments.is_given("emit"):
            return 0
        kinds, output = form.split(","), str(said["output"])
        if _PRICED & set(kinds):
            _warn(result.answer)
        for kind in kinds:
            path = output if len(kinds) == 1 else str(Path(output) / FILES[kind])
            if kind in _NO_TEXT:
                _write_other(result.answer, kind, Path(path), said["ranks"])
            else:
                write_text(_text_of(result, kind, path), path)
        return 0


@click.command("compile", cls=CompileCommand)
@click.option("--emit", default="graph", show_default=True, help=f"What to write, comma separated: {', '.join(FILES)}.")
@click.option("-o", "--output", default="-", show_default=True, help="File, folder for several kinds, - for stdout.")
@click.option(
    "--ranks", metavar="RANKS", help="Ranks whose traces --emit chakra writes, e.g. 0:8 or 0,512.  [default: all]"
)
@click.option(
    "--verify",
    multiple=True,
    type=click.Choice(tuple(VERIFIERS)),
    help="Verify the lowered graph and print the result; nothing else is written unless --emit names it.",
)
@click.option(
    "--verify-sizes",
    metavar="NAME=VALUE,..",
    help="Small sizes for --verify numeric: batch, seq, kv; other names are arguments of the factory, e.g. "
    "seq=16,batch=4,dim=64,layers=2.",
)
def compile_command(arguments: VerbArguments) -> CompiledResult:
    """Compile MODEL, and write its graph, the cost of each node, or the estimate.

    \b
    graph    the traced graph, as text (.graph, .graph.gz); needs no system
    sharded  the graph after the passes; needs no system
    costed   every node with its work, time and bound (.csv or .json by suffix, else a table)
    report   the estimate as JSON
    plan     the style of each parameter, as a file that --tp-plan reads back
    chakra   a folder: the trace of each rank, in the format of MLCommons' Chakra
    model-explorer   a folder: the graph after the passes, for Model Explorer
    onnx     the graph after the passes as ONNX, costs of nodes as metadata
    """  # noqa: D301
    return compile_model(Request.of(arguments))


def _kinds(emit: str) -> tuple[str, ...]:
    from ..ir.errors import UnknownNameError

    kinds = tuple(dict.fromkeys(k.strip() for k in emit.split(",") if k.strip()))
    for kind in kinds:
        if kind not in FILES:
            raise UnknownNameError.of("kind to emit", kind, FILES)
    if not kinds:
        raise UsageError(f"--emit names nothing; allowed: {', '.join(FILES)}")
    return kinds


def _text_of(result: CompiledResult, kind: str, path: str) -> str:
    """Return the text of a kind for a file; only what it needs is computed."""
    from ..ir.text.printer import print_graph
    from ..report.trace.costed import costed_text

    if kind == "graph":
        return print_graph(result.graph)
    if kind == "plan":
        return result.plan_text()
    if kind == "costed":
        return costed_text(result.answer, Path(path.removesuffix(".gz")).suffix)
    return result.json() if kind == "report" else print_graph(result.sharded)


def _write_other(answer: Estimate, kind: str, path: Path, said: object) -> None:
    """Write a kind that is no text, or several files; `said` are the ranks of traces, None for all."""
    from .output.files import writing

    ranks = None if said is None else _ranks(str(said))
    with writing(path):
        match kind:
            case "chakra":
                from ..report.trace.chakra.files import RankFiles

                RankFiles(answer).write(path, ranks)
            case "onnx":
                from ..report.trace.onnx_graph import write_onnx

                write_onnx(answer, path)
            case _:
                from ..report.trace.model_explorer import write_explorer

                write_explorer(answer, path)


def _ranks(said: str) -> list[int]:
    """Read `0,4` and `0:8`, whose end is left out; UsageError for anything else."""
    found: dict[int, None] = {}
    for part in said.split(","):
        first, colon, last = (word.strip() for word in part.partition(":"))
        if not (is_digits(first) and (is_digits(last) if colon else True)):
            raise UsageError(f"--ranks: '{said}' is no list of ranks; write 0,4 or 0:8")
        start, end = int(first), int(last) if colon else int(first) + 1
        if not start < end <= MOST_RANKS:
            raise UsageError(f"--ranks: '{part}' holds no rank; ranks are from 0 to {MOST_RANKS - 1:,}")
        found |= dict.fromkeys(range(start, end))
    return list(found)


def _warn(answer: Estimate) -> None:
    from ..report.advice import shortage

    lacking = shortage(answer)
    if lacking is not None:
        click.echo(f"warning: {lacking}", err=True)
