"""Ask the rule of an op."""

from __future__ import annotations

from dataclasses import replace

from slipstick.passes.sharding.ask import Answer, Ask
from slipstick.passes.sharding.rules import rule_for


def answer_for(op: str, ask: Ask) -> Answer:
    """Return what the rule of an op says of a call."""
    return rule_for(op, "")(replace(ask, call=replace(ask.call, op=op)))
