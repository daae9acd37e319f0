"""The whole price book: its schema, and the book as it was read."""

from __future__ import annotations

from dataclasses import dataclass

from ..records import NumberRecord
from .ownership_schema import OwnershipSection
from .silicon_schema import SiliconSection


class PricesSection(SiliconSection, OwnershipSection):
    """The whole book. A key of either half is a key of `prices`: `prices.nodes.N5.wafer_price`."""

    name: str


@dataclass(frozen=True, slots=True)
class Prices:
    """All that a cost is made of, checked, with every number's source."""

    section: PricesSection
    records: tuple[NumberRecord, ...]

    @property
    def name(self) -> str:
        """What the profile is called."""
        return self.section.name
