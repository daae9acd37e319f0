"""The batch and length that a graph was made for, where they were not left open, and whether it has a length at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import PlanError, UsageError
from ..graph import Graph, LengthBound, Phase, Role, Value, Workload
from ..plan import Plan
from ..plan.layout.stages import between_stages
from .expr import Expr

Array: TypeAlias = NDArray[np.float64]
# What the batch is called: of all replicas in a traced graph, of one in a sharded graph.
_BATCH = frozenset(("batch", "mbs"))
_LENGTHS = frozenset(("seq", "kv"))


def fixed_sizes(graph: Graph) -> tuple[int | None, int | None]:
    """Return the fixed sequences and the fixed tokens of each, None where open.

    They are those of the first input of whole numbers, of rank two or more; where all inputs are images, signals or
    features, the first of these says the batch, and there is no length. Rows of the first input may be patches of
    pictures: what the graph is known to hold for goes before.
    """
    inputs = [v for v in _given(graph, Role.INPUT) if v.type.rank > 1]
    tokens = [v for v in inputs if not v.type.dtype.is_floating]
    batch, length = next((v.type.dims for v in (*tokens, *inputs)), (None, None))[:2]
    one_token = graph.workload is Workload.DECODE or not tokens
    known = next((b.low for b in graph.bounds if b.name == "batch" and b.low == b.high), batch)
    own = known if isinstance(known, int) and _symbols(graph).isdisjoint(_BATCH) else None
    return own, length if isinstance(length, int) and not one_token else None


def counts_tokens(graph: Graph) -> bool:
    """Whether samples are sequences: their length is open, or an input has whole numbers in rows.

    Where they are not (images of one size, rows of features), samples are what is counted.
    """
    tokens = (v for v in _given(graph, Role.INPUT) if v.type.rank > 1 and not v.type.dtype.is_floating)
    return not _symbols(graph).isdisjoint(_LENGTHS) or next(tokens, None) is not None


def fixed_samples(graph: Graph) -> frozenset[str]:
    """Return the ports through which samples of a fixed batch pass, and their gradients; none where it is open.

    Forward it is what is made of the inputs; backward all but what has the size of a parameter that regions share.
    """
    if fixed_sizes(graph)[0] is None:
        return frozenset()
    found: set[str] = set()
    for name in graph.sequence_once() * 2:  # what a layer makes, the next one of its kind reads
        region = graph.region(name)
        reached = {v.id for v in region.values if v.role is Role.INPUT or (v.role is Role.PORT and v.name in found)}
        for node in (n for n in region.nodes if n.phase is Phase.FORWARD and not reached.isdisjoint(n.inputs)):
            reached.update(node.outputs)
        found |= {p.name for p in region.outputs if p.value in reached}
    users = Counter((v.name, v.type.dims) for r in graph.regions for v in r.of_role(Role.PARAM))
    shared = {dims for (_, dims), num in users.items() if num > 1}
    for region in graph.regions:
        late = (p for p in region.outputs if region.phase_of(p.value) is Phase.BACKWARD)
        found |= {p.name for p in late if region.by_id[p.value].type.dims not in shared}
    return frozenset(found)


def check_sizes(graph: Graph, plan: Plan) -> None:
    """Refuse a plan for other sizes than a graph is of: its work would be that of its own sizes.

    UsageError for another batch or length, PlanError for what splits a batch or a length that cannot be.
    """
    check_bounds(graph, {"batch": plan.micro_batch, "kv": plan.kv_len, "seq": plan.seq_len})
    if plan.cp > 1 and not counts_tokens(graph):
        raise PlanError(f"cp={plan.cp}: '{graph.name}' has no sequence that ranks could share out; use cp=1")
    batch, _ = fixed_sizes(graph)
    if plan.ep > 1 and batch is not None:
        raise PlanError(
            f"ep={plan.ep}: '{graph.name}' has a fixed batch of {batch}, whose tokens cannot go to experts of other "
            "replicas; use ep=1, or make it with an open batch"
        )


def check_open(graph: Graph) -> None:
    """Refuse a graph with an open size that no plan has a value for; UsageError names it."""
    unknown = sorted(_symbols(graph) - _BATCH - _LENGTHS)
    if unknown:
        name = unknown[0]
        raise UsageError(
            f"'{graph.name}' has an open size '{name}', for which no plan has a value: record it with a number "
            f"(--fixed {name}=SIZE of a factory, --dim {name}=SIZE of a file, fixed={{'{name}': SIZE}} of "
            "slipstick.trace; --source-tokens SIZE where an encoder reads so many tokens)"
        )


def asked_bounds(graph: Graph) -> tuple[LengthBound, ...]:
    """Return the bounds that a plan can break: in a decode step the length of what is fed is one, whatever it says."""
    decode = graph.workload is Workload.DECODE
    return tuple(b for b in graph.bounds if b.name in ("batch", "kv") or (b.name == "seq" and not decode))


def check_bounds(graph: Graph, asked: Mapping[str, int]) -> None:
    """Refuse sizes by name at which the module does something else than what was recorded; UsageError says which."""
    for bound in asked_bounds(graph):
        size = asked.get(bound.name, bound.low)
        if bound.holds(size):
            continue
        flag, place = "--mbs" if bound.name == "batch" else "--seq", f" ({bound.where})" if bound.where else ""
        raise UsageError(
            f"'{graph.name}' is recorded for {bound.name} = {bound.legal}{place}, not for {size}: give {flag} "
            f"{bound.legal}, or where the code allows it record it for that size (--fixed {bound.name}={size} of a "
            f"factory, fixed={{'{bound.name}': {size}}} of slipstick.trace)"
        )
    # Refuse another batch or length than the numbers that a graph has in their place.
    own = zip(("--mbs", "--seq"), ("batch", "seq"), fixed_sizes(graph), strict=True)
    wrong = [f"{flag} {has}" for flag, name, has in own if has is not None and has != asked.get(name, has)]
    if wrong:
        raise UsageError(
            f"'{graph.name}' has fixed sizes: give {' '.join(wrong)}, or make it with open ones (dynamic_shapes of "
            "torch.export, mark_dynamic of torch.compile, dynamic_axes of ONNX) or with others (--fixed seq=LENGTH of "
            "a factory, fixed={'seq': LENGTH} of slipstick.trace)"
        )


def check_served(graph: Graph, longest: int) -> None:
    """Refuse a graph that does not hold for whatever a server runs: any batch, any tokens up to the longest request.

    A server pads what it runs to the next size that a graph holds for (`padded`), so that its ends alone count.
    """
    batch, length = fixed_sizes(graph)
    if batch is not None or length is not None:
        fixed = f"a batch of {batch}" if batch is not None else f"a length of {length}"
        raise UsageError(f"'{graph.name}' is recorded for {fixed}, and a server runs any: make it with open sizes")
    for bound in asked_bounds(graph):
        most = 0 if bound.name == "batch" else longest
        if bound.high and (not most or padded_size(graph, bound.name, most) > bound.high):
            place, wanted = f" ({bound.where})" if bound.where else "", f" up to {longest}" if most else ""
            raise UsageError(
                f"'{graph.name}' is recorded for {bound.name} = {bound.legal}{place}, and a server runs every size"
                f"{wanted}: estimate steps of it (--phase {graph.workload}), or record it so that it holds for all"
            )


def padded(graph: Graph, name: str, sizes: Array) -> Array:
    """Return sizes as a server runs them: each the next from it on that a graph holds for, by its low ends and steps.

    >>> graph = Graph("blocks", Workload.PREFILL, (), (), (), bounds=(LengthBound("seq", 256, 0, 128, (512,)),))
    >>> padded(graph, "seq", np.array([7.0, 256.0, 257.0, 500.0])).tolist(), padded(graph, "batch", np.array([3.0]))
    ([256.0, 256.0, 384.0, 640.0], array([3.]))
    """
    bounds = [bound for bound in asked_bounds(graph) if bound.name == name]
    before = np.full_like(sizes, np.nan)
    while bounds and not np.array_equal(sizes, before):
        before = sizes
        for bound in bounds:
            sizes = np.asarray(bound.low + np.ceil(np.maximum(sizes - bound.low, 0.0) / bound.step) * bound.step)
            sizes = sizes + bound.step * np.isin(sizes, bound.gaps)
    return sizes


def padded_size(graph: Graph, name: str, size: float) -> int:
    """Return one size as `padded` does, as a whole number."""
    return int(padded(graph, name, np.array([size], dtype=np.float64))[0])


def _given(graph: Graph, *roles: Role) -> Iterator[Value]:
    """Yield what the model is given; what stages exchange is made by other stages."""
    return (v for r in graph.regions if not between_stages(r.name) for v in r.of_role(*roles))


def _symbols(graph: Graph) -> frozenset[str]:
    """The symbols in the sizes of all inputs and caches."""
    dims = (d for v in _given(graph, Role.INPUT, Role.CACHE) for d in v.type.dims)
    return frozenset(s for d in dims if isinstance(d, Expr) for s in d.symbols)


__all__ = [
    "asked_bounds",
    "check_bounds",
    "check_open",
    "check_served",
    "check_sizes",
    "counts_tokens",
    "fixed_samples",
    "fixed_sizes",
    "padded",
    "padded_size",
]
