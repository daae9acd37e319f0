"""Products that add weight gradients to running sums as they are made, with no kernel for the addition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ..ir.graph import Node, Region, Value
from ..ir.ops import Work


def sums_in_place(region: Region) -> tuple[Mapping[int, tuple[tuple[Value, Value], ...]], frozenset[int]]:
    """Return gradients and their sums by the key of the product that adds them, and the keys of those additions.

    A gradient that lives in the storage of its sum was never written: see `passes/inplace.py`.
    """
    found: dict[int, tuple[tuple[Value, Value], ...]] = {}
    added: set[int] = set()
    for source, addition in _additions(region):
        grad, made = region.by_id[addition.inputs[0]], region.by_id[addition.key]
        found[source.key] = (*found.get(source.key, ()), (grad, made))
        added.add(addition.key)
    return found, frozenset(added)


def work_of_sums(work: Work, sums: tuple[tuple[Value, Value], ...]) -> Work:
    """Return the work of a product that reads and writes running sums where it would write gradients."""
    for grad, made in sums:
        work = replace(
            work,
            read_bytes=work.read_bytes + made.type.num_bytes,
            write_bytes=work.write_bytes - grad.type.num_bytes + made.type.num_bytes,
        )
    return work


def _additions(region: Region) -> Iterator[tuple[Node, Node]]:
    for node in region.nodes:
        if node.op == "accumulate" and region.by_id[node.inputs[0]].storage == node.key:
            yield region.producer[node.inputs[0]], node
