"""What works on blocks of a search of servers: groups of candidates into columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from ...cost.serving.batching.continuous import steady
from ...cost.serving.batching.static import static_batch
from ...cost.serving.capacity import room
from ...cost.serving.metrics import ServingMetrics
from ...cost.serving.slo import tails_of
from ...cost.serving.traffic.requests import Lengths
from ...driver.serve.server import Server
from ...ir.records import dataclass
from ..block import Array, Block, Found
from ..goals import MetricLimit
from ..plans.job import TOO_LARGE
from .pools import PoolPiece, pools
from .rows import Rows, columns_of, taken
from .servers import RefusedServer, Servers
from .space import ServerSetting, ServingSpace
from .steps import StepBook
from .units import ServerGroup, SettingPart
from .verdicts import KEPT, SAME, TOO_MANY, Codes, Sorted, counted, verdicts

# Replicas that do both phases, under every load that is tried: one closed form for all numbers of them.


def replicas(space: ServingSpace, group: ServerGroup, server: Server, first: int, last: int) -> Sorted:
    """Sort the candidates of a group of replicas from `first` to before `last`."""
    lengths = space.lengths
    most = int(room(server.times, server.engine.scheduler, lengths, _together(server)))
    if most < 1:
        return Sorted({TOO_LARGE: last - first}, last - first)
    loads, codes = _loads(space, server, most)
    place, load = np.divmod(np.arange(first, last), len(codes))
    mine = codes[load]
    kept = np.flatnonzero(mine == KEPT)
    if not len(kept):
        return Sorted(counted(mine), last - first)
    return Sorted(counted(mine), last - first, _rows(group, server, lengths, loads, place[kept], load[kept], most))


def _loads(space: ServingSpace, server: Server, most: int) -> tuple[ServingMetrics, Codes]:
    """Closed forms of one replica under each load that is tried, those beyond its room as the first, and verdicts."""
    tried = np.array(space.batches, dtype=np.float64)
    fits = tried <= most
    best = _most_within(space, server, most) if space.has_target else np.zeros(0)
    found = _under(space, server, np.concatenate([np.where(fits, tried, 1.0), np.maximum(best, 1.0)]))
    codes = verdicts(space, found)
    codes[: len(tried)][~fits] = TOO_MANY
    codes[len(tried) :][np.isin(best, tried[fits])] = SAME
    return found, codes


def _most_within(space: ServingSpace, server: Server, most: int) -> Array:
    """The most requests that meet what is asked, one where none do."""
    tried = np.arange(1.0, most + 1.0)
    good = np.flatnonzero(verdicts(space, _under(space, server, tried)) == KEPT)
    return tried[good[-1:]] if len(good) else np.zeros(1)


def _under(space: ServingSpace, server: Server, batch: Array) -> ServingMetrics:
    form = static_batch if _together(server) else steady
    found = form(server.times, server.engine, batch, space.lengths)
    return tails_of(server.times, server.engine, space.lengths, space.target)(found)


def _together(server: Server) -> bool:
    return server.engine.scheduler.batching == "static"


def _rows(
    group: ServerGroup,
    server: Server,
    lengths: Lengths,
    loads: ServingMetrics,
    place: NDArray[np.intp],
    load: NDArray[np.intp],
    most: int,
) -> Rows:
    together, num = _together(server), len(place)
    able = server.most_together(lengths) if together else float(server.most(lengths).requests_per_s)
    none = np.zeros(num)
    return Rows(group, server, None, group.workers[place].astype(np.float64), none, none, taken(loads, load),
                np.full(num, able), float(most), {}, together)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServingWorker:
    """Works on blocks of a space of servers in one process.

    Attributes:
        space: what is searched.
        parts: candidates of a setting without pools and with them.
        servers: what was made so far.
        limits: what a server must keep besides latencies.
        book: what steps took so far.
    """

    space: ServingSpace
    parts: Mapping[bool, SettingPart]
    servers: Servers
    limits: tuple[MetricLimit, ...] = ()
    book: StepBook = field(default_factory=dict)

    def work(self, block: Block) -> Found:
        """Sort the candidates of a block, and price those that are kept."""
        setting = self.space.settings[block.part]
        found = self._sorted(setting, self.parts[setting.apart].pieces(block.first, block.last))
        pruned = sum((Counter(one.pruned) for one in found), Counter[str]())
        tables, numbers = [one.rows for one in found if one.rows is not None], self.space.numbers_of(setting)
        joined = columns_of(tables, self.space.lengths, self.space.terms, numbers, self.book)
        columns, dropped = self._within(setting, joined)
        return Found(block.number, dict(pruned + dropped), sum(one.num_legal for one in found), columns)

    def _within(self, setting: ServerSetting, columns: Mapping[str, Array]) -> tuple[Mapping[str, Array], Counter[str]]:
        """The rows that keep every limit, and how many do not, by the first that they break."""
        dropped: Counter[str] = Counter()
        for limit in self.limits:
            holds = limit.holds(columns[limit.name], float(self.servers.machine(setting)[0].chip.hbm_bytes))
            dropped[f"breaks {limit}"] = int((~holds).sum())
            columns = {name: column[holds] for name, column in columns.items()}
        # Without what nothing breaks.
        return columns, +dropped

    def _sorted(self, setting: ServerSetting, pieces: Iterable[tuple[ServerGroup, int, int]]) -> Sequence[Sorted]:
        """Sort the candidates of all pieces, piece by piece; pools of all of them are solved at once."""
        found = [self._piece(setting, *piece) for piece in pieces]
        solved = iter(pools(self.space, [one for one in found if isinstance(one, PoolPiece)]))
        return [next(solved) if isinstance(one, PoolPiece) else one for one in found]

    def _piece(self, setting: ServerSetting, group: ServerGroup, first: int, last: int) -> Sorted | PoolPiece:
        server = self.servers.server(setting, group.unit)
        if isinstance(server, RefusedServer):
            return Sorted({server.reason: last - first}, 0)
        if group.first is None:
            return replicas(self.space, group, server, first, last)
        prompts = self.servers.server(setting, group.first)
        if isinstance(prompts, RefusedServer):
            return Sorted({prompts.reason: last - first}, 0)
        return PoolPiece(group, (prompts, server), first, last)
