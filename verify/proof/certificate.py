"""The certificate of a lowered graph: what was proven of it, region by region, and what was not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from types import MappingProxyType

from ...ir.graph import Graph, Node, Region
from ...ir.ops import Trait, has
from ...ir.ops.tensors.conv import ConvAttrs
from ...ir.ops.tensors.images import ChannelNormAttrs
from ...ir.ops.tensors.pointwise import ElementwiseAttrs, FillAttrs
from ...ir.records import dataclass
from .borders import gradient_faults, port_faults
from .check import is_conversion
from .numbering import Numbers
from .refine import ProofFault, refine, spoken, whole_source
from .rewrites import Rewritten, follow
from .stages import exchange_faults

# The update of parameters: each by its own gradient, and whole again on every rank that reads it.

_VIEWS = (Trait.TAKES_RANGE, Trait.CASTS, Trait.COPIES, Trait.TO_HOST, Trait.FROM_HOST)


def update_faults(region: Region) -> Iterator[ProofFault]:
    """Yield parameters that are updated by another one's gradient, not at all, or twice; and those left in shards."""
    steps = [n for n in region.nodes if has(n, Trait.UPDATES)]
    pairs = set(region.grads)
    updated = [pair for n in steps for pair in _pairs(region, n)]
    for param, grad in updated:
        if (param, grad) not in pairs:
            name = region.by_id[param].name
            yield ProofFault(region.name, f"update of '{name}'", f"reads %{grad}, which is not its gradient")
    for param, _ in region.grads if steps else ():
        times = sum(p == param for p, _ in updated)
        if times != 1:
            yield ProofFault(region.name, f"update of '{region.by_id[param].name}'", f"runs {times} times")
    for node in steps:
        yield from _left_in_shards(region, node)


def _pairs(region: Region, node: Node) -> Iterator[tuple[int, int]]:
    """Parameters and gradients of an update, behind what brings them there."""
    half = len(node.inputs) // 2
    grads = {g for _, g in region.grads}
    for p, g in zip(node.inputs[:half], node.inputs[half:], strict=True):
        yield _back(region, p, set()), _back(region, g, grads)


def _back(region: Region, value: int, ends: set[int]) -> int:
    """Go back through views and copies to one of some values, or to the first."""
    while value not in ends and (node := region.producer.get(value)) is not None and has(node, *_VIEWS):
        value = node.inputs[node.outputs.index(value)]
    return value


def _left_in_shards(region: Region, node: Node) -> Iterator[ProofFault]:
    """An updated shard of a parameter that rests whole must be gathered."""
    for given, made in zip(node.inputs, node.outputs, strict=False):
        param = region.by_id[_back(region, given, set())]
        reached, todo = {made}, [made]
        while todo:
            for user in region.users.get(todo.pop(), ()):
                new = [o for i, o in zip(user.inputs, user.outputs, strict=False) if i in reached and o not in reached]
                reached |= set(new)
                todo += new
        if all(region.by_id[r].placements != param.placements for r in reached):
            yield ProofFault(region.name, spoken(node), f"leaves '{param.name}' in shards, where it rests whole")


# Which ops a theorem carries from two ranks to any number, and which it does not: Lu et al. (TrainVerify, arXiv
# 2506.15961, appendix C). Where every entry of a result is one function of entries at affine places, summed by an
# associative reduction, parts that are equal at size 2 are equal at every size. Masks, orders and places that data
# decide are no such functions. Entries of our truth tables were computed on 2 and 3 ranks: for the ops below they are
# evidence, not proof.
NOT_COVERED: Mapping[str, str] = MappingProxyType(
    {
        "attention": "mask", "attention_bwd": "mask", "index_keys": "choice of keys", "topk": "order", "sort": "order",
        "embedding": "rows by data", "embedding_bwd": "rows by data", "gather": "places by data",
        "scatter": "places by data", "cross_entropy": "target by data", "cross_entropy_bwd": "target by data",
        "dispatch": "experts by data", "dispatch_bwd": "experts by data", "combine": "experts by data",
        "combine_bwd": "experts by data", "expert_bank": "experts by data", "expert_bank_bwd": "experts by data",
        "experts": "experts by data", "experts_bwd": "experts by data", "grouped_matmul": "groups by data",
        "quantise": "rounding", "unpriced": "unknown", "custom": "unknown",
    }
)  # fmt: skip


def reason(region: Region, node: Node) -> str | None:
    """Return why the theorem does not cover a node, None when it does."""
    if is_conversion(region, node):
        return None
    if isinstance(node.attrs, FillAttrs):
        return "random numbers" if node.attrs.kind == "random" else None
    if isinstance(node.attrs, ChannelNormAttrs) and node.attrs.kind == "batch" and not node.attrs.given:
        return "statistics of a replica's own samples"
    if isinstance(node.attrs, ElementwiseAttrs):
        return "random numbers" if "dropout" in node.attrs.fns else None
    if isinstance(node.attrs, ConvAttrs) and any(str(p) == "S(2)" for _, p in region.by_id[node.key].placements):
        return "neighbour's last positions, no message"
    return NOT_COVERED.get(node.op)


def uncovered(regions: Iterable[Region]) -> Mapping[tuple[str, str], int]:
    """Count the nodes that the theorem does not cover, by op and reason."""
    found = ((n.op, why) for r in regions for n in r.nodes if (why := reason(r, n)) is not None)
    return Counter(found)


SHARD, FUSE = "shard", "fuse"
# Passes behind `shard` that repeat, join and append nodes and rewrite none: behind them every node has its counterpart.
KEEPING = frozenset(("bucket", "optimizer", "pipeline", "fuse", "recompute", "remat", "inplace", "offload"))


@dataclass(frozen=True)
class Certificate:
    """What was proven.

    `sharded` and `lowered` count the nodes proven of the graph behind `shard` and of the final one; `given` names the
    passes before `shard`, whose result is what is proven against; `anew` are nodes that later passes wrote in the place
    of others, of which placements alone are proven.
    """

    name: str
    regions: tuple[str, ...]
    sharded: int
    lowered: int
    faults: tuple[ProofFault, ...] = ()
    given: tuple[str, ...] = ()
    anew: tuple[str, ...] = ()
    uncovered: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether nothing was left unproven that should have been proven."""
        return not self.faults

    def lines(self) -> Iterator[str]:
        """Yield the certificate for people."""
        yield f"regions    {len(self.regions)} distinct: {', '.join(self.regions)}"
        yield f"nodes      {self.sharded} of the sharded graph, {self.lowered} of the lowered one"
        if self.given:
            yield f"given      the traced graph behind {', '.join(self.given)}"
        if self.anew:
            yield f"rewritten  {len(self.anew)} nodes, of which placements alone are proven, such as {self.anew[0]}"
        listed = ", ".join(f"{op} x{n} ({why})" for (op, why), n in sorted(self.uncovered.items()))
        yield f"open       {listed or 'nothing'}"
        for fault in self.faults[:10]:
            yield f"unproven   {fault}"


def certify(
    before: Graph, sharded: Graph, lowered: Graph, passes: Sequence[str] = (), unfused: Graph | None = None
) -> Certificate:
    """Prove a sharded graph against the graph before, and the lowered one against the sharded one.

    `passes` are those that ran, in order; `unfused` is the graph in front of `fuse`, which tells the results of fused
    kernels by the names that they keep. Regions that repeat are proven once.
    """
    place = passes.index(SHARD) if SHARD in passes else -1
    lenient = not KEEPING.issuperset(passes[place + 1 :])
    faults: list[ProofFault] = []
    source, count = whole_source(before, sharded.axes), 0
    for region in sharded.regions:
        walk = refine(source[region.name], region)
        faults += walk.faults
        count += walk.proven
    steps = [g for g in (sharded, unfused, lowered) if g is not None]
    walks = [w for near, far in pairwise(steps) for w in _follow(near, far, lenient)]
    faults += [*_borders(sharded), *(f for w in walks for f in w.faults), *_borders(lowered), *exchange_faults(lowered)]
    return Certificate(
        lowered.name,
        tuple(r.name for r in lowered.regions),
        count,
        sum(w.proven for w in walks[-len(lowered.regions) :]),
        tuple(dict.fromkeys(faults)),
        tuple(passes[: max(place, 0)]),
        tuple(dict.fromkeys(n for w in walks for n in w.anew)),
        uncovered(sharded.regions),
    )


def _follow(near: Graph, far: Graph, lenient: bool) -> Iterator[Rewritten]:
    for region in far.regions:
        beside = near.by_name.get(region.name, Region(region.name, (), ()))
        yield follow(Numbers.of(beside), region, lenient)


def _borders(graph: Graph) -> Iterator[ProofFault]:
    yield from port_faults(graph)
    for region in graph.regions:
        yield from gradient_faults(region)
        yield from update_faults(region)
