"""Closed forms of GPipe and 1F1B over plans: the longest of the ways that a step can take through its tasks.

A step lasts as long as the longest chain of tasks, each of which waits for the one before it. The chains that can be
longest are few: down the stages, turns on a stage that works without a pause (or to and fro between stages that wait
for one another's messages), and up again. They are worked out here for stages that differ.
"""

from __future__ import annotations

import numpy as np

from ...sizes.expr import Num
from .line import Array, Line, Places, longest, longest_later, other_way


def gpipe_s(line: Line, num_micro_batches: Num) -> Array:
    """Return the seconds of a step: down all stages and up again, and all other micro-batches on the slowest ones.

    sum f + sum b + (m - 1) (max f + max b), with every message on the way.
    """
    return np.asarray(_prefix_s(line.ends.part(slice(len(line.ends.stage) - 1, None)), num_micro_batches)[0])


def one_f_one_b_s(line: Line, num_micro_batches: Num, few: bool) -> Array:
    """Return the seconds of a step of 1F1B.

    With `few`, no plan has more micro-batches than stages, and each has a run that ends with stage p - m, the last
    that runs all forward tasks first; without, every plan has more.

    A chain takes its turns, forward and backward, on one stage i: it has p - i micro-batches less for them, and on
    the way there and back it is with stages that cannot turn yet, or any more: by its own, stage i runs p - 1 - i
    forward tasks ahead; the longest of those before it may run them too. Through later stages it goes down to one of
    them, waits for its tasks ahead, and comes up again.
    """
    # The longest way down to the end of a run or a later one, the tasks that it runs ahead, and up to the start.
    ends = line.ends
    ahead = line.runs.num_stages - 1.0 - ends.stage
    way = ends.through_s + ends.most_s * ahead[:, None] + other_way(ends.through_s)
    later = longest_later(np.where((ahead < num_micro_batches)[:, None], way, -np.inf) if few else way)
    ways = [_turning_s(line, places, later, num_micro_batches, few) for places in line.edges]
    return np.maximum(longest([*ways, _all_first_s(line, num_micro_batches)] if few else ways), 0.0)


def _turning_s(line: Line, places: Places, later_s: Array, num_micro_batches: Num, few: bool) -> Array:
    """Chains that turn on the stages at these places, as (run, plan); -inf where there are too few micro-batches."""
    left = line.runs.num_stages - places.stage
    own = places.through_s + places.most_s * (left - 1.0)[:, None]
    way = np.maximum(own, places.through_later_s(later_s))
    turns = num_micro_batches - left
    there = way[:, 0] + way[:, 1]
    found = there + turns * places.both_s
    if line.send_s is not None and places is line.starts:
        found = np.maximum(found, _to_and_fro_s(line, turns - 1.0) + (there + places.both_s))
    if not few:
        return np.asarray(found)
    once = np.maximum(way[:, 0] + own[:, 1], own[:, 0] + way[:, 1])
    return np.where(turns > 0.0, found, np.where(turns == 0.0, once, -np.inf))


def _prefix_s(last: Places, num_micro_batches: Num) -> Array:
    """All forward tasks, then all backward tasks, on stages up to one of these."""
    most = last.most_s[:, 0] + last.most_s[:, 1]
    return np.asarray(last.through_s[:, 0] + last.through_s[:, 1] + (num_micro_batches - 1.0) * most)


def _all_first_s(line: Line, num_micro_batches: Num) -> Array:
    """Chains of few micro-batches: on stages up to p - m, or all on the way and the others in one direction."""
    ends = line.ends
    here = ends.stage == line.runs.num_stages - num_micro_batches
    whole = ends.through_s[-1, 0] + ends.through_s[-1, 1]
    others = whole + (num_micro_batches - 1.0) * np.maximum(ends.most_s[:, 0], ends.most_s[:, 1])
    return np.where(here, np.maximum(_prefix_s(ends, num_micro_batches), others), -np.inf)


def _to_and_fro_s(line: Line, turns: Array) -> Array:
    """Seconds of so many micro-batches between the first stage of a run and a later one, which wait for messages.

    Down L stages and up again are L micro-batches; what is left of them takes a shorter way, or turns on a stage.
    """
    assert line.send_s is not None
    starts, ends, num = line.starts, line.ends, line.runs.num
    both, found = starts.both_s, np.zeros(turns.shape)
    for at in range(len(found)):
        most, busy_s = both[at], np.zeros_like(both[at])
        for end in range(at, len(found)):
            most = np.maximum(most, both[end])
            busy_s = busy_s + both[end] * num[end]
            if end == at and (num[at] == 1.0).all():
                continue
            way_s = (ends.through_s[end, 0] - starts.until_s[at, 0]) + (ends.through_s[end, 1] - starts.until_s[at, 1])
            stages = ends.stage[end] - starts.stage[at] + 1.0
            rounds = np.floor(turns[at] / stages)
            left = turns[at] - rounds * stages
            others = np.maximum(stages - 1.0, 1.0)
            shorter = left * (busy_s / stages) + np.maximum(left - 1.0, 0.0) * ((way_s - busy_s) / others)
            seconds = np.maximum(found[at], rounds * way_s + np.maximum(shorter, left * most))
            found[at] = np.where(stages > 1.0, seconds, found[at]) if end == at else seconds
    return found if line.send_s.any(axis=0).all() else np.where(line.send_s.any(axis=0), found, 0.0)
