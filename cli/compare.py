"""`slipstick compare`: what changed between two reports, and why."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..ir.errors import GateError, UsageError
from .flags.numbers import Real, Whole
from .output.answers import FORMS, Answering, format_flag, output_flag

if TYPE_CHECKING:
    from ..app.sources import VerbArguments
    from ..report.results.result import Result
    from ..report.results.tables import ComparisonResult


class CompareCommand(Answering):
    """A verb that fails where a gate does, once its answer is written."""

    def form_of(self, said: Mapping[str, object], arguments: VerbArguments) -> str:
        """Return the form; `markdown` is another name of md."""
        return super().form_of({**said, "form": "md"} if said["form"] == "markdown" else said, arguments)

    def deliver(self, result: Result, form: str, said: Mapping[str, object], arguments: VerbArguments) -> int:
        """Write the comparison; GateError for gates that fail."""
        from ..ir.text.admission import refuse_incoming
        from ..report.results.tables import ComparisonResult

        assert isinstance(result, ComparisonResult)
        with refuse_incoming(f"{said['a']}, {said['b'] or said['measured']}", "comparison"):
            super().deliver(result, form, said, arguments)
        failed = [gate for gate in result.gates if gate.failed]
        if failed:
            raise GateError(f"{len(failed)} of {len(result.gates)} gates failed: {'; '.join(map(str, failed))}")
        return 0


@click.command("compare", cls=CompareCommand, params=[format_flag(*FORMS, "markdown"), output_flag()])
@click.argument("a", metavar="A.json")
@click.argument("b", metavar="[B.json]", required=False)
@click.option(
    "--measured",
    multiple=True,
    metavar="FILE",
    help="Measured run in the place of B: a trace of torch.profiler, a log of Megatron-LM, torchtitan or nanotron, "
    "trainer_state.json of transformers, or the JSON of vllm bench serve, SGLang, genai-perf or aiperf. "
    "Traces may be of several ranks, one of "
    "the stage first. Repeatable.",
)
@click.option("--steps", type=Whole(min=1), metavar="N", help="Steps of a trace.  [default: those marked]")
@click.option("--stage", type=Whole(min=0), metavar="N", help="Pipeline stage of the first trace.  [default: 0]")
@click.option(
    "--timeline",
    metavar="FILE.json[.gz]",
    help="Write both timelines of a trace, predicted and measured, for Perfetto.",
)
@click.option(
    "--fail-on",
    "gates",
    multiple=True,
    metavar="GATE",
    help="Exit with code 5 when this holds, e.g. 'step_time_s>+3%', 'step_time_s.comm.tp>+100ms', "
    "'peak_mem_bytes>70GiB', 'usd_per_mtok>+3%', 'mfu<40%'. A sign means a change against A, none the value of B. "
    "Repeatable.",
)
@click.option(
    "--threshold",
    type=Real(min=0, max=100),
    default=0.1,
    show_default=True,
    metavar="PCT",
    help="Hide changes of at most this percentage; for parts, percent of the whole.",
)
def compare_command(
    a: str,
    b: str | None,
    measured: tuple[str, ...],
    steps: int | None,
    stage: int | None,
    timeline: str | None,
    gates: tuple[str, ...],
    threshold: float,
) -> ComparisonResult:
    """Compare result A with result B, or with a measured run: what changed, and why.

    Both are files that `slipstick estimate --format json` wrote, or `slipstick compile --emit report`; `-` is stdin.
    Two summaries of `slipstick validate --format json` can be compared as well. The kernels of a trace are matched to
    the nodes of the prediction.
    """
    if (b is None) != bool(measured):
        raise UsageError("a report is compared with one other: give B.json, or a measured run with --measured FILE")
    of_trace = {"--steps": steps, "--stage": stage, "--timeline": timeline}
    if idle := [name for name, given in of_trace.items() if given is not None and not measured]:
        raise UsageError(f"{', '.join(idle)} is of a trace: give one with --measured FILE")
    if a == b == "-":
        raise UsageError("stdin can be one of both reports: name a file for the other")
    from ..ir.text.admission import refuse_incoming
    from ..report.compare.comparison import compare
    from ..report.compare.gates import judged
    from ..report.compare.measured import beside
    from ..report.compare.saved import read_saved
    from ..report.results.tables import ComparisonResult

    with refuse_incoming(f"{a}, {b or ', '.join(measured)}", "comparison"):
        if measured:
            found, matched = beside(read_saved(a), tuple(map(Path, measured)), steps, stage)
        else:
            found, matched = compare(read_saved(a), read_saved(str(b))), None
    if timeline is not None:
        if matched is None:
            raise UsageError("--timeline needs a trace, and a prediction whose report has nodes: write it again")
        from .output.timeline import emit_beside

        emit_beside(matched.matched, timeline)
    return ComparisonResult(found=found, gates=judged(gates, found), floor=threshold / 100, matched=matched)
