"""The price book of machines: servers, networks, facilities, energy, carbon, and money itself."""

from __future__ import annotations

from ..system_numbers import Section


class OwnershipSection(Section):
    """What machines cost, to buy and to run."""
