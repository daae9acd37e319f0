"""Accounts of memory for a table of plans: bytes by part of the stage that needs most, a few thousand plans at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...ir.plan import PlanTable
from ...ir.records import dataclass
from ...ir.schedules.kind import PipelineShape
from ..step.stages import Staging

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# What lies on the device, and what lies in host memory; the temporary part is the largest of the moments.
PARTS = ("weights", "gradients", "optimizer", "activations", "kv_cache")
AWAY = ("host_states", "host_activations")
TEMPORARY = "temporary"
# All of it: first what a parameter that a stage holds once can have, then the rest, what is kept of a micro-batch last.
ALL = ("weights", "gradients", "optimizer", "host_states", "kv_cache", "activations", "host_activations", TEMPORARY)
NUM_STATES = 4
_GRADIENTS, _ACTIVATIONS = ALL.index("gradients"), ALL.index("activations")
# Parts that a stage has as often as it runs a region, and those that every micro-batch in flight has.
STATES, KEPT = range(_ACTIVATIONS), range(_ACTIVATIONS, len(ALL) - 1)
_ON_DEVICE = tuple(k for k, part in enumerate(ALL) if part not in AWAY)
# Plans times classes of stages whose accounts stay in a core's cache.
_CHUNK = 4096


@dataclass(frozen=True, slots=True)
class StateBytes:
    """Bytes at every point.

    Attributes:
        layers: what every run of a region holds, as (region, part, point), the temporary part aside.
        shared: states of parameters that a stage holds once, as (parameter, state, point).
        moments: the most that one run has alive at once, as (moment, point).
        empty: placeholders of gradients, as (shape, point).
    """

    layers: Array
    shared: Array
    moments: Array
    empty: Array


@dataclass(frozen=True, slots=True)
class Rules:
    """What of the sizes a stage has, by the regions that it runs.

    Attributes:
        states: of each region, which of its parts a stage has as often as it runs the region; zeros are left out.
        kept: of each region, in the same way, which of its parts every micro-batch that is in flight has.
        ends: the region at whose end the forward phase turns.
        turn: the region of each moment.
        present: 1 where a moment needs a region, as (moment, region).
        behind: how often each region runs behind the last run of each, as (region, region).
        users: 1 where a shared parameter is used, as (parameter, region).
        shared: which states a shared parameter has.
        empty: how many placeholders of a shape each region has, as (shape, region).
    """

    states: tuple[slice, ...]
    kept: tuple[slice, ...]
    ends: int
    turn: Index
    present: Array
    behind: Array
    users: Array
    shared: tuple[slice, ...]
    empty: Array


@dataclass(frozen=True, slots=True)
class GradientCopies:
    """Of the software: what of gradients it has twice, and which stage is looked at.

    Attributes:
        gradient_share: size of a gradient as computed against its running sum; 0 where it is no tensor of its own.
        last: look at the last stage instead of the fullest.
    """

    gradient_share: float
    last: bool


def fullest(
    sizes: StateBytes, rules: Rules, point: Index, plans: PlanTable, staging: Staging, copies: GradientCopies
) -> Array:
    """Return bytes of the stage that needs most of the device, as (part, plan), in the order of `ALL`."""
    num, chunk = len(plans), max(_CHUNK // staging.num_classes, 1)
    if num <= chunk:
        return _fullest(sizes, rules, point, plans, staging, copies)
    found = np.empty((len(ALL), num))
    for start in range(0, num, chunk):
        some = slice(start, start + chunk)
        part = staging.part(some)
        found[:, some] = _fullest(sizes, rules, point[some], plans.part(some), part, copies)
    return found


def _fullest(
    sizes: StateBytes, rules: Rules, point: Index, plans: PlanTable, staging: Staging, copies: GradientCopies
) -> Array:
    runs = np.ascontiguousarray(staging.counts[staging.which].transpose(1, 2, 0))
    kept = sizes.layers[:, _ACTIVATIONS, point]
    found = _held(sizes.layers, point, runs, rules, plans, staging)
    _add_shared(found, sizes, rules, point, runs)
    found[:, -1] = _largest_moment(kept, sizes.moments[:, point], rules, runs)
    if copies.gradient_share:
        # Add buckets, and the moment when every gradient is there and one micro-batch has let go of what it kept.
        copy = found[:, _GRADIENTS] * copies.gradient_share
        let_go = np.zeros_like(copy)
        for k, held in enumerate(kept):
            let_go += held * runs[:, k]
        found[:, _GRADIENTS] += np.where(plans.dp > 1.0, copy, 0.0)
        found[:, -1] = np.maximum(found[:, -1], copy - let_go)
    # Where a stage holds chunks of copies of the model, what ZeRO shards, it shards over all of them.
    for part, zero in (("weights", 3), ("gradients", 2), ("optimizer", 1)):
        if plans.family.zero >= zero:
            found[:, ALL.index(part)] /= plans.of_schedule(lambda kind: kind.copies)
    if len(found) == 1:
        return np.asarray(found[0])
    there = staging.number[staging.which].T > 0.0
    # Part by part: a sum over an axis takes another order where there is one plan.
    first, *others = (found[:, k] for k in _ON_DEVICE)
    needed = np.where(there, sum(others, first), -np.inf)
    best = len(there) - 1 - there[::-1].argmax(axis=0) if copies.last else needed.argmax(axis=0)
    return np.asarray(np.take_along_axis(found, best[None, None], axis=0)[0])


def in_flight(staging: Staging, cls: int, plans: PlanTable) -> Array:
    """Return how many micro-batches' activations the earliest stage of a class holds at most, in all it holds."""
    shape = PipelineShape(plans.num_micro_batches, staging.stages, staging.chunks)
    first = staging.first[staging.which, cls]
    if plans.scheduled is None:
        return np.asarray(plans.family.pipeline.in_flight(shape, first))
    found = np.empty(len(plans))
    for kind, rows in plans.schedules():
        found[rows] = kind.in_flight(shape.of(rows), first[rows])
    return found


def _held(layers: Array, point: Index, runs: Array, rules: Rules, plans: PlanTable, staging: Staging) -> Array:
    """What runs of regions hold, as (class, part, plan); activations of every micro-batch that is in flight."""
    num_classes, _, num_plans = runs.shape
    # Activations of a stage are there for every micro-batch that has gone forward and not yet backward: under 1F1B
    # the first stage holds the most (Narayanan et al., arXiv 2104.04473).
    held = np.stack([in_flight(staging, k, plans) for k in range(num_classes)])
    found = np.zeros((num_classes, len(ALL), num_plans))
    # Where the forward pass ends, a micro-batch is used at once under some schedules.
    at_end = np.where(plans.of_schedule(lambda kind: kind.used_at_once), 1.0, held)
    for k, (states, kept) in enumerate(zip(rules.states, rules.kept, strict=True)):
        _add(found, states, layers[k], point, runs[:, k])
        _add(found, kept, layers[k], point, runs[:, k] * (at_end if k == rules.ends else held))
    return found


def _add(found: Array, parts: slice, num_bytes: Array, point: Index, times: Array) -> None:
    """Add parts so many times, as (class, plan)."""
    if parts.start < parts.stop:
        found[:, parts] += num_bytes[parts, point] * times[:, None]


def _add_shared(found: Array, sizes: StateBytes, rules: Rules, point: Index, runs: Array) -> None:
    """Add what a stage holds once: parameters of any region it runs, and the placeholders of the one with most."""
    # A parameter that several regions read, as a tied embedding, is there once on a stage that runs any of them.
    there = np.minimum(np.matmul(rules.users, runs), 1.0)
    for k, states in enumerate(rules.shared):
        _add(found, states, sizes.shared[k], point, there[:, k])
    if len(rules.empty):
        most = (rules.empty[..., None] * np.minimum(runs, 1.0)[:, None]).max(axis=2)
        for k, num_bytes in enumerate(sizes.empty):
            found[:, _GRADIENTS] += num_bytes[point] * most[:, k]


def _largest_moment(kept: Array, moments: Array, rules: Rules, runs: Array) -> Array:
    """The most that is alive beyond what counts as kept, where a stage has all regions that a moment needs.

    Let go is what counts as kept, but is in a region's own account or gone when the region turns to its backward phase.
    """
    # A moment of the backward phase holds nothing of the runs behind it, whose activations are freed already.
    gone = kept + np.zeros_like(runs)
    for k, num_behind in enumerate(rules.behind.T):
        if num_behind.any():
            gone += np.minimum(runs[:, k, None], num_behind[:, None]) * kept[k]
    here = np.matmul(rules.present, (runs > 0.0) * 1.0) >= rules.present.sum(axis=1)[:, None]
    beyond = np.where(here, moments - gone[:, rules.turn], 0.0)
    return np.asarray(np.maximum(beyond.max(axis=1), 0.0))
