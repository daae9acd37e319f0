"""List the operators of a model and the way each is priced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ir.records import dataclass
from .prepare import dims_of, length_for
from .sources import Setting, Source, VerbArguments

if TYPE_CHECKING:
    from ..ir.graph import Graph
    from ..report.results.tables import TraceResult


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """A model, what it does not say itself, its sizes, and the machine on which its operators are priced."""

    model: str
    phase: str
    dtype: str
    batch: int
    seq: int
    coverage: bool
    system: str
    stack: str | None
    dims: tuple[str, ...]
    allow_unpriced: bool
    cache: bool
    quiet: bool
    inputs: tuple[str, ...]
    loss: str | None
    fixed: tuple[str, ...]
    leaves: tuple[str, ...]
    caches: tuple[str, ...]
    graph: Graph | None = None
    arguments: VerbArguments

    @classmethod
    def of(cls, arguments: VerbArguments) -> TraceRequest:
        """Return what arguments say."""
        return arguments.changed(arguments=Setting(arguments, Source.DEFAULT)).take(cls)


def trace_model(request: TraceRequest) -> TraceResult:
    """List parameters, regions, operators, FLOPs and bytes of a model, and where it is asked how they are priced."""
    from ..frontend.cache import GraphCache
    from ..frontend.loading import check, load_model
    from ..frontend.runs.options import TraceOptions
    from ..report.catalogue.contents import contents_of, sizes_of
    from ..report.results.tables import TraceResult

    check(request.model, request.dtype)
    sizes = {"seq": request.seq, "kv": request.seq, "batch": request.batch}
    options = TraceOptions(
        dims=dims_of(request.dims),
        allow_unpriced=request.allow_unpriced,
        inputs=request.inputs,
        loss=request.loss or "",
        fixed=request.fixed,
        leaves=request.leaves,
        caches=request.caches,
        sizes=sizes,
    )
    graph = request.graph or load_model(
        request.model,
        request.phase,
        request.dtype,
        GraphCache.default() if request.cache else None,
        None if request.quiet else request.arguments.talk.say,
        options,
    )
    found = contents_of(graph, sizes_of(graph, *_own_sizes(graph, request)))
    if not request.coverage:
        return TraceResult(contents=found)
    from ..backends.machine.load import load_system
    from ..report.explain.pricing import priced_ops

    machine = load_system(request.system, (), request.stack)
    ops = priced_ops(graph, machine, found.sizes)
    return TraceResult(contents=found, pricing=ops, machine=machine.name)


def _own_sizes(graph: Graph, request: TraceRequest) -> tuple[int, int]:
    """Return what was asked for; the numbers that a graph has for batch and length, where nobody gave any."""
    from ..ir.sizes.fixed_sizes import fixed_sizes

    arguments = request.arguments
    own, length = fixed_sizes(graph)
    batch = own if own is not None and not arguments.is_given("batch") else request.batch
    if length is not None and not arguments.is_given("seq"):
        return batch, length
    return batch, length_for(graph, request.seq, arguments)
