"""The reference implementation of each op that a rank runs on its own."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .call import Reference
from .ops import (
    attention as ops_attention,
)
from .ops import (
    conv as ops_conv,
)
from .ops import (
    experts as ops_experts,
)
from .ops import (
    loss as ops_loss,
)
from .ops import (
    norm as ops_norm,
)
from .ops import (
    plain as ops_plain,
)
from .ops import (
    scan as ops_scan,
)

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
