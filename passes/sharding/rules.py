"""The sharding rule of an op: the choice among the entries of its index map, or an exception."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...ir.errors import UnsupportedOpError
from ...ir.graph import Node, Region
from ...ir.ops import OPS, Trait, op_def
from ...ir.sizes.expr import Dim, total
from .ask import (
    REPLICATE,
    SAMPLE_AXES,
    Answer,
    Ask,
    Placement,
    Rule,
    has_own,
    makes_own_samples,
    of_own,
    per_replica,
    replicate_all,
    shares_samples,
)
from .choose import choose
from .exceptions import EXCEPTIONS

_WHOLE = ("unpriced", "custom")


def rule_of(op: str) -> Rule | None:
    """Return the rule of an op, None for one without an index map; quantised copies are made behind this pass."""
    if op in _WHOLE:
        return replicate_all
    given = op_def(op)
    has_rule = given.index_map is not None and Trait.QUANTISES not in given.traits
    return EXCEPTIONS.get(op, choose) if has_rule else None


def rule_for(op: str, where: str) -> Rule:
    """Return the rule of an op; UnsupportedOpError names the node's module."""
    rule = rule_of(op)
    if rule is None:
        raise UnsupportedOpError(
            f"op '{op}' at '{where or 'the top'}' has no sharding rule, and an input of it is sharded; "
            f"--replicate-unknown gathers its inputs; ops with a rule: {', '.join(sorted(filter(rule_of, OPS)))}"
        )
    return rule


def answer_of(node: Node, ask: Ask, replicate_unknown: bool) -> Answer:
    """Ask the node's rule; without one, whole inputs give whole outputs, and others are made whole only on request.

    What has no rule, or whose rule wants all inputs whole, runs per replica over data parallelism: never on the global
    batch.
    """
    if has_own(ask):
        return of_own(ask, rule_of(node.op) or replicate_all)
    samples, rule = shares_samples(ask), rule_of(node.op)
    if rule is None and not (samples or replicate_unknown or all(p == REPLICATE for p in ask.given)):
        rule = rule_for(node.op, node.scope)
    found = (rule or replicate_all)(ask)
    if samples and found == replicate_all(ask):
        return per_replica(ask)
    return makes_own_samples(ask, found)


def gather_notes(region: Region, node: Node, given: Iterable[Sequence[Placement]]) -> Iterator[str]:
    """Say what an op without a rule makes its inputs whole for; nothing for one that has a rule or gathers nothing.

    `given` says how each input lies along the axes over which it is made whole: those of data parallelism are none.
    """
    if rule_of(node.op) is not None:
        return
    types = region.types(node.inputs)
    changed = [t.num_bytes for t, lies in zip(types, given, strict=True) if any(p != REPLICATE for p in lies)]
    if changed:
        num_bytes = total(changed).substitute(dict[str, Dim](dict.fromkeys(SAMPLE_AXES, 1)))
        where = f"op '{node.op}' at '{node.scope or 'the top'}' ({region.name}, {node.phase})"
        yield f"{where} has no sharding rule: its inputs are gathered whole, {num_bytes} bytes each time"
