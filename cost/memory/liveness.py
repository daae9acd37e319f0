"""What a region holds while each of its nodes runs, kept or not, from its maker to its last reader, as expressions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set

from ...ir.graph import ONCE_A_STEP, Graph, Node, Phase, Region, Role
from ...ir.ops import Trait, has
from ...ir.sizes.expr import Expr, as_expr, divide_exactly, total
from ...ir.sizes.rounding import smaller
from ...passes.gathers import gathers_parameter

# Tokens that fused kernels of experts work on at a time where nothing is kept for a backward phase: vllm/envs.py,
# VLLM_FUSED_MOE_CHUNK_SIZE. SGLang's (fused_moe.py, CHUNK_SIZE) take twice as many.
EXPERT_TOKENS = 32768


def live_bytes(region: Region, received: Set[str] = frozenset()) -> list[Expr]:
    """Return, node by node, the bytes alive while the node runs in the last of the region's runs.

    Counted are results made in a phase that runs every micro-batch, inputs that are kept, and the gradients that come
    in through the ports in `received`. What the forward phase keeps dies behind its last reader in the backward phase,
    and what it made for later regions is gone when those are through with their backward phase. Parameters that are
    gathered together are freed together. Parameters, caches, running gradient sums and what lies in host memory have
    accounts of their own.
    """
    nodes = running(region)
    turn = next((k for k, n in enumerate(nodes) if n.phase is not Phase.FORWARD), len(nodes))
    last_read = _last_reads(region, nodes)
    leaving = {region.by_id[p.value].storage for p in region.outputs}
    skipped = _accounted_elsewhere(region)
    alive = {v.id: v.type.num_bytes for v in region.of_role(Role.INPUT) if v.saved}
    found: list[Expr] = []
    for step, node in enumerate(nodes):
        if step == turn:
            alive = {s: b for s, b in alive.items() if last_read.get(s, -1) >= turn} | {
                v.id: v.type.num_bytes for v in region.of_role(Role.PORT) if v.name in received
            }
        # Views share the storage of what they look at: it counts once, and lives as long as the last reader of any of
        # them.
        for s in {region.by_id[o].storage for o in node.outputs} - skipped:
            if region.by_id[s].role is Role.RESULT:
                alive.setdefault(s, _held_bytes(region, s, turn < len(nodes)))
        found.append(total(alive.values()))
        alive = {s: b for s, b in alive.items() if last_read.get(s, -1) > step or s in leaving}
    return found


def running(region: Region) -> list[Node]:
    """Return the nodes that run in every micro-batch."""
    return [n for n in region.nodes if n.phase not in ONCE_A_STEP]


def received_gradients(graph: Graph) -> frozenset[str]:
    """Return the ports through which a region takes what a later one's backward phase made."""
    return frozenset(p.name for r in graph.regions for p in r.outputs if r.phase_of(p.value) is Phase.BACKWARD)


def runs_behind(graph: Graph, name: str) -> Mapping[str, int]:
    """Return how often each region runs behind the last run of one: when that turns back, those have let go.

    >>> from slipstick.ir.graph import Run, Workload
    >>> from slipstick.ir.types import DType
    >>> regions = tuple(Region(n, (), ()) for n in "abc")
    >>> g = Graph("g", Workload.TRAIN, DType.BF16, regions, (Run(("a",)), Run(("b",), 8), Run(("c",))))
    >>> dict(runs_behind(g, "a"))
    {'c': 1, 'b': 8}
    """
    found: Counter[str] = Counter()
    for run in reversed(graph.schedule):
        if run.count and name in run.regions:
            found.update(run.regions[run.regions.index(name) + 1 :])
            break
        found.update(dict.fromkeys(run.regions, run.count))
    return found


def _last_reads(region: Region, nodes: Sequence[Node]) -> Mapping[int, int]:
    """The number of the last node that reads each storage, or reads something of the same unit."""
    found = {region.by_id[i].storage: step for step, node in enumerate(nodes) for i in node.inputs}
    # FSDP gathers the parameters of a unit into one buffer: the first of them to be done waits for the last.
    for node in nodes:
        if gathers_parameter(region, node):
            unit = max(found.get(o, -1) for o in node.outputs)
            found.update(dict.fromkeys(node.outputs, unit))
    return found


def _held_bytes(region: Region, value: int, trains: bool) -> Expr:
    """What passes by block by block is never there whole: a rank holds the block it works on and the next one."""
    made = region.producer.get(value)
    if made is not None and has(made, Trait.ROUTES) and value != made.outputs[0] and not trains:
        return _in_chunks(region, made, value)
    if made is not None and has(made, Trait.RING) and has(made, Trait.GATHERS):
        return region.by_id[made.inputs[made.outputs.index(value)]].type.num_bytes * 2
    users = region.users.get(value, ())
    if len(users) == 1 and has(users[0], Trait.RING) and has(users[0], Trait.SCATTERS):
        return region.by_id[users[0].outputs[users[0].inputs.index(value)]].type.num_bytes * 2
    return region.by_id[value].type.num_bytes


def _in_chunks(region: Region, made: Node, value: int) -> Expr:
    """Bytes of what experts have inside: rows of a chunk of tokens, each as often as it goes to an expert."""
    held, result = region.by_id[value].type, region.by_id[made.outputs[0]].type
    copies = divide_exactly(held.dims[0], result.dims[0])
    if not isinstance(copies, int):
        return held.num_bytes
    row = divide_exactly(held.num_bytes, held.dims[0])
    return held.num_bytes if row is None else as_expr(row) * smaller(held.dims[0], copies * EXPERT_TOKENS)


def _accounted_elsewhere(region: Region) -> set[int]:
    """Storages of sums and caches, of what lies in host memory, and of gathered parameters that are kept."""
    apart = (n for n in region.nodes if has(n, Trait.ACCUMULATES, Trait.WRITES_CACHE, Trait.TO_HOST))
    found = {region.by_id[o].storage for n in apart for o in n.outputs}
    whole = (o for n in region.nodes if gathers_parameter(region, n) for o in n.outputs)
    return found | {region.by_id[o].storage for o in whole if region.by_id[o].saved}
