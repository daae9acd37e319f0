"""Which served requests the numbers of engines were fitted to: what an engine's record of its fit says of a row."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class EngineRecords:
    """The fits behind each engine, each read once."""

    def saw(self, engine: str, dataset: str, group: str, system: str) -> bool:
        """Whether numbers that an engine has on the chip of a system were fitted to a row."""
        return False
