"""What a server makes of a load, on one screen."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import TYPE_CHECKING

import numpy as np

from ...cost.serving.batching.continuous import steady
from ...cost.serving.batching.static import static_batch
from ...driver.metrics import METRICS, format_metric
from ...driver.serve.traffic.simulated import PERCENTILES
from ...driver.uncertainty.answers import evidence_of_server, server_bands
from ...ir.plan.precision import counted_dtype
from ...ir.units import format_bytes, format_bytes_per_s, format_flop_per_s, format_time
from ..catalogue.engines import prompts_text
from ..explain.intervals import evidence_line, figures_line, half_line
from ..explain.provenance import shares_line, shares_of_server
from ..labels import low_types, request_part_label, stack_label
from ..tables import NARROW, bar, print_side_by_side, titled_table
from .money import serving_money_lines

if TYPE_CHECKING:
    from rich.table import Table

    from ...driver.serve.answer import ServeEstimate

# Shown in a line of their own, or of no use to people beside the others.
NOT_SHOWN = ("ttft_low_s", "ttft_high_s", "tokens_per_s", "total_tokens_per_s_per_gpu", "flops_per_request")
# Least share of the time of a request that has a line.
LEAST_SHARE = 5e-4
# Metrics whose intervals have room on a screen.
OF_INTERVALS = ("ttft_s", "tpot_s", "tokens_per_s_per_gpu")
# Loads of the table of other loads.
LOADS = 9


def serving_text(answer: ServeEstimate, columns: int, color: bool = False) -> str:
    """Return the answer for so many columns: metrics, memory, where the time of a request goes, and other loads."""
    from rich.console import Console

    console = Console(file=StringIO(), width=columns, force_terminal=color, highlight=False, emoji=False)
    with console.capture() as captured:
        console.print(serving_headline(answer), style="bold", markup=False)
        console.print(figures_line(answer.metrics, server_bands(answer), OF_INTERVALS), markup=False)
        print_side_by_side(console, serving_tables(answer, columns >= NARROW))
        lines = (*_notes(answer), *serving_money_lines(answer), *(f"note: {w}" for w in answer.warnings))
        for line in lines:
            console.print(line, markup=False)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def serving_tables(answer: ServeEstimate, wide: bool) -> list[Table]:
    """Return metrics, memory, where the time of a request goes, and other loads."""
    tables = [_metrics(answer), _memory(answer), _breakdown(answer, wide)]
    if answer.simulated is not None:
        return [*tables, _spread(answer)]
    return [*tables, _loads(answer)] if answer.pools is None else tables


def serving_headline(answer: ServeEstimate) -> str:
    """Say in one line what was estimated."""
    server, plan = answer.server, answer.server.plan
    graph = server.served.decode.source
    low = low_types(plan.family)
    device = f"{answer.num_gpus} x {server.system.chip.name}"
    if answer.pools is not None and answer.pools.prefill.system.name != server.system.name:
        parts = (answer.pools.prefill, answer.pools.decode)
        device = " + ".join(f"{one.plan.num_gpus} x {one.system.chip.name}" for one in parts)
    engine = stack_label(server.engine.name, server.system.assumed)
    return f"{graph.name}  serve  {device}  {engine}  {plan_text(answer)}  {requests_text(answer)}  {graph.dtype}{low}"


def plan_text(answer: ServeEstimate) -> str:
    """Say which degrees serve; of pools those of both."""
    if answer.pools is None:
        return answer.server.plan.degrees
    return f"prefill {answer.pools.prefill.plan.degrees}, decode {answer.pools.decode.plan.degrees}"


def requests_text(answer: ServeEstimate) -> str:
    """Say what requests are like and how they come."""
    prompt, output, cached = (
        float(np.asarray(n)) for n in (answer.lengths.prompt, answer.lengths.output, answer.lengths.cached)
    )
    hit = f" ({cached:g} cached)" if cached else ""
    given = answer.load.given.get(answer.load.name)
    shown = given if isinstance(given, str) else f"{given or 0:g}"
    most = "most within the target" if "request_goodput_rps" in answer.metrics else "most it answers"
    how = {
        "concurrency": f"concurrency {shown}",
        "requests_per_s": f"{shown} requests/s",
        "batch": f"static batch {shown}",
        "traffic": shown,
    }.get(answer.load.name, most)
    return f"isl {prompt:g}{hit}  osl {output:g}  {how}"


def _metrics(answer: ServeEstimate) -> Table:
    table, m = titled_table("Result", 2), answer.metrics
    for name, value in m.items():
        if name in METRICS and name not in NOT_SHOWN and (name != "itl_s" or value != m["tpot_s"]):
            table.add_row(METRICS[name].label, format_metric(name, value))
        if name == "ttft_s":
            table.add_row("  idle .. queue", f"{format_time(m['ttft_low_s'])} .. {format_time(m['ttft_high_s'])}")
    return table


def _memory(answer: ServeEstimate) -> Table:
    table = titled_table("Memory of a GPU" if answer.pools is None else "Memory of a decode GPU", 2)
    for name, value in answer.memory_bytes.items():
        if value > 0:
            table.add_row(name.replace("_", " ").replace("kv cache", "KV cache"), format_bytes(value))
    table.add_row("reserved by engine", format_bytes(sum(answer.memory_bytes.values())))
    table.add_row("capacity", format_bytes(float(answer.server.system.chip.hbm_bytes)), style="dim")
    return table


def _breakdown(answer: ServeEstimate, wide: bool) -> Table:
    """Parts that add up to the time of a request."""
    table = titled_table("Where the time of a request goes: seconds, share", 3)
    if wide:
        table.add_column(no_wrap=True)
    total, most = answer.metrics["e2el_s"], max(answer.breakdown_s.values())
    for name, value in answer.breakdown_s.items():
        if value >= LEAST_SHARE * total:
            more = (bar(value / most),) if wide else ()
            table.add_row(request_part_label(name), format_time(value), f"{value / total:.1%}", *more)
    table.add_row("request", format_time(total), "100.0%", *(("",) if wide else ()))
    return table


def _loads(answer: ServeEstimate) -> Table:
    """What other numbers of requests in flight come to, all replicas together; or other static batches of each."""
    server, replicas = answer.server, answer.server.num_replicas
    together = server.runs_together(answer.load)
    counted = "static batch" if together else "concurrency"
    table = titled_table(f"At other loads: {counted}, TTFT, TPOT, tokens/s/GPU, requests/s", 5)
    each = loads_of(answer.metrics["max_batch"])
    found = (static_batch if together else steady)(server.times, server.engine, each, answer.lengths)
    rates = found.requests_per_s * replicas
    tokens = found.output_tokens_per_s * replicas / server.plan.num_gpus
    for k, clients in enumerate(each):
        gap = "-" if np.isnan(found.tpot_s[k]) else format_time(float(found.tpot_s[k]))
        shown = clients if together else clients * replicas
        table.add_row(
            f"{shown:,.0f}",
            format_time(float(found.ttft_s[k])),
            gap,
            f"{tokens[k]:,.0f}",
            f"{float(rates[k]):.3g}",
        )
    return table


def _spread(answer: ServeEstimate) -> Table:
    """How latencies of simulated requests spread."""
    table = titled_table("Of the requests: mean, half, 90 %, 99 % within", 5)
    for name in ("ttft", "tpot", "itl", "e2el"):
        if f"{name}_s" in answer.metrics:
            values = (answer.metrics[f"{name}{part}_s"] for part in ("", *(f"_{p}" for p in PERCENTILES)))
            table.add_row(METRICS[f"{name}_s"].label, *map(format_time, values))
    return table


def loads_of(most: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return requests in flight from one to as many as fit, each twice the one before or more.

    >>> loads_of(20.0)
    array([ 1.,  2.,  4.,  8., 16., 20.])
    """
    step = max(2.0, most ** (1.0 / (LOADS - 1)))
    found = np.rint(step ** np.arange(LOADS))
    return np.unique(np.concatenate([found[found < most], [most]]))


def _notes(answer: ServeEstimate) -> Iterator[str]:
    """What the figures rest on."""
    server = answer.server
    at, host = server.engine.scheduler, server.engine.overheads
    as_of = f" of {server.engine.as_of}" if server.engine.as_of else ""
    ahead = ", room for all tokens before a start" if at.reserve_output else ""
    yield (
        f"engine: {server.engine.name}{as_of} on {server.system.stack.name} kernels; prompts {prompts_text(at)}, steps "
        f"of {at.max_batched_tokens:,} tokens and {at.max_num_seqs:,} sequences at most, blocks of {at.block_tokens} "
        f"tokens{ahead}"
    )
    yield (
        f"host: {format_time(host.step_s)} a step and {format_time(host.sequence_s)} a sequence of it, "
        f"{format_time(host.prompt_s)} a request and {format_time(host.prompt_token_s)} a token of its prompt"
    )
    if server.engine.accuracy is not None:
        yield f"error: {server.engine.accuracy}"
    bands = server_bands(answer)
    yield half_line(answer.metrics, bands, OF_INTERVALS)
    yield evidence_line(evidence_of_server(answer), bands["tpot_s"])
    more = "(--explain prefill:provenance, --explain decode:provenance, --explain settings)"
    yield f"times rest on: {shares_line(shares_of_server(answer))} {more}"
    if answer.pools is not None:
        link = answer.pools.link
        streamed = ", layer by layer" if link.layers > 1 else ""
        yield f"caches go from GPU to GPU at {format_bytes_per_s(link.bytes_per_s)}{streamed}"
    if server.speculation is not None:
        made = server.speculation
        yield (
            f"drafts: {made.length} tokens a round, each kept with probability {made.acceptance:g} if all before it "
            f"were: {made.tokens:.2f} tokens a round"
        )
    served, chip = server.served.decode, server.system.chip
    dtype = counted_dtype(server.plan.family, str(served.source.dtype))
    peak = format_flop_per_s(float(chip.matmul_flop_per_s(dtype)))
    of = f"{server.convention} attention FLOPs, of {peak} dense {dtype}"
    if "mfu" in answer.metrics:
        yield f"MFU: {of}; MBU: weights and cache of a decode step"
