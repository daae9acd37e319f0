"""The whole price book: its schema, and the book as it was read."""

from __future__ import annotations

from typing import Annotated

from ...ir.records import dataclass
from ..machine.files.kinds import TextPattern
from ..machine.files.number import Number
from ..machine.files.records import NumberRecord
from ..machine.files.section import leaves_of
from ..machine.files.versions import AT
from .ownership_schema import OwnershipSection
from .silicon_schema import SiliconSection


class PricesSection(SiliconSection, OwnershipSection):
    """The whole book. A key of either half is a key of `prices`: `prices.nodes.N5.wafer_price`.

    Attributes:
        year: whose limits and prices these are; empty where each is of its own time.
    """

    name: str
    year: Annotated[str, TextPattern("20[0-9][0-9]")] = ""


@dataclass(frozen=True, slots=True)
class Prices:
    """All that a cost is made of, checked."""

    section: PricesSection

    @property
    def records(self) -> tuple[NumberRecord, ...]:
        """Every number with its path, unit and source, in the order of the schema."""
        leaves = leaves_of(self.section, "prices")
        return tuple(leaf.record(path) for path, leaf in leaves if isinstance(leaf, Number))

    @property
    def name(self) -> str:
        """What the profile is called, with its year."""
        return f"{self.section.name}{AT}{self.section.year}" if self.section.year else self.section.name

    def words(self) -> tuple[tuple[str, str], ...]:
        """Return what is chosen by a word, not by a number, with the path of each."""
        leaves = leaves_of(self.section, "prices")
        return tuple((path, leaf) for path, leaf in leaves if isinstance(leaf, str) and path != "prices.name")

    def others(self) -> dict[str, tuple[NumberRecord, ...]]:
        """Return what other sources say, by the path of the number."""
        leaves = leaves_of(self.section, "prices")
        return {path: leaf.records_of_others(path) for path, leaf in leaves if isinstance(leaf, Number) and leaf.others}
