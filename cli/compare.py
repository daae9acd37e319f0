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
    from ..report.results.result import Result
    from ..report.results.tables import ComparisonResult


class CompareCommand(Answering):
    """A verb that fails where a gate does, once its answer is written."""

    def form_of(self, said: Mapping[str, object]) -> str:
        """Return the form; `markdown` is another name of md."""
        return super().form_of({**said, "form": "md"} if said["form"] == "markdown" else said)

    def deliver(self, result: Result, form: str, said: Mapping[str, object]) -> int:
        """Write the comparison; GateError for gates that fail."""
        from ..report.results.tables import ComparisonResult

        assert isinstance(result, ComparisonResult)
        super().deliver(result, form, said)
        failed = [gate for gate in result.gates if gate.failed]
        if failed:
            raise GateError(f"{len(failed)} of {len(result.gates)} gates failed: {'; '.join(map(str, failed))}")
        return 0


@click.command("compare", cls=CompareCommand, params=[format_flag(*FORMS, "markdown"), output_flag()])
@click.argument("a", metavar="A.json")
@click.argument("b", metavar="[B.json]", required=False)
@click.option(
    "--measured",
    metavar="FILE",
    help="Measured run in the place of B: a trace of torch.profiler, a log of Megatron-LM, torchtitan or nanotron, "
    "trainer_state.json of transformers, or the JSON of vllm bench serve, SGLang, genai-perf or aiperf.",
)
@click.option("--steps", type=Whole(min=1), metavar="N", help="Steps of a trace.  [default: those marked]")
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
    help="Do not list what changes by this many percent or less; of parts, percent of the whole.",
)
def compare_command(
    a: str, b: str | None, measured: str | None, steps: int | None, gates: tuple[str, ...], threshold: float
) -> ComparisonResult:
    """Show what changed from report A to report B, and why; or report A beside what a run measured.

    Both are files that `slipstick estimate --format json` wrote, or `slipstick compile --emit report`; `-` is stdin.
    Two summaries of `slipstick validate --format json` can be compared as well.
    """
    if (b is None) == (measured is None):
        raise UsageError("a report is compared with one other: give B.json, or a measured run with --measured FILE")
    if steps is not None and measured is None:
        raise UsageError("--steps is of a trace: give one with --measured FILE")
    if a == b == "-":
        raise UsageError("stdin can be one of both reports: name a file for the other")
    from ..report.compare.comparison import compare
    from ..report.compare.gates import judged
    from ..report.compare.saved import read_saved
    from ..report.results.tables import ComparisonResult

    if measured is not None:
        from ..measured.run import read_measured
        from ..report.compare.measured import against

        found = against(read_saved(a), read_measured(Path(measured), steps))
    else:
        found = compare(read_saved(a), read_saved(str(b)))
    return ComparisonResult(found=found, gates=judged(gates, found), floor=threshold / 100)
