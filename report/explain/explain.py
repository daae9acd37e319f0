"""Where one number comes from: formula, inputs, sources."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

import numpy as np

from ...backends.kernels.collective import IN_SWITCHES, constants_of
from ...backends.machine.system import System
from ...backends.network.algorithms.menu import IN_NETWORKS
from ...backends.network.collectives import CUSTOM, collective_time
from ...backends.pricing.places import placed_system
from ...backends.pricing.program import PricedEntry, group_factors
from ...backends.pricing.timing import PricedGroup
from ...cost.step.overlap import hidden_behind_products
from ...driver.estimate import Estimate
from ...driver.metrics import METRICS
from ...ir.errors import UnknownNameError
from ...ir.graph import ONCE_A_STEP, Node, Region
from ...ir.ops import Trait, Work, has
from ...ir.ops.collectives import CollectiveAttrs
from ...ir.plan.layout.stages import between_stages
from ...ir.sizes.masking import executed_share, touched_share
from ...ir.text.printer import print_node
from ...ir.units import format_bytes, format_flops, format_time
from ..cost.money import metrics_of
from ..numbers import by_origin, named, records_at, shown_with_source
from ..trace.memory_text import memory_text
from ..training_run import explain_run
from .metric import metric_lines
from .money_reasons import explain_money
from .provenance import provenance_text
from .trust import accuracy_of

MOST = 12


def explain_text(answer: Estimate, wanted: str) -> str:
    """Explain a metric by name, or nodes by name (`block0/%17`), op, or wildcard over module paths.

    `memory` explains the memory of the fullest stage over the step, `provenance` what times rest on. UnknownNameError
    names the nearest when nothing matches.
    """
    if wanted == "memory":
        return memory_text(answer)
    if wanted == "provenance":
        return provenance_text(answer)
    # The metric that a table shows under this label, else the text itself.
    labels = {m.label.lower(): m.name for m in METRICS.values()}
    wanted = labels.get(wanted.lower(), wanted)
    if answer.run is not None and wanted in answer.run.metrics:
        return explain_run(answer.run, wanted, answer.metrics)
    if wanted in answer.metrics:
        return "\n".join(metric_lines(answer, wanted))
    if wanted in metrics_of(answer.money):
        return explain_money(answer, wanted)
    found = [(p, i, e) for p in answer.table.timing.priced for i, e in enumerate(p.group.entries) if _is(e, wanted)]
    if not found:
        raise UnknownNameError.of("node, module, op or metric", wanted, names_of(answer))
    regions = [region.name for region in answer.table.lowered.graph.regions]
    found.sort(key=lambda one: (regions.index(one[2].region), one[2].key))
    shown = ["\n".join(_node(answer, p, i, e)) for p, i, e in found[:MOST]]
    if len(found) > MOST:
        shown.append(f"... and {len(found) - MOST} more; name one, or narrow the module path")
    return "\n\n".join(shown)


def _is(entry: PricedEntry, wanted: str) -> bool:
    if wanted in (entry.name, entry.op):
        return True
    return bool(entry.scope) and (fnmatchcase(entry.scope, wanted) or entry.scope.endswith("." + wanted))


def names_of(answer: Estimate) -> list[str]:
    """Name what may be explained: ops, module paths, metrics."""
    entries = [e for p in answer.table.timing.priced for e in p.group.entries]
    run = {} if answer.run is None else answer.run.metrics
    metrics = {*answer.metrics, *run, *metrics_of(answer.money)}
    return sorted({e.op for e in entries} | {e.scope for e in entries if e.scope} | metrics)


def _node(answer: Estimate, priced: PricedGroup, row: int, entry: PricedEntry) -> Iterator[str]:
    graph = answer.table.lowered.graph
    region = graph.region(entry.region)
    node = region.producer[entry.key]
    per = "step" if entry.phase in ONCE_A_STEP else "micro-batch"
    point = int(priced.point[0])
    time_s = float(priced.time_s[row, point])
    between, staging = between_stages(entry.region), answer.table.staging
    sent = [float(staging.sent(k)[entry.region][0]) for k in range(staging.num_classes)] if between else []
    count, where = max(sent, default=entry.count), " and stage" if between else ""
    yield f"{entry.name}  {entry.kind}, runs {count:.3g} time{'' if count == 1 else 's'} a {per}{where}"
    yield f"  {print_node(region, node)}"
    # Say what else a kernel does, and whether it is part of the message before it.
    if entry.inside:
        yield f"  one kernel of {', '.join(entry.inside)}"
    if entry.behind and answer.table.system.stack.fused_all_reduce:
        yield f"  part of the all-reduce over {entry.behind} before it, where that has more than one rank"
    yield f"  time {format_time(time_s)} each, {format_time(time_s * count)} a {per}"
    known = accuracy_of(answer, priced, row, entry)
    if known is not None:
        yield f"  measured: {known}"
    if entry.message is None:
        yield from _kernel(answer, priced, row, entry, point)
    else:
        yield from _forced(region, node, entry)
        yield from _collective(answer, priced, row, entry, point)
        yield from _hidden(answer, entry, time_s)


def _forced(region: Region, node: Node, entry: PricedEntry) -> Iterator[str]:
    """Say which two placements a message lies between, where it does not say so itself, having joined several."""
    if not isinstance(node.attrs, CollectiveAttrs) or " to " in node.attrs.why or between_stages(entry.region):
        return
    if entry.axis.pieces:
        yield "  ranks with a copy of the same heads sum what each has of their gradients"
        return
    before, after = region.by_id[node.inputs[0]], region.by_id[node.outputs[0]]
    came, went = ("+".join(map(str, dict.fromkeys(v.placement(a) for a in node.attrs.axes))) for v in (before, after))
    yield f"  each {came} to {went} over {entry.axis}"


def _hidden(answer: Estimate, entry: PricedEntry, time_s: float) -> Iterator[str]:
    """Say what runs at the same time: products beside a message taken apart, attention beside a ring."""
    timing, plans = answer.table.timing, answer.table.plans
    if has(entry, Trait.RING):
        yield "  hidden behind attention: all rings of a phase expose max(0, time - attention x (1 - 1/cp))"
    if not plans.family.async_tp:
        return
    for pair, _ in answer.table.lowered.step.booked(answer.plan.family).pairs:
        if (pair.region, pair.message) == (entry.region, entry.key):
            hidden = float(hidden_behind_products(timing, plans, [pair])[entry.region, entry.key][0])
            names = ", ".join(f"{pair.region}/%{k}" for k in pair.products)
            yield f"  exposed {format_time(time_s - hidden)} = max(0, time - products x (1 - 1/tp)); products: {names}"


def _kernel(answer: Estimate, priced: PricedGroup, row: int, entry: PricedEntry, point: int) -> Iterator[str]:
    """The terms of a kernel's time, what it does, and the numbers that its model takes."""
    kernels, system, work = priced.kernels, answer.table.system, entry.work
    if kernels is None or priced.backend is None:
        return
    env = {k: float(v[0]) for k, v in answer.table.plans.columns.items()}
    yield f"  priced by {priced.backend.name}: time = {priced.backend.formula}"
    for name, seconds in kernels.terms.items():
        yield f"    {name} {format_time(float(np.broadcast_to(seconds, kernels.time_s.shape)[row, point]))}"
    for unit, flops in (("tensor", work.tensor_flops), ("vector", work.vector_flops)):
        if flops != 0:
            yield f"    {unit}: ({flops}) FLOP = {format_flops(float(flops.evaluate(env)))}{_unmasked(work, env)}"
    moved = format_bytes(float(work.num_bytes.evaluate(env)))
    yield f"    bytes: ({work.num_bytes}) B = {moved}{_idle_experts(work, env)}"
    # One line for numbers of one place and source.
    records = records_at(system, priced.backend.numbers(entry, system))
    for (place, confidence, source), found in by_origin(records).items():
        yield f"    {place}: {named(found)} [{confidence}] {source}"
    yield f"  bound: {kernels.bound(row, point)}"


def _idle_experts(work: Work, env: Mapping[str, float]) -> str:
    """Say which expert weights no row needs."""
    if work.experts is None:
        return ""
    rows, num = (np.asarray(e.evaluate(env)) for e in (work.experts.rows, work.experts.num_experts))
    idle = float(work.experts.weight_bytes.evaluate(env)) * (1.0 - float(touched_share(rows, num)))
    return f" less {format_bytes(idle)} of experts that get no row"


def _unmasked(work: Work, env: Mapping[str, float]) -> str:
    """Say which share of the query-key pairs a mask leaves."""
    shape = work.attention
    if shape is None or not (shape.causal or shape.reach):
        return ""
    q, kv = np.asarray(shape.q_len.evaluate(env)), np.asarray(shape.kv_len.evaluate(env))
    share = float(executed_share(q, kv, shape.causal, shape.reach, shape.balanced))
    return f" x {share:.4g} (masked blocks are skipped)"


def _collective(answer: Estimate, priced: PricedGroup, row: int, entry: PricedEntry, point: int) -> Iterator[str]:
    found = priced.collective
    degrees = {k: float(v) for k, v in answer.plan.mesh.items()}
    (first, stride), *more = group_factors(entry.axis, degrees, answer.plan.family.order)
    degree = float(first) * math.prod(float(n) for n, _ in more)
    if found is None or priced.messages is None:
        return
    size = float(priced.messages[row, point])
    yield f"  message ({entry.message}) B = {format_bytes(size)} over {entry.axis}={degree:g}"
    if degree == 1:
        yield "  a group of one: no time"
        return
    system = placed_system(answer.table.system, answer.plan)
    single = collective_time(found.kind, size, first, stride, system, more, entry.across)
    best = single.chosen()
    for candidate in single.compared():
        slower = float(candidate.total_s) > float(best.total_s)
        mark = "chosen" if candidate.algorithm == best.algorithm else "slower" if slower else "as fast"
        yield f"    {candidate.algorithm} {format_time(float(candidate.time_s))} ({mark})"
    used = [t for t in best.terms if float(t.latency_s) or float(t.bandwidth_s)]
    for term in used:
        latency, bandwidth = format_time(float(term.latency_s)), format_time(float(term.bandwidth_s))
        yield f"    {term.level}: latency {latency} + bandwidth {bandwidth}"
        for record in records_at(system, _level_paths(system, term.level, found.kind, best.algorithm)):
            yield f"      {record.path.removeprefix(f'network.{term.level}.')}: {shown_with_source(record)}"
    yield f"    overhead {format_time(float(best.overhead_s))}"
    for record in records_at(system, _overhead_paths(system, [t.level for t in used], best.algorithm)):
        yield f"      {record.path}: {shown_with_source(record)}"


def _level_paths(system: System, name: str, kind: str, algorithm: str) -> tuple[str, ...]:
    """The numbers of a level, and what its protocol makes of it for a kind of collective."""
    (level,) = (v for v in system.levels if v.name == name)
    through = IN_SWITCHES if level.reduction_latency_s is not None and algorithm in IN_NETWORKS else kind
    used = constants_of(through) if level.protocol else ()
    return (f"network.{name}.", *(f"calibration.collective.{level.protocol}.{key}" for key in used))


def _overhead_paths(system: System, used: Sequence[str], algorithm: str) -> tuple[str, ...]:
    """Where the overhead comes from: the kernel of its own, the protocols of the levels used, else the software."""
    if algorithm in CUSTOM:
        return ("calibration.custom_all_reduce.default.",)
    protocols = [v.protocol for v in system.levels if v.protocol and v.name in used]
    return tuple(f"calibration.collective.{p}.overhead" for p in protocols) or ("stack.collective_overhead",)
