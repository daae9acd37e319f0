"""The reference implementation of each op that a rank runs on its own."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from . import ops_attention, ops_conv, ops_experts, ops_loss, ops_norm, ops_plain, ops_scan
from .call import Reference

REFERENCES: Mapping[str, Reference] = MappingProxyType(
    {
        **ops_plain.REFERENCES,
        **ops_norm.REFERENCES,
        **ops_attention.REFERENCES,
        **ops_experts.REFERENCES,
        **ops_loss.REFERENCES,
        **ops_scan.REFERENCES,
        **ops_conv.REFERENCES,
    }
)

__all__ = ["REFERENCES"]
