"""Kernels of several nodes: which run in the kernel of another, and what such a kernel does as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from .graph import Node, Region
from .ops import OpClass, Trait, Work, has, work_of
from .sizes.expr import Expr, as_expr, total


def joined(region: Region) -> Mapping[int, tuple[Node, ...]]:
    """Return, by the key of a node, all nodes of its kernel in running order; those alone in theirs are left out."""
    leads = {n.kernel for n in region.nodes if n.kernel is not None}
    found: dict[int, list[Node]] = {lead: [] for lead in leads}
    for node in region.nodes:
        lead = node.key if node.kernel is None else node.kernel
        if lead in found:
            found[lead].append(node)
    return {lead: tuple(nodes) for lead, nodes in found.items()}


def source_of(region: Region, value: int) -> int:
    """Return the value that a view, or a view of a view, looks at."""
    while (made := region.producer.get(value)) is not None and has(made, OpClass.FREE):
        value = made.inputs[0]
    return value


def kernel_work(region: Region, nodes: Sequence[Node]) -> Work:
    """Return the work of nodes that are one kernel: the sum, less what stays on the chip.

    What one makes and another reads is not read from memory, nor written where nobody else reads it; what several read
    is read once. Products, attention and experts come from the one node that has some.
    """
    works = [work_of(region, n) for n in nodes]
    main = next((w for w in works if w.gemms or w.attention or w.experts), works[0])
    return replace(
        main,
        tensor_flops=total(w.tensor_flops for w in works),
        vector_flops=total(w.vector_flops for w in works),
        read_bytes=total(w.read_bytes for w in works) - total(_unread(region, nodes)),
        write_bytes=total(w.write_bytes for w in works) - total(_unwritten(region, nodes)),
    )


def _unread(region: Region, nodes: Sequence[Node]) -> Iterator[Expr]:
    inside, seen = {o for n in nodes for o in n.outputs}, set[int]()
    for node in nodes:
        for i in dict.fromkeys(node.inputs):
            if i in seen or source_of(region, i) in inside:
                yield _read(region, node, i)
            seen.add(i)


def _unwritten(region: Region, nodes: Sequence[Node]) -> Iterator[Expr]:
    """What no node outside reads, in the region or behind it."""
    keys, needed = {n.key for n in nodes}, {source_of(region, p.value) for p in region.outputs}
    for reader in region.nodes:
        if reader.key not in keys and not has(reader, OpClass.FREE):
            needed |= {source_of(region, i) for i in reader.inputs}
    for node in nodes:
        yield from (_written(region, node, o) for o in node.outputs if o not in needed)


def _read(region: Region, node: Node, value: int) -> Expr:
    """Bytes of an input that the node's own work counts: of a cache nothing, of a table the rows looked up."""
    if has(node, Trait.APPENDS) and value != node.inputs[-1]:
        return as_expr(0)
    looked_up = has(node, Trait.LOOKS_UP) and value == node.inputs[0]
    return region.by_id[node.key if looked_up else value].type.num_bytes


def _written(region: Region, node: Node, value: int) -> Expr:
    """Bytes of a result that the node's own work counts: of a longer cache what was appended."""
    return work_of(region, node).write_bytes if len(node.outputs) == 1 else region.by_id[value].type.num_bytes
