"""The table of sharding rules: one for every op that can meet a sharded value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ...ir.errors import UnsupportedOpError
from ...ir.expr import Expr, total
from ...ir.graph import Node
from ...ir.ops import OpCall
from . import rules_attention, rules_layout, rules_matmul, rules_pointwise, rules_routing, rules_scan, rules_semantic
from .ask import REPLICATE, Answer, Ask, Placement, Rule, replicate_all

_FAMILIES = (
    rules_matmul, rules_pointwise, rules_layout, rules_attention, rules_semantic, rules_routing, rules_scan,
)  # fmt: skip
RULES: Mapping[str, Rule] = MappingProxyType({op: rule for f in _FAMILIES for op, rule in f.RULES.items()})


def rule_for(op: str, where: str) -> Rule:
    """Return the rule of an op; UnsupportedOpError names the node's module."""
    if op not in RULES:
        raise UnsupportedOpError(
            f"op '{op}' at '{where or 'the top'}' has no sharding rule, and an input of it is sharded; "
            f"--replicate-unknown gathers its inputs; ops with a rule: {', '.join(sorted(RULES))}"
        )
    return RULES[op]


def answer_of(node: Node, ask: Ask, replicate_unknown: bool) -> Answer:
    """Ask the node's rule; without one, whole inputs give whole outputs, and others are made whole only on request."""
    if node.op not in RULES and (replicate_unknown or all(p == REPLICATE for p in ask.given)):
        return replicate_all(ask)
    return rule_for(node.op, node.scope)(ask)


def gathered_bytes(node: Node, call: OpCall, given: Sequence[Sequence[Placement]]) -> Expr | None:
    """Bytes that an op without a rule makes its inputs whole for, None for an op that has one or asks for nothing."""
    changed = [t.num_bytes for t, where in zip(call.inputs, given, strict=True) if any(p != REPLICATE for p in where)]
    return None if node.op in RULES or not changed else total(changed)
