"""Nodes that serving engines run as one kernel: sums with norms, rotations with appends, routing, rows of experts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from ...ir.graph import Graph, Node, Region
from ...ir.kernels import source_of
from ...ir.ops import OpClass, Trait, has
from ...ir.records import dataclass
from ..base import Pass, PassResult, rewritten
from ..routers import routing

# A node with those that run in its kernel.
Joined = tuple[Node, Sequence[Node]]


@dataclass(frozen=True, slots=True)
class OneKernel(Pass):
    """Say which nodes run in the kernel of another: what passes between them stays on the chip.

    | kernel                  | nodes                                                                                 |
    |-------------------------|---------------------------------------------------------------------------------------|
    | norm behind a sum       | the residual's sum and its norm: `fused_add_rms_norm` (vLLM), `residual_rms_norm`     |
    | norms of heads          | of queries and keys, or of both latents: parts of one product                         |
    | rotation with append    | of queries and keys, what is put beside them, both appends to the cache:              |
    |                         | `applyBiasRopeUpdateKVCache` (TensorRT-LLM), `set_kv_buffer` in SGLang's rope         |
    | routing                 | scores, limits of groups, top-k, weights: `moe_fused_gate` (SGLang), `grouped_topk`   |
    | rows to experts         | copies of tokens, which grouped products (or messages) take from where tokens lie     |
    """

    name: ClassVar[str] = "one_kernel"
    sharded: ClassVar[bool | None] = True  # messages stand between kernels

    def apply(self, graph: Graph) -> PassResult:
        """Mark the nodes of every region."""
        return rewritten(graph, _marked)


def _marked(region: Region) -> Region:
    homes: dict[int, int] = {n.key: n.kernel for n in region.nodes if n.kernel is not None}
    leads: set[int] = set(homes.values())
    for rule in _RULES:
        for lead, nodes in rule(region):
            free = [n for n in nodes if n.key not in homes and n.key not in leads and n is not lead]
            if lead.key not in homes and free:
                homes.update((n.key, lead.key) for n in free)
                leads.add(lead.key)
    if all(homes.get(n.key) == n.kernel for n in region.nodes):
        return region
    return replace(region, nodes=tuple(replace(n, kernel=homes.get(n.key)) for n in region.nodes))


def _sums(region: Region) -> Iterator[Joined]:
    """A norm with the pointwise chain that makes what it normalises."""
    for norm in _of(region, Trait.NORMALISES_ROWS):
        made = region.producer.get(norm.inputs[0])
        if made is not None and has(made, Trait.POINTWISE):
            yield norm, [made]


def _norms(region: Region) -> Iterator[Joined]:
    """Norms of different parts of one product, in the kernel of the first."""
    found: dict[int, list[Node]] = {}
    for norm in _of(region, Trait.NORMALISES_ROWS):
        made = region.producer.get(source_of(region, norm.inputs[0]))
        if made is not None and has(made, OpClass.MATMUL):
            found.setdefault(made.key, []).append(norm)
    yield from ((first, others) for first, *others in found.values())


def _rotations(region: Region) -> Iterator[Joined]:
    """All rotations and appends before each attention, in the kernel of the first."""
    here: list[Node] = []
    for node in region.nodes:
        if has(node, Trait.ROTATES, Trait.APPENDS, backward=False) or _puts_beside(region, node):
            here.append(node)
        elif has(node, Trait.ATTENDS, backward=False):
            if here:
                yield here[0], here[1:]
            here = []


def _puts_beside(region: Region, node: Node) -> bool:
    """Whether a rotated part is put beside one that is not rotated: the kernel writes it there."""
    parts = (region.producer.get(i) for i in node.inputs)
    return has(node, Trait.JOINS) and any(p is not None and has(p, Trait.ROTATES, backward=False) for p in parts)


def _routing(region: Region) -> Iterator[Joined]:
    """What lies between router and bank, in the kernel of the last top-k."""
    nodes = [n for n in routing(region) if not has(n, OpClass.FREE)]
    last = next((n for n in reversed(nodes) if has(n, Trait.CHOOSES)), None)
    if last is not None:
        yield last, nodes


def _rows(region: Region) -> Iterator[Joined]:
    """Rows of a bank in the kernel that reads them first: a message, or the products."""
    for node in _of(region, Trait.DISPATCHES):
        reader = next((n for n in region.users.get(node.key, ()) if has(n, *_TAKE_ROWS)), None)
        if reader is not None:
            yield reader, [node]


def _of(region: Region, trait: Trait) -> Iterator[Node]:
    return (n for n in region.nodes if has(n, trait, backward=False))


_TAKE_ROWS = (OpClass.COMMUNICATION, OpClass.EXPERTS)
_RULES: tuple[Callable[[Region], Iterator[Joined]], ...] = (_sums, _norms, _rotations, _routing, _rows)
