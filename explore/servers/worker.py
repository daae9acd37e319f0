"""What works on blocks of a search of servers: groups of candidates into columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..block import Array, Block, Found
from ..goals import Limit
from .pools import pools
from .replicas import replicas
from .rows import COLUMNS, columns_of
from .servers import Refused, Servers
from .space import ServingSpace, Setting
from .units import Group, Part
from .verdicts import Sorted


@dataclass(frozen=True, slots=True)
class ServingWorker:
    """Works on blocks of a space of servers in one process.

    Attributes:
        space: what is searched.
        parts: candidates of a setting without pools and with them.
        servers: what was made so far.
        limits: what a server must keep besides latencies.
    """

    space: ServingSpace
    parts: Mapping[bool, Part]
    servers: Servers
    limits: tuple[Limit, ...] = ()

    def work(self, block: Block) -> Found:
        """Sort the candidates of a block, and price those that are kept."""
        setting = self.space.settings[block.part]
        pieces = self.parts[setting.apart].pieces(block.first, block.last)
        found = [self._sorted(setting, *piece) for piece in pieces]
        pruned = sum((Counter(one.pruned) for one in found), Counter[str]())
        numbers = self.space.numbers_of(setting)
        tables = [
            columns_of(one.rows, self.space.lengths, self.space.terms, numbers) for one in found if one.rows is not None
        ]
        columns, dropped = self._within(setting, _joined(tables))
        return Found(block.number, dict(pruned + dropped), sum(one.num_legal for one in found), columns)

    def _within(self, setting: Setting, columns: Mapping[str, Array]) -> tuple[Mapping[str, Array], Counter[str]]:
        """The rows that keep every limit, and how many do not, by the first that they break."""
        dropped: Counter[str] = Counter()
        for limit in self.limits:
            holds = limit.holds(columns[limit.name], float(self.servers.machine(setting)[0].chip.hbm_bytes))
            dropped[f"breaks {limit}"] = int((~holds).sum())
            columns = {name: column[holds] for name, column in columns.items()}
        # Without what nothing breaks.
        return columns, +dropped

    def _sorted(self, setting: Setting, group: Group, first: int, last: int) -> Sorted:
        server = self.servers.server(setting, group.unit)
        if isinstance(server, Refused):
            return Sorted({server.reason: last - first}, 0)
        if group.first is None:
            return replicas(self.space, group, server, first, last)
        prompts = self.servers.server(setting, group.first)
        if isinstance(prompts, Refused):
            return Sorted({prompts.reason: last - first}, 0)
        return pools(self.space, group, (prompts, server), first, last)


def _joined(tables: list[Mapping[str, Array]]) -> Mapping[str, Array]:
    if not tables:
        return {name: np.zeros(0) for name in COLUMNS}
    return {name: np.concatenate([table[name] for table in tables]) for name in COLUMNS}
