"""Closed forms of GPipe and 1F1B over plans: the longest of the ways that a step can take through its tasks.

A step lasts as long as the longest chain of tasks, each of which waits for the one before it. The chains that can be
longest are few: down the stages, turns on a stage that works without a pause (or to and fro between stages that wait
for one another's messages), and up again. They are worked out here for stages that differ.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .line import Line, Place, edges, ends
from .tasks import Array

# Of a stage: the longest way to its first turn by its own tasks alone, and through later stages.
Ways = Callable[[Place], tuple[Array, Array]]


def gpipe_s(line: Line, num_micro_batches: Array) -> Array:
    """Return the seconds of a step: down all stages and up again, and all other micro-batches on the slowest ones.

    sum f + sum b + (m - 1) (max f + max b), with every message on the way.
    """
    return _prefix_s(line, ends(line.row)[-1], num_micro_batches)


def one_f_one_b_s(line: Line, num_micro_batches: Array, few: int) -> Array:
    """Return the seconds of a step of 1F1B.

    `few` is the number of micro-batches where that is at most p, the same for all plans; more than p otherwise. Where
    it is at most p, the line has a run that ends with stage p - m, the last that runs all forward tasks first.

    A chain takes its turns, forward and backward, on one stage i: it has p - i micro-batches less for them, and on
    the way there and back it is with stages that cannot turn yet, or any more (`_ways`).
    """
    p = line.row.num_stages
    found = _all_first_s(line, num_micro_batches, p - few) if few <= p else np.zeros_like(num_micro_batches)
    heads, tails = _ways(line, few), _ways(line.mirrored, few)
    for place in edges(line.row):
        spare = few - (p - place.stage)
        if spare < 0:
            continue
        (own, through), (own_tail, through_tail) = heads(place), tails(place)
        head, tail = np.maximum(own, through), np.maximum(own_tail, through_tail)
        if spare == 0:
            found = np.maximum(found, np.maximum(head + own_tail, own + tail))
            continue
        turns = num_micro_batches - float(p - place.stage)
        x = line.both(place.run)
        found = np.maximum(found, head + tail + turns * x)
        if place.inside == 0:
            found = np.maximum(found, _to_and_fro_s(line, place, turns - 1.0) + (head + tail + x))
    return found


def _prefix_s(line: Line, last: Place, num_micro_batches: Array) -> Array:
    """All forward tasks, then all backward tasks, on stages up to one."""
    most = line.forward.most_s[last.run] + line.backward.most_s[last.run]
    return line.forward.through(last) + line.backward.through(last) + (num_micro_batches - 1.0) * most


def _all_first_s(line: Line, num_micro_batches: Array, stage: int) -> Array:
    """Chains of few micro-batches: on stages up to `stage`, or all on the way and the others in one direction."""
    here = next(place for place in ends(line.row) if place.stage == stage)
    last = ends(line.row)[-1]
    most = np.maximum(line.forward.most_s[here.run], line.backward.most_s[here.run])
    whole = line.forward.through(last) + line.backward.through(last)
    return np.maximum(_prefix_s(line, here, num_micro_batches), whole + (num_micro_batches - 1.0) * most)


def _ways(line: Line, few: int) -> Ways:
    """Ways from the first task to the first turn of a stage, its own forward task with it.

    By its own: stage i runs p - 1 - i forward tasks ahead; the longest of those before it may run them too. Through
    later stages: down to one of them, its tasks ahead, and up again.
    """
    p = line.row.num_stages
    forward, backward = line.forward, line.backward
    best: list[Array | None] = [None] * (len(line.row.runs) + 1)
    for place in reversed(ends(line.row)):
        way, later = None, best[place.run + 1]
        ahead = p - 1 - place.stage
        if ahead < few:
            way = forward.through(place) + forward.most_s[place.run] * ahead + backward.through(place)
        best[place.run] = later if way is None else way if later is None else np.maximum(way, later)

    def ways(place: Place) -> tuple[Array, Array]:
        own = forward.through(place) + forward.most_s[place.run] * (p - 1 - place.stage)
        last_of_run = place.inside == line.row.runs[place.run][2] - 1
        later = best[place.run + 1] if last_of_run else best[place.run]
        return own, own if later is None else later - backward.through(place)

    return ways


def _to_and_fro_s(line: Line, place: Place, turns: Array) -> Array:
    """Seconds of so many micro-batches between a stage and a later one, which wait for one another's messages.

    Down L stages and up again are L micro-batches; what is left of them takes a shorter way, or turns on a stage.
    """
    found = np.zeros_like(turns)
    if not line.sends:
        return found
    most, busy_s, way_s = line.both(place.run), np.zeros_like(turns), np.zeros_like(turns)
    for end in ends(line.row)[place.run :]:
        num = end.stage - place.stage + 1
        most = np.maximum(most, line.both(end.run))
        if num == 1:
            continue
        way_s = (line.forward.through(end) - line.forward.until(place)) + (
            line.backward.through(end) - line.backward.until(place)
        )
        busy_s = line.busy(place, end)
        rounds = np.floor(turns / num)
        left = turns - rounds * num
        shorter = left * (busy_s / num) + np.maximum(left - 1.0, 0.0) * ((way_s - busy_s) / (num - 1))
        found = np.maximum(found, rounds * way_s + np.maximum(shorter, left * most))
    return found
