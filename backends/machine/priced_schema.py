"""What a system file holds whose prices are given with it."""

from __future__ import annotations

from ..prices.section import PricesSection
from .system_schema import UnpricedSection


class PricedSection(UnpricedSection):
    """The whole file and the whole book of prices, with what differs from the usual one put in place."""

    prices: PricesSection
