"""Pipelines of passes: textual form, running with verification, stopping and dumping after any pass."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from time import perf_counter
from types import MappingProxyType

from ..ir.errors import InternalError, NotUnderstoodError, ParseError, UnknownNameError, UsageError, VerifyError
from ..ir.graph import Graph
from ..ir.kept import RecentResults
from ..ir.records import dataclass
from ..ir.text.attrs_text import parse_attrs, print_attrs
from ..ir.verify import verify
from .base import Pass, PassResult
from .layouts.check import verify_layouts

# Name -> module and class; a pass is imported when a pipeline names it.
PASSES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "absorb": ("fusion.absorb", "Absorb"),
        "accumulate": ("optimizer", "Accumulate"),
        "adapt": ("adapters.adapt", "Adapt"),
        "bucket": ("bucket", "Bucket"),
        "compiled_loss": ("fusion.compiled_loss", "CompiledLoss"),
        "fuse": ("fusion.fuse", "Fuse"),
        "inplace": ("fusion.inplace", "InPlace"),
        "merge_heads": ("fusion.merge_heads", "MergeHeads"),
        "merge_products": ("fusion.merge_products", "MergeProducts"),
        "narrow_router": ("fusion.narrow_router", "NarrowRouter"),
        "mtp": ("mtp.mtp", "Mtp"),
        "next_norm": ("fusion.next_norm", "NextNorm"),
        "offload": ("offload", "Offload"),
        "one_kernel": ("fusion.one_kernel", "OneKernel"),
        "optimizer": ("optimizer", "Optimizer"),
        "pipeline": ("pipeline", "Pipeline"),
        "quantise": ("precision.quantise", "Quantise"),
        "quantise_cache": ("precision.quantise_cache", "QuantiseCache"),
        "recompute": ("recompute.recompute", "Recompute"),
        "remat": ("fusion.remat", "Remat"),
        "rotary_tables": ("fusion.rotary_tables", "RotaryTables"),
        "route": ("route", "Route"),
        "sample": ("sample", "Sample"),
        "shard": ("sharding.shard", "ShardPass"),
        "two_step_loss": ("fusion.two_step_loss", "TwoStepLoss"),
        "unfuse": ("fusion.unfuse", "Unfuse"),
        "spread_cache": ("sharding.spread_cache", "SpreadCache"),
        "window": ("window", "Window"),
    }
)

Dump = Callable[[int, Pass, Graph], None]
_PASS = re.compile(r"""\s*([a-z_]+)(?:\{((?:"(?:[^"\\]|\\.)*"|[^}"])*)\})?\s*(?:,|$)""")


@dataclass(frozen=True, slots=True)
class PassTime:
    """How long one pass took, and whether it changed the graph."""

    name: str
    time_s: float
    changed: bool


@dataclass(frozen=True, slots=True)
class PassPipeline:
    """Passes in order. Prints and parses as `shard{sp=true},fuse`."""

    passes: tuple[Pass, ...]

    def __str__(self) -> str:
        """Print so that `parse_pipeline` reads it back."""
        return ",".join(p.name + print_attrs(p).strip() for p in self.passes)

    def run(
        self, graph: Graph, stop_after: str | None = None, dump: Dump | None = None
    ) -> tuple[Graph, list[PassTime]]:
        """Run the passes; verify after each; stop behind the one named; hand each result to `dump`."""
        if stop_after is not None and stop_after not in (p.name for p in self.passes):
            raise UnknownNameError.of("pass in the pipeline", stop_after, [p.name for p in self.passes])
        times: list[PassTime] = []
        verified: Graph | None = None
        for number, step in enumerate(self.passes):
            start = perf_counter()
            graph, changed = _run_one(step, graph, [t.name for t in times], verified)
            verified = graph
            times.append(PassTime(step.name, perf_counter() - start, changed))
            if dump is not None:
                dump(number, step, graph)
            if step.name == stop_after:
                break
        return graph, times


class Prefixes:
    """Pipelines run on one graph, the passes that several begin with once; results are those of `PassPipeline.run`.

    A pass is verified with the first graph that it makes here under its options, and not with the next ones.
    """

    __slots__ = ("_found", "_graph", "_seen")

    def __init__(self, graph: Graph, most: int = 64) -> None:
        """Keep the graph that is to be lowered, and at most so many graphs that passes have made of it."""
        self._graph = graph
        self._found = RecentResults[tuple[Pass, ...], tuple[Graph, PassTime]](most)
        self._seen: set[Pass] = set()

    def run(self, pipeline: PassPipeline) -> tuple[Graph, list[PassTime]]:
        """Run what has not been run; times are those of the first run."""
        graph, before, times = self._graph, None, list[PassTime]()
        for number, step in enumerate(pipeline.passes):
            run = partial(self._run, step, graph, [t.name for t in times], before)
            before = graph = (found := self._found.of(pipeline.passes[: number + 1], run))[0]
            times.append(found[1])
        return graph, times

    def _run(self, step: Pass, graph: Graph, done: list[str], verified: Graph | None) -> tuple[Graph, PassTime]:
        start = perf_counter()
        made, changed = _run_one(step, graph, done, verified, check=step not in self._seen)
        self._seen.add(step)
        return made, PassTime(step.name, perf_counter() - start, changed)


def _run_one(
    step: Pass, graph: Graph, done: list[str], verified: Graph | None, check: bool = True
) -> tuple[Graph, bool]:
    step.requires(graph)
    result = _applied(step, graph) if graph.workload in step.workloads else PassResult(graph, changed=False)
    if not result.changed and result.graph is not graph:
        raise InternalError(f"pass '{step.name}' says it changed nothing and returns another graph (after {done})")
    if not result.changed:
        step.unchanged(graph)
    if check:
        _verify(result.graph, step.name, verified)
    step.ensures(result.graph)
    return result.graph, result.changed


def _applied(step: Pass, graph: Graph) -> PassResult:
    """Apply a pass; of a file of a user, what it stumbles over is what the file says."""
    try:
        return step.apply(graph)
    except (InternalError, LookupError, ArithmeticError) as error:
        if graph.origin:
            raise NotUnderstoodError(
                f"{graph.origin}: pass '{step.name}' cannot lower it ({type(error).__name__}: {error}); if nobody "
                "changed what slipstick wrote, please report it"
            ) from error
        raise


def _verify(graph: Graph, after: str, verified: Graph | None) -> None:
    """Verify what a pass has made; of a file of a user, what no pass can lower is no fault of a pass."""
    try:
        verify(graph, after, verified)
        verify_layouts(graph, after, verified)
    except VerifyError as error:
        if graph.origin:
            raise NotUnderstoodError(f"{graph.origin}: it cannot be lowered: {error}") from error
        raise


def pass_class(name: str) -> type[Pass]:
    """Return a pass by name; UnknownNameError names the nearest."""
    if name not in PASSES:
        raise UnknownNameError.of("pass", name, PASSES)
    module, cls = PASSES[name]
    found = getattr(import_module(f".{module}", __package__), cls)
    if not (isinstance(found, type) and issubclass(found, Pass)):
        raise InternalError(f"'{module}.{cls}' is not a pass")
    return found


def parse_pipeline(text: str) -> PassPipeline:
    """Read a pipeline: `shard{tp_plan="megatron", sp=true},fuse`.

    Unknown passes are reported at once; UsageError names the option that cannot be read.

    >>> str(parse_pipeline("shard{sp=true},fuse"))
    'shard{sp=true},fuse'
    """
    found: list[tuple[str, str]] = []
    pos = 0
    while pos < len(text):
        match = _PASS.match(text, pos)
        if match is None:
            raise UsageError(f"cannot read '{text[pos:]}' as passes; write them as name{{option=value}},name")
        found.append((match.group(1), match.group(2) or ""))
        pos = match.end()
    unknown = [name for name, _ in found if name not in PASSES]
    if unknown:
        raise UnknownNameError.of("pass", unknown[0], PASSES)
    return PassPipeline(tuple(_make(name, options) for name, options in found))


def _make(name: str, options: str) -> Pass:
    try:
        made = parse_attrs(pass_class(name), options)
    except ParseError as error:
        raise UsageError(f"pass '{name}': {error}") from error
    assert isinstance(made, Pass)
    return made
