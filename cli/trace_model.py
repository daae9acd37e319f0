"""`slipstick trace`: what a model is made of, and how each of its operators is priced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from .flags.names import of_catalogue
from .flags.numbers import Named, Whole
from .flags.shared import DESCRIBING
from .flags.talk import talk_flags
from .output.answers import Answering, format_flag, output_flag
from .plans.file import is_given
from .prepare import dims_of, length_for

if TYPE_CHECKING:
    from ..frontend.runs.asked import AskedSizes
    from ..ir.graph import Graph
    from ..report.results.tables import TraceResult

# A machine whose kernels were measured most: only a pricing asks for one.
USUAL_SYSTEM = "dgx-h100"


@click.command("trace", cls=Answering, params=[*DESCRIBING, *talk_flags(), format_flag(), output_flag()])
@click.argument("model", shell_complete=of_catalogue("models"))
@click.option(
    "--phase",
    type=Named(("train", "prefill", "decode")),
    default="train",
    show_default=True,
    help="Phase: a training step, a prompt, or one more token.",
)
@click.option(
    "--dtype", default="bf16", show_default=True, help="Data type of weights and activations: bf16, fp16, fp32."
)
@click.option("--batch", type=Whole(min=1), default=1, show_default=True, help="Number of sequences.")
@click.option(
    "--seq",
    type=Whole(min=1),
    default=2048,
    show_default=True,
    help="Sequence length in tokens; in decode, tokens in the KV cache.",
)
@click.option("--coverage", is_flag=True, help="Show how each op is priced on --system, and how well that is checked.")
@click.option("--system", default=USUAL_SYSTEM, show_default=True, metavar="NAME|FILE", help="Machine of --coverage.")
@click.option("--stack", metavar="NAME|FILE", help="Software on it.  [default: the system's]")
@click.option(
    "--dim",
    "dims",
    multiple=True,
    metavar="NAME=SIZE",
    help="Meaning of a named dim of an ONNX or .pt2 file: batch, seq, kv, total (kv + seq), tokens (batch x seq) or a "
    "number. Repeatable; common names are known.",
)
@click.option(
    "--allow-unpriced",
    is_flag=True,
    help="Count operators that have no rule by the bytes they read and write, instead of refusing the model.",
)
@click.option("--cache/--no-cache", default=True, show_default=True, help="Keep traced graphs in the user's cache.")
def trace_command(
    model: str, phase: str, dtype: str, batch: int, seq: int, coverage: bool, system: str, stack: str | None,
    dims: tuple[str, ...], allow_unpriced: bool, cache: bool, quiet: bool,
    inputs: tuple[str, ...], loss: str | None, fixed: tuple[str, ...], leaves: tuple[str, ...],
    caches: tuple[str, ...], graph: Graph | None = None,
) -> TraceResult:  # fmt: skip
    """Trace MODEL and show its parameters, regions, operators, FLOPs and bytes.

    No machine is needed. Bytes are what each operator alone reads and writes; FLOPs of attention count masked pairs.

    \b
    slipstick trace llama-3.1-8b
    slipstick trace deepseek-v3 --phase decode --batch 32 --seq 8192
    slipstick trace net.py:Net --allow-unpriced --coverage
    """  # noqa: D301
    from ..frontend.loading import check
    from ..frontend.runs.asked import AskedSizes
    from ..report.catalogue.contents import contents_of, sizes_of
    from ..report.results.tables import TraceResult

    check(model, dtype)
    asked = AskedSizes(inputs, loss or "", fixed, leaves, caches, {"seq": seq, "kv": seq, "batch": batch})
    graph = graph or _graph(model, phase, dtype, dims_of(dims), cache, quiet, allow_unpriced, asked)
    found = contents_of(graph, sizes_of(graph, *_own_sizes(graph, batch, seq)))
    if not coverage:
        return TraceResult(contents=found)
    from ..backends.machine.load import load_system
    from ..report.explain.pricing import priced_ops

    machine = load_system(system, (), stack)
    ops = priced_ops(graph, machine, found.sizes)
    return TraceResult(contents=found, pricing=ops, machine=machine.name)


def _own_sizes(graph: Graph, batch: int, seq: int) -> tuple[int, int]:
    """What was asked for; the numbers that a graph has for batch and length, where none were typed."""
    from ..ir.sizes.fixed_sizes import fixed_sizes

    ctx = click.get_current_context()
    own, length = fixed_sizes(graph)
    return (
        own if own is not None and not is_given(ctx, "batch") else batch,
        length if length is not None and not is_given(ctx, "seq") else length_for(graph, seq),
    )


def _graph(
    model: str,
    phase: str,
    dtype: str,
    dims: Mapping[str, str],
    cache: bool,
    quiet: bool,
    allow_unpriced: bool,
    asked: AskedSizes,
) -> Graph:
    from ..frontend import GraphCache, load

    kept = GraphCache.default() if cache else None
    report = None if quiet else (lambda line: click.echo(line, err=True))
    return load(model, phase, dtype, kept, report, dims, allow_unpriced, asked=asked)
