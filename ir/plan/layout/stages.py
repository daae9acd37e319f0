"""How a graph's regions fall on pipeline stages: one layout a degree, stages alike as one class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, groupby
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...errors import PlanError
from ...graph import Graph
from ...layers import LayerRow, Unit, layer_row
from ...records import dataclass
from ...schedules.registry import USUAL, schedule_kind
from ...sizes.expr import Num
from .. import LAYOUTS
from .many_parts import many_parts
from .partition import Balance, even_parts, filled_parts

# Begins the name of a region of what crosses from one stage to the next; no pass over the model runs it, a stage does.
BOUNDARY = "boundary"
# Begins the name of a region in which stages that hold copies of a weight add up its gradients, once a step.
SHARED = "shared"
# Ends the name of a layer's region that recomputes, beside one that does not.
RECOMPUTED = "_recomputed"
# The policy that fills stages one by one.
FILLED = "filled"
# Layers that each chunk recomputes, its first ones: 0 where the graph says, or a number a chunk.
Recomputed: TypeAlias = int | tuple[int, ...]
# Makes a row ready to be balanced: costs of its blocks, and what its first and its last part cost on top.
Balancer = Callable[[Sequence[float], float, float], Balance]


@dataclass(frozen=True, slots=True)
class StageClass:
    """Stages that run the same regions equally often.

    Attributes:
        counts: how often each region of the graph runs in one pass over all chunks, in the order of `Graph.regions`;
            of what crosses a border, how often the stage receives it.
        messages: how often the stage waits for what each region sends between stages: each chunk for the border before
            it, and the first for the one behind; of a sum over g stages 2 (g - 1)/g times, as round a ring.
        first: index of the earliest of them, 0 for the first stage.
        number: how many there are.
    """

    counts: tuple[int, ...]
    messages: tuple[float, ...]
    first: int
    number: int


@dataclass(frozen=True, slots=True)
class StageLayout:
    """One way to lay a graph on stages.

    Attributes:
        pp: stages.
        vpp: chunks a stage.
        blocks: blocks of each chunk, in the order of the model.
        classes: the classes of stages, by their first stage.
        stages: the class of every stage.
        held: the chunks of every stage; with two copies of the model (DualPipe), one of each.
    """

    pp: int
    vpp: int
    blocks: tuple[int, ...]
    classes: tuple[StageClass, ...]
    stages: tuple[int, ...]
    held: tuple[tuple[int, ...], ...]

    @property
    def copies(self) -> int:
        """How many stages hold each chunk: of the micro-batches, each runs its part."""
        return max(1, len(self.held) * len(self.held[0]) // len(self.blocks))

    def __str__(self) -> str:
        """Print blocks stage by stage, chunks of a stage joined, equal neighbours once: `8, 9 (x6), 8`."""
        stages = ("+".join(str(self.blocks[c]) for c in chunks) for chunks in self.held)
        runs = ((text, len(list(same))) for text, same in groupby(stages))
        return ", ".join(text if num == 1 else f"{text} (x{num})" for text, num in runs)


def lay_stages(
    graph: Graph,
    policy: str,
    pp: int,
    vpp: int = 1,
    costs: Sequence[float] | None = None,
    recomputed: Recomputed = 0,
    schedule: str = USUAL,
) -> StageLayout:
    """Lay a graph on stages.

    Args:
        graph: its first region goes to the first stage, its last to the last.
        policy: `even`; `balanced` by cost; `auto` (even where the blocks divide, else balanced); `filled` to their
            shares of the cost, one by one; or blocks a chunk, in the order of the model: `9,8,8,7`.
        pp: stages.
        vpp: chunks a stage.
        costs: cost of one run of each region, in the order of `Graph.regions`; balancing needs them.
        recomputed: how many layers each chunk recomputes, its first ones; with stages, those of the graph are moved.
            Of several numbers each is of a chunk, in the order of the model.
        schedule: its `places` say which chunks stand on which stage.

    Raises:
        PlanError: more chunks than blocks, or a list that does not fit; shows every factor.
    """
    vpp = schedule_kind(schedule).chunks_of(vpp) if pp > 1 else vpp
    return lay_sizes(graph, pp, vpp, stage_sizes(graph, policy, pp, vpp, costs), recomputed, schedule)


def lay_sizes(
    graph: Graph, pp: int, vpp: int, sizes: tuple[int, ...], recomputed: Recomputed = 0, schedule: str = USUAL
) -> StageLayout:
    """Lay a graph on stages whose chunks have these blocks, in the order of the model; see `lay_stages`."""
    row = layer_row(graph)
    parts = _parts(graph, row.units, sizes, recomputed if pp > 1 else 0)
    where = schedule_kind(schedule).placed(pp, vpp)
    held = tuple(tuple(c for c, stages in enumerate(where) if i in stages) for i in range(pp))
    return StageLayout(
        pp, vpp, sizes, *_classes(graph, _with_ends(row, parts), held, chunk_borders(graph, sizes)), held
    )


def chunk_rows(graph: Graph, layout: StageLayout, recomputed: Recomputed = 0) -> list[tuple[str, ...]]:
    """Return the regions of each chunk in the order of the model, the two ends of the graph in the first and the last.

    `recomputed` is as in `lay_stages`.
    """
    row = layer_row(graph)
    return _with_ends(row, _parts(graph, row.units, layout.blocks, recomputed if layout.pp > 1 else 0))


def between_stages(name: str) -> bool:
    """Whether a region of this name holds what stages send one another."""
    return name.startswith((BOUNDARY, SHARED))


def chunk_borders(graph: Graph, sizes: Sequence[int]) -> tuple[str, ...]:
    """Return the region of what each chunk receives, of the first one what it sends; none without borders.

    `sizes` are the blocks of each chunk. The graph names the regions of its borders in front of each block and behind
    the last one, or one for all of them.
    """
    borders = next((r.regions for r in graph.schedule if not r.count and r.regions[0].startswith(BOUNDARY)), ())
    if not borders or len(sizes) < 2:
        return ()
    before = [borders[min(place, len(borders) - 1)] for place in accumulate(sizes[:-1])]
    return (before[0], *before)


def _with_ends(row: LayerRow, parts: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    found = list(parts)
    found[0] = (*row.head, *found[0])
    found[-1] = (*found[-1], *row.tail)
    return found


def can_lay(num_blocks: int, policy: str, chunks: Num) -> NDArray[np.bool_]:
    """Return whether blocks can be laid on so many chunks in all, as `lay_stages` would; arrays run over plans."""
    parts = np.asarray(chunks)
    if policy in LAYOUTS:
        # Stages that are filled one by one may stay empty.
        return np.asarray((parts <= max(num_blocks, 1)) | (policy == FILLED and num_blocks > 0))
    sizes = _listed(policy)
    return np.asarray((parts == len(sizes)) & (sum(sizes) == num_blocks))


def by_cost(num_blocks: int, policy: str, parts: int) -> bool:
    """Return whether costs say how blocks are shared out over so many chunks in all."""
    return parts > 1 and (policy in ("balanced", FILLED) or (policy == "auto" and num_blocks % parts != 0))


def stage_sizes(
    graph: Graph, policy: str, pp: int, vpp: int, costs: Sequence[float] | None = None, balance: Balancer = Balance
) -> tuple[int, ...]:
    """Return the blocks of each chunk, in the order of the model; see `lay_stages`, whose errors it raises."""
    model = layer_row(graph)
    row, parts = model.units, pp * vpp
    if policy not in LAYOUTS:
        sizes = _listed(policy)
        if len(sizes) != parts or sum(sizes) != len(row):
            raise PlanError(
                f"layout {policy} has {len(sizes)} parts of {sum(sizes)} layers together; "
                f"pp={pp} x vpp={vpp} needs {parts} parts of {len(row)} layers together"
            )
        return sizes
    if parts > 1 and not row:
        raise PlanError(
            f"pp={pp} x vpp={vpp} = {parts} stages: {graph.name} is one piece, in which no layers were found that "
            "stages could share out; legal pp x vpp: 1"
        )
    if parts > max(len(row), 1) and policy != FILLED:
        raise PlanError(
            f"pp={pp} x vpp={vpp} = {parts} stages are more than the {len(row)} layers of {graph.name}; "
            f"legal pp x vpp: 1 to {len(row)}"
        )
    if parts == 1:
        return (len(row),)
    if costs is None or not by_cost(len(row), policy, parts):
        return even_parts(len(row), parts)
    each = dict(zip((r.name for r in graph.regions), costs, strict=True))
    costs = [sum(each[name] for name in unit) for unit in row]
    if policy == FILLED:
        return filled_parts(costs, parts, last=sum(each[name] for name in model.tail))
    return balance(costs, *(sum(each[n] for n in end) for end in (model.head, model.tail))).sizes(parts)


def many_stage_sizes(graph: Graph, table: NDArray[np.float64], parts: int) -> NDArray[np.intp]:
    """Return the blocks of each of so many chunks, balanced by costs of regions, as (row, chunk): see `stage_sizes`.

    `table` holds what one run of each region costs, as (row, region).
    """
    model = layer_row(graph)
    place = {r.name: k for k, r in enumerate(graph.regions)}
    nothing = np.zeros(len(table))
    kinds = {unit: sum((table[:, place[name]] for name in unit), nothing) for unit in dict.fromkeys(model.units)}
    first, last = (sum((table[:, place[name]] for name in end), nothing) for end in (model.head, model.tail))
    return many_parts(np.stack([kinds[unit] for unit in model.units], axis=1), first, last, parts)


def _parts(graph: Graph, row: Sequence[Unit], sizes: Sequence[int], recomputed: Recomputed) -> list[tuple[str, ...]]:
    """The regions of each chunk, its first ones in the form that recomputes."""
    starts = accumulate(sizes, initial=0)
    chunks = [row[start : start + size] for start, size in zip(starts, sizes, strict=False)]
    if not recomputed:
        return [tuple(n for unit in units for n in unit) for units in chunks]
    each = recomputed if isinstance(recomputed, tuple) else (recomputed,) * len(chunks)
    wrong = len(each) != len(chunks) or any(n > len(units) for n, units in zip(each, chunks, strict=False))
    if wrong and isinstance(recomputed, tuple):
        told = ",".join(map(str, recomputed))
        raise PlanError(
            f"recompute by chunk {told}: the chunks have {','.join(map(str, sizes))} layers, one number each"
        )
    return [
        tuple(_in_form(graph, n, k < num) for k, unit in enumerate(units) for n in unit)
        for num, units in zip(each, chunks, strict=True)
    ]


def _in_form(graph: Graph, name: str, recomputed: bool) -> str:
    plain = name.removesuffix(RECOMPUTED)
    wanted = plain + RECOMPUTED if recomputed else plain
    return wanted if wanted in graph.by_name else name


def _listed(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _classes(
    graph: Graph, parts: Sequence[Sequence[str]], held: Sequence[Sequence[int]], borders: Sequence[str]
) -> tuple[tuple[StageClass, ...], tuple[int, ...]]:
    """Count regions stage by stage, then put equal stages together."""
    place = {r.name: k for k, r in enumerate(graph.regions)}
    counts = np.zeros((len(held), len(graph.regions)), dtype=np.int64)
    messages = np.zeros((len(held), len(graph.regions)))
    for stage, chunks in enumerate(held):
        for name in (name for c in chunks for name in parts[c]):
            counts[stage, place[name]] += 1
        for c in chunks if borders else ():
            counts[stage, place[borders[c]]] += c > 0
            messages[stage, place[borders[c]]] += 1.0
    for exchange, *holders in (run.regions for run in graph.schedule if not run.count):
        if exchange.startswith(SHARED):
            num = int(np.count_nonzero(counts[:, [place[name] for name in holders]].any(axis=1)))
            messages[:, place[exchange]] = 2.0 * (num - 1) / num
    # The classes, and the class of every stage.
    found: dict[tuple[tuple[int, ...], tuple[float, ...]], list[int]] = {}
    for stage, (row, sent) in enumerate(zip(counts.tolist(), messages.tolist(), strict=True)):
        found.setdefault((tuple(row), tuple(sent)), []).append(stage)
    which = {stage: k for k, stages in enumerate(found.values()) for stage in stages}
    classes = tuple(StageClass(*key, stages[0], len(stages)) for key, stages in found.items())
    return classes, tuple(which[stage] for stage in range(len(counts)))
