"""Closed form of interleaved 1F1B over plans: as in `forms`, with ways that go round from the last stage to the first.

Times are those of one chunk, and every stage has v alike. With M = m v tasks of each kind, stage i runs
w_i = 2 (p - 1 - i) + (v - 1) p forward tasks ahead, then forward and backward by turns.
"""

from __future__ import annotations

import numpy as np

from ...records import dataclass
from ...sizes.expr import Num
from ..kind import PipelineShape
from .line import Array, Line, Places, longest, longest_later, one_number, other_way

# From so many rounds of p micro-batches on, interleaved steps differ in nothing but turns of one stage.
_ROUNDS = 7.0


def interleaved_s(line: Line, shape: PipelineShape) -> Array:
    """Return the seconds of a step of m / p rounds.

    There is one round in all plans or in none; where there is, each plan has a run that ends with stage (p - 1) // 2,
    the last that runs all forward tasks first.
    """
    total = np.asarray(shape.m * shape.v)
    rounds = one_number(np.clip(shape.m // shape.p, 1.0, _ROUNDS))
    loops = _Loops.of(line, shape.v, rounds * line.runs.num_stages * shape.v)
    one_round = bool(np.any(np.asarray(rounds) == 1.0))
    later = loops.later_s(one_round)
    around = None if one_round else loops.around_s(later)
    ways = [loops.filled_s(total)]
    for places in line.edges:
        ways.append(places.until_s[:, 0] + places.until_s[:, 1] + total * places.both_s)
        turns = loops.turns(places, later, total)
        ways.append(_one_round_s(places, turns, total) if around is None else _turning_s(places, turns, around))
    return longest(ways)


@dataclass(frozen=True, slots=True)
class _Turns:
    """Turns of the stages at some places.

    Attributes:
        own_s: the way to the first turn by the stage's own tasks, as (run, direction, plan).
        through_s: through later stages; -inf where there is none.
        turns_s: all turns but the first.
        spare: turns that a stage has at least, as (run, plan): none where it runs all forward tasks first.
    """

    own_s: Array
    through_s: Array
    turns_s: Array
    spare: Array


@dataclass(frozen=True, slots=True)
class _Loops:
    """Ways from the first forward task to the turns of each stage, and backwards in time from the turns to the end.

    Attributes:
        line: the stages.
        num_chunks: chunks of each.
        tasks: the least forward tasks of a step that any plan which looks alike has.
        first_s: what the last stage of each run takes until it may turn, its own tasks aside, and so the others.
        own_s: down to the last stage of each run, and until it turns by its own tasks.
    """

    line: Line
    num_chunks: Num
    tasks: Num
    first_s: Array
    own_s: Array

    @classmethod
    def of(cls, line: Line, num_chunks: Num, tasks: Num) -> _Loops:
        """Work out the ways by own tasks: on top of the way, rounds or tasks of one stage."""
        p, wrap, most = line.runs.num_stages, line.wrap_s, line.ends.most_s
        mixed = wrap + np.maximum(most[-1] * p, wrap) * (num_chunks - 2.0)
        first = np.maximum(most * (p * (num_chunks - 1.0)), mixed)
        return cls(line, num_chunks, tasks, first, _own_s(line, line.ends, first))

    def ahead(self, places: Places) -> Array:
        """Forward tasks that a stage runs before its first turn."""
        p = self.line.runs.num_stages
        return np.asarray(2.0 * (p - 1.0 - places.stage) + (self.num_chunks - 1.0) * p)

    def later_s(self, one_round: bool) -> Array:
        """Down to the end of each run or of a later one, and up again to the first stage."""
        ends = self.line.ends
        way = self.own_s + other_way(ends.through_s)
        return longest_later(np.where((self.ahead(ends) < self.tasks)[:, None], way, -np.inf) if one_round else way)

    def filled_s(self, total: Array) -> Array:
        """Round every chunk and back, and the micro-batches of a round at one stage."""
        p, most, filled = self.line.runs.num_stages, self.line.ends.most_s[-1], self.own_s[-1]
        turns = total - ((self.num_chunks - 1.0) * p + 1.0)
        return np.asarray(filled[0] + filled[1] + turns * np.maximum(most[0], most[1]))[None]

    def around_s(self, later_s: Array) -> Array:
        """Turns on a later stage until micro-batches of the second round pass, then down and round to the first."""
        line, ends = self.line, self.line.ends
        turns = 2.0 * ends.stage + 2.0 - line.runs.num_stages
        first = np.maximum(self.own_s, ends.through_later_s(later_s))
        way = first + (ends.both_s * turns)[:, None] + line.wrap_s - ends.through_s
        return np.asarray(np.maximum.reduce(np.where((turns >= 0.0)[:, None], way, 0.0), axis=0))

    def turns(self, places: Places, later_s: Array, total: Array) -> _Turns:
        """Return the turns of the stages at some places."""
        ahead = self.ahead(places)
        own = self.own_s[places.runs] if places.late is None else _own_s(self.line, places, self.first_s)
        turns = (total - (ahead + 1.0)) * places.both_s
        return _Turns(own, places.through_later_s(later_s), turns, self.tasks - ahead - 1.0)


def _own_s(line: Line, places: Places, first_s: Array) -> Array:
    """Down to a stage, what it takes until that may turn, and its tasks ahead of the last stage's."""
    ahead = 2.0 * (line.runs.num_stages - 1.0 - places.stage)
    return np.asarray(places.through_s + first_s + places.most_s * ahead[:, None])


def _turning_s(places: Places, turns: _Turns, around_s: Array) -> Array:
    """Chains with turns on one stage, to which and from which they come in any of three ways.

    By its own tasks none of its turns is over on arrival, through later stages half a one, and round 2 i + 2: there
    must be as many as a way there and a way back leave out, which only two ways round may not find.
    """
    over = 2.0 * places.stage + 2.0
    way = np.maximum(turns.own_s, turns.through_s)
    around = around_s + places.through_s - (places.both_s * over)[:, None]
    there = np.maximum(way[:, 0], around[:, 0])
    enough = 2.0 * over <= turns.spare + 0.5
    also = there if enough.all() else np.where(enough, there, way[:, 0])
    return np.asarray(np.maximum(there + way[:, 1], also + around[:, 1]) + turns.turns_s)


def _one_round_s(places: Places, turns: _Turns, total: Array) -> Array:
    """Chains of a step of one round, in which some stages have one turn and some none."""
    own, spare = turns.own_s, turns.spare
    way = np.maximum(own, turns.through_s)
    once = np.maximum(way[:, 0] + own[:, 1], own[:, 0] + way[:, 1])
    found = np.where(spare >= 1.0, way[:, 0] + way[:, 1], once) + turns.turns_s
    most = places.most_s[:, 0] + places.most_s[:, 1]
    all_first = places.through_s[:, 0] + places.through_s[:, 1] + (total - 1.0) * most
    # Through later stages, then all tasks of the other direction one behind the other.
    back = turns.through_s + other_way(places.through_s) + other_way(places.most_s) * (total - 1.0)
    none = np.maximum(np.maximum(back[:, 0], back[:, 1]), all_first)
    return np.where(spare > 0.0, found, np.where(spare < 0.0, none, np.maximum(found, all_first)))
