"""The price book of silicon: wafers, dies, packages, memories, interfaces between dies, and the design of all that."""

from __future__ import annotations

from ..system_numbers import Section


class SiliconSection(Section):
    """What dies and packages are made of, and for how much."""
