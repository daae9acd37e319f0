"""What the models of mixture of experts need to know of a measured row, one type a quantity."""

from __future__ import annotations

from typing import TypeAlias

from ...backends.kernels.exchange import ExchangeSizes
from ...backends.kernels.experts import ExpertSizes
from ...backends.kernels.grouped import GroupedSizes
from ...ir.records import dataclass


@dataclass(frozen=True, slots=True)
class LayerSizes:
    """A rank's experts, and what it sends to reach those of other ranks: as much comes back, the same way."""

    experts: ExpertSizes
    sent: ExchangeSizes
    way: str


MoeSizes: TypeAlias = ExpertSizes | GroupedSizes | ExchangeSizes | LayerSizes
