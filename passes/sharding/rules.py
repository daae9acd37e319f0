"""The table of sharding rules: one for every op that can meet a sharded value."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ...ir.errors import UnsupportedOpError
from . import rules_layout, rules_matmul, rules_pointwise, rules_routing, rules_semantic
from .ask import Rule

RULES: Mapping[str, Rule] = MappingProxyType(
    {**rules_matmul.RULES, **rules_pointwise.RULES, **rules_layout.RULES, **rules_semantic.RULES, **rules_routing.RULES}
)


def rule_for(op: str, where: str) -> Rule:
    """Return the rule of an op; UnsupportedOpError names the node's module."""
    if op not in RULES:
        raise UnsupportedOpError(
            f"op '{op}' at '{where or 'the top'}' has no sharding rule; ops with one: {', '.join(sorted(RULES))}"
        )
    return RULES[op]
