"""`slipstick trace`: what a model is made of, and how each of its operators is priced."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..app.arguments.machine import QuietArgs
from ..app.arguments.others import TraceArgs
from ..app.arguments.plan import DescribingArgs
from ..app.sources import VerbArguments
from .flags.build import flags_of, words
from .flags.names import of_catalogue
from .flags.talk import talk_flags
from .output.answers import AppCommand, format_flag, output_flag

if TYPE_CHECKING:
    from ..report.results.tables import TraceResult


@click.command(
    "trace",
    cls=AppCommand,
    params=[*flags_of(DescribingArgs, QuietArgs), talk_flags()[1], format_flag(), output_flag()],
)
@click.argument("model", shell_complete=of_catalogue("models"))
@words(TraceArgs)
def trace_command(arguments: VerbArguments) -> TraceResult:
    """Trace MODEL and show its parameters, regions, operators, FLOPs and bytes.

    No machine is needed. Bytes are what each operator alone reads and writes; FLOPs of attention count masked pairs.

    \b
    slipstick trace llama-3.1-8b
    slipstick trace deepseek-v3 --phase decode --batch 32 --seq 8192
    slipstick trace net.py:Net --allow-unpriced --coverage
    """  # noqa: D301
    from ..app.trace import TraceRequest, trace_model

    return trace_model(TraceRequest.of(arguments))
