"""A matched trace as tables: predicted and measured seconds of a step by op, by layer and by collective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from ...ir.records import dataclass
from ..traces.kinds import KernelKind
from ..traces.ran import Flags, Floats, Ints
from ..traces.trace import KINDS
from .match import How, Matched
from .planned import BACKWARD, OPTIMIZER, PlannedNode

_MATCHED = (How.SHAPE, How.CLASS)
# Nodes seen less often than this in a step, by their time: the trace holds part of a step.
_WHOLE = 0.95
# Nodes of one run that a row names.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class MatchedOp:
    """Nodes of one place in the model, predicted and measured, in seconds of a step over all layers and micro-batches.

    `how` says by what calls were matched: by `shape`, by `class` and order, as what is `between` two that were, or as
    the `optimizer`; `nothing` where nothing was. OpCalls are those of a step.
    """

    name: str
    part: str
    how: str
    nodes: tuple[str, ...]
    predicted_s: float
    measured_s: float
    predicted_calls: float
    measured_calls: float

    @property
    def gap_s(self) -> float:
        """Measured less predicted."""
        return self.measured_s - self.predicted_s

    @property
    def ratio(self) -> float | None:
        """Predicted / measured, None for what was not measured."""
        return self.predicted_s / self.measured_s if self.measured_s else None


@dataclass(frozen=True, slots=True)
class MatchedLayer:
    """A layer's forward and backward passes of all micro-batches; -1 is what belongs to no layer."""

    layer: int
    predicted_s: float
    measured_s: float


@dataclass(frozen=True, slots=True)
class MatchTables:
    """What a matched trace says.

    Attributes:
        ops: the ops, those that explain most of the gap first.
        layers: the layers in their order.
        shares: by class of kernel, the share of its time by how it was matched.
        seen: share of a step's products and attention, by predicted time, that the trace holds.
        untold: seconds of a step that were matched to nothing, by name of the operator or kernel, the longest first.
        measured_s: kernel seconds of a step.
    """

    ops: Sequence[MatchedOp]
    layers: Sequence[MatchedLayer]
    shares: dict[str, dict[str, float]]
    seen: float
    untold: dict[str, float]
    measured_s: float
    notes: tuple[str, ...] = ()

    @property
    def product_share(self) -> float:
        """Share of the time of matrix products that was matched to nodes by shape or class."""
        found = self.shares.get(str(KernelKind.GEMM), {})
        return found.get("shape", 0.0) + found.get("class", 0.0)


def tables_of(m: Matched) -> MatchTables:
    """Add up a matched trace."""
    groups = _Groups.of(m)
    ops = [*groups.anchors(), *groups.between(), *groups.optimizer()]
    ops = [row for row in ops if row.predicted_s or row.measured_s]
    counted = m.calls.time_us * m.counted
    return MatchTables(
        sorted(ops, key=lambda row: -abs(row.gap_s)),
        groups.layers(),
        _shares(m, counted),
        groups.seen_share,
        _untold(m, counted),
        float(counted.sum()) * 1e-6 / m.steps,
        groups.notes(),
    )


@dataclass(frozen=True, slots=True)
class _Groups:
    """Positions as anchors, which calls were matched to, and what follows each until the next.

    `home` is the anchor before each position, itself for an anchor, -1 before the first; `counts` says which positions
    are compared: all, or those that the trace holds. `group` is the node that names what is between, by position.
    """

    m: Matched
    anchor: Flags
    home: Ints
    group: Ints
    counts: Flags
    seen_share: float
    per_step: Floats = field(repr=False)

    @classmethod
    def of(cls, m: Matched) -> _Groups:
        """Find the anchors: nodes that any call was matched to."""
        where, hit = m.positions, np.isin(m.how, _MATCHED) & m.counted
        times = np.bincount(m.at[hit], minlength=len(where))
        for first, *others in m.merged:
            # What runs within another's product was seen with it.
            times[np.isin(where.node, others)] = times[where.node == first].max()
        can = _can_anchor(m)
        anchor = can & np.isin(where.node, np.unique(where.node[times > 0]))
        order = np.arange(len(where))
        loops = np.array([n.part in ("forward", "backward") for n in where.planned.nodes])[where.node]
        home = np.maximum.accumulate(np.where(anchor & loops, order, -1))
        weight = where.time_s * can
        seen = float(weight[times > 0].sum() / weight.sum()) if weight.any() else 0.0
        counts = np.ones(len(where), dtype=np.bool_)
        if seen < _WHOLE and anchor.any():
            counts = _held(can, times, loops)
        return cls(
            m, anchor, home, _named(where.node, anchor, home, loops), counts, seen, m.calls.time_us * 1e-6 / m.steps
        )

    def anchors(self) -> list[MatchedOp]:
        """Rows of nodes that calls were matched to, and of messages."""
        m, where = self.m, self.m.positions
        hit = np.isin(m.how, _MATCHED) & m.counted
        number = len(where.planned.nodes)
        # The first of the nodes with which each runs as one product, itself for most.
        node = np.arange(number)
        for nodes in m.merged:
            node[list(nodes)] = nodes[0]
        ran = node[where.node[m.at[hit]]]
        measured, calls = np.bincount(ran, self.per_step[hit], number), np.bincount(ran, minlength=number) / m.steps
        how = np.zeros(number, dtype=np.int64)
        how[ran] = m.how[hit]
        alone = _can_anchor(m) | self._messages()
        mine = node[where.node[alone & self.counts]]
        predicted = np.bincount(mine, where.time_s[alone & self.counts], number)
        # Nodes that ran as one are one call.
        times = np.bincount(where.node[alone & self.counts], minlength=number)
        rows = []
        for k in np.unique(node[where.node[alone]]).tolist():
            inside = [where.planned.nodes[i] for i in np.flatnonzero(node == k).tolist()]
            rows.append(
                MatchedOp(
                    " + ".join(map(self._label, inside)),
                    inside[0].phase,
                    How(int(how[k])).name.lower(),
                    tuple(n.node for n in inside),
                    float(predicted[k]),
                    float(measured[k]),
                    float(times[k]),
                    float(calls[k]),
                )
            )
        return rows

    def _label(self, node: PlannedNode) -> str:
        """Name a node, and of which of its two gradients a product of the backward pass is."""
        if node.part != BACKWARD or not node.products:
            return node.label
        is_weight = node.products[0].k == self.m.positions.tokens
        return f"{node.label}, gradient of the {'weight' if is_weight else 'input'}"

    def between(self) -> list[MatchedOp]:
        """Rows of what runs behind each anchor."""
        m, where = self.m, self.m.positions
        here = (m.how == How.BETWEEN) & m.counted
        # The last row is of what runs before the first anchor.
        number = len(where.planned.nodes) + 1
        last = np.append(self.group, number - 1)[m.at[here]]
        measured, calls = np.bincount(last, self.per_step[here], number), np.bincount(last, minlength=number) / m.steps
        own = self._between()
        mine = own & self.counts
        place = np.append(self.group, number - 1)[self.home]
        predicted = np.bincount(place[mine], where.time_s[mine], number)
        times = np.bincount(place[mine], minlength=number)
        rows = []
        for k in np.unique(np.concatenate((place[own], last))).tolist():
            inside = list(dict.fromkeys(where.node[own & (place == k)].tolist()))
            nodes = [where.planned.nodes[i] for i in inside]
            behind = where.planned.nodes[k] if k < number - 1 else None
            rows.append(
                MatchedOp(
                    _between_name([n.label for n in nodes], behind.label if behind else ""),
                    behind.phase if behind else "forward",
                    "between",
                    tuple(n.node for n in nodes),
                    float(predicted[k]),
                    float(measured[k]),
                    float(times[k]),
                    float(calls[k]),
                )
            )
        return rows

    def optimizer(self) -> list[MatchedOp]:
        """The row of the optimizer, whatever it runs."""
        m, where = self.m, self.m.positions
        here = (m.how == How.OPTIMIZER) & m.counted
        own = self._of_part(OPTIMIZER) & ~self._messages()
        if not here.any() and self.counts.all() and not own.any():
            return []
        # A trace without marks of optimizers has it behind the last node of the backward phase.
        nodes = tuple(where.planned.nodes[k].node for k in dict.fromkeys(where.node[own].tolist()))
        predicted = float(where.time_s[own].sum()) if here.any() or self.counts.all() else 0.0
        return [
            MatchedOp(
                "optimizer",
                OPTIMIZER,
                "optimizer" if here.any() else "nothing",
                nodes,
                predicted,
                float(self.per_step[here].sum()),
                float(own.sum()),
                int(here.sum()) / m.steps,
            )
        ]

    def layers(self) -> list[MatchedLayer]:
        """Seconds by layer; what is between two nodes is of the layer of the first."""
        m, where = self.m, self.m.positions
        inside = (self._of_part("forward") | self._of_part("backward")) & self.counts & ~self._messages()
        home = np.append(where.layer, -1)[self.home]
        here = np.isin(m.how, (*_MATCHED, How.BETWEEN)) & m.counted & (m.calls.kind != _COLLECTIVE)
        at = np.append(where.layer, -1)[m.at[here]]
        number = int(where.layer.max(initial=-1)) + 2
        predicted = np.bincount(home[inside] + 1, where.time_s[inside], number)
        measured = np.bincount(at + 1, self.per_step[here], number)
        rows = [MatchedLayer(k - 1, float(predicted[k]), float(measured[k])) for k in range(number)]
        # A trace of part of a step holds some layers alone.
        return [row for row in rows if row.predicted_s or row.measured_s]

    def notes(self) -> tuple[str, ...]:
        """Warnings about the answer."""
        notes, m = list[str](), self.m
        if not self.counts.all():
            notes.append(
                f"the trace holds part of a step: {self.seen_share:.0%} of its products and attention; "
                "predicted seconds are of the nodes that it holds"
            )
        if m.tokens != m.positions.tokens and m.positions.tokens:
            notes.append(
                f"the run has {m.tokens:,} tokens in a pass, the prediction {m.positions.tokens:,}: its "
                "sizes are matched as if they were as many, its seconds are not"
            )
        if m.merged:
            names = (" + ".join(m.positions.planned.nodes[k].label for k in run) for run in m.merged)
            notes.append(
                f"the run multiplies at once what the prediction does one by one: {'; '.join(names)}: a stack "
                "that merges them is nearer (--stack)"
            )
        return tuple(notes)

    def _messages(self) -> Flags:
        sent = np.array([n.sent is not None for n in self.m.positions.planned.nodes], dtype=np.bool_)
        return sent[self.m.positions.node]

    def _between(self) -> Flags:
        inside = self._of_part("forward") | self._of_part("backward")
        return inside & ~_can_anchor(self.m) & ~self._messages()

    def _of_part(self, part: str) -> Flags:
        there = np.array([n.part == part for n in self.m.positions.planned.nodes], dtype=np.bool_)
        return there[self.m.positions.node]


_COLLECTIVE = KINDS.index(KernelKind.COLLECTIVE)


def _can_anchor(m: Matched) -> Flags:
    """Return which positions are of nodes that calls can be matched to by their sizes; messages run beside."""
    sized = np.array([bool(n.products) or n.heads is not None for n in m.positions.planned.nodes], dtype=np.bool_)
    return sized[m.positions.node]


def _held(can: Flags, times: Ints, loops: Flags) -> Flags:
    """Return the positions that a trace of part of a step holds: nodes that were seen, and what follows them.

    What runs once a step is there where it was seen itself.
    """
    seen = can & (times > 0)
    home = np.maximum.accumulate(np.where(can & loops, np.arange(len(can)), -1))
    first = np.flatnonzero(can & loops)
    held = np.append(seen, bool(seen[first[0]]) if len(first) else False)[home]
    found: Flags = np.where(loops, held, times > 0)
    return found


def _named(node: Ints, anchor: Flags, home: Ints, loops: Flags) -> Ints:
    """Return for each position the node under which what is behind it is added up.

    Where nothing is predicted behind a node, what ran there is added to what is behind the node before.
    """
    has = np.zeros(int(node.max(initial=0)) + 1, dtype=np.bool_)
    inside = loops & ~anchor & (home >= 0)
    has[node[home[inside]]] = True
    named = anchor & has[node]
    before = np.maximum.accumulate(np.where(named, np.arange(len(node)), -1))
    return np.where(before >= 0, node[before], len(has) - 1 if not has.any() else node[np.flatnonzero(named)[0]])


def _between_name(labels: Sequence[str], behind: str) -> str:
    distinct = list(dict.fromkeys(labels))
    shown = ", ".join(distinct[:_NAMED]) + (f" and {len(distinct) - _NAMED} more" if len(distinct) > _NAMED else "")
    return f"{shown or 'nothing predicted'}, behind {behind}" if behind else shown or "nothing predicted"


def _shares(m: Matched, counted: Floats) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for number, kind in enumerate(KINDS):
        mine = m.calls.kind == number
        whole = counted[mine].sum()
        if whole:
            found[str(kind)] = {
                how.name.lower(): float(counted[mine & (m.how == how)].sum() / whole)
                for how in How
                if (mine & (m.how == how) & m.counted).any()
            }
    return found


def _untold(m: Matched, counted: Floats) -> dict[str, float]:
    found: dict[str, float] = {}
    for row in np.flatnonzero((m.how == How.NOTHING) & m.counted).tolist():
        longest = int(m.calls.longest[row])
        name = m.trace.name(int(m.trace.ran.op[longest])) or m.trace.name(int(m.trace.ran.name[longest]))
        shapes = m.trace.inputs[int(m.trace.ran.inputs[longest])] if m.calls.kind[row] != _COLLECTIVE else ""
        name = f"{name} {shapes}".strip()
        found[name] = found.get(name, 0.0) + float(counted[row]) * 1e-6 / m.steps
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))
