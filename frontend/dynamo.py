"""`torch.compile(model, backend="slipstick")`: the graphs that a backend is handed, kept; the model runs unchanged.

    with slipstick.capture() as captured:
        torch.compile(model, backend="slipstick")(ids)
    graph = captured.graph("train")

Without a capture nothing is kept, unless the environment variable SLIPSTICK_CAPTURE names a folder: then every graph is
written there as `compiled-0.prefill.graph` and `compiled-0.train.graph`, which `slipstick estimate` takes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..ir.errors import SlipstickError, UsageError
from ..ir.graph import Graph, Workload
from ..ir.records import dataclass
from ..ir.text.files import save_graph

if TYPE_CHECKING:
    from torch import Tensor, fx

    from .exported import Dims
    from .replay.program import ReplayProgram

FOLDER_VARIABLE = "SLIPSTICK_CAPTURE"
COMPILED = "compiled"

_log = logging.getLogger("slipstick.capture")


@dataclass(frozen=True)
class Seen:
    """One graph that a backend was handed: the frame it is of, and how often this frame had been compiled before."""

    program: ReplayProgram
    frame: int
    compiles: int


@dataclass
class Captured:
    """The graphs that `torch.compile` handed over, in order.

    A frame that is compiled again, for other sizes, counts with its last graph, which is open in most sizes.
    """

    name: str = COMPILED
    seen: list[Seen] = field(default_factory=list)

    def graph(self, phase: Workload | str = Workload.PREFILL, dims: Dims | None = None) -> Graph:
        """Return the one graph that was captured; UsageError when there is none, or several.

        Args:
            phase: prefill (forward as it is), train (loss on logits, and backward) or decode.
            dims: what its open sizes are, as `{"s70": "seq"}`; others go by their place.
        """
        last = self._last()
        if not last:
            raise UsageError("nothing was captured: call the compiled model within the capture, for the first time")
        if len(last) > 1:
            raise UsageError(
                f"the model was broken into {len(last)} graphs, which `graphs` returns one by one; "
                "torch.compile(.., fullgraph=True) says where it breaks"
            )
        return _graph(last[0], Workload(phase), dims, "", is_part=False)

    def graphs(self, phase: Workload | str = Workload.PREFILL, dims: Dims | None = None) -> tuple[Graph, ...]:
        """Return every graph in order; of several each trains from the gradients of its results, and says its place."""
        last = self._last()
        many = len(last) > 1
        return tuple(
            _graph(s, Workload(phase), dims, f"graph {k + 1} of {len(last)}" if many else "", is_part=many)
            for k, s in enumerate(last)
        )

    def _last(self) -> list[Seen]:
        by_frame = {s.frame: s for s in self.seen}
        return list(by_frame.values())


def _graph(seen: Seen, workload: Workload, dims: Dims | None, place: str, is_part: bool) -> Graph:
    from .replay.runs import graph_of

    again = f"compiled {seen.compiles + 1} times, the last is taken" if seen.compiles else ""
    notes = tuple(n for n in (place and f"{place} that torch.compile broke the model into", again) if n)
    return graph_of(replace(seen.program, notes=notes), workload, dims, is_part=is_part)


_ACTIVE: ContextVar[Captured | None] = ContextVar("slipstick_captured", default=None)


@contextmanager
def capture(name: str = COMPILED) -> Iterator[Captured]:
    """Collect the graphs that `torch.compile(.., backend="slipstick")` compiles inside the block, under a name."""
    captured = Captured(name)
    token = _ACTIVE.set(captured)
    try:
        yield captured
    finally:
        _ACTIVE.reset(token)


def backend(graph: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., object]:
    """Record a graph and run it unchanged: results and gradients are those of the uncompiled model.

    This is what `torch.compile(model, backend="slipstick")` calls.
    """
    from .record.adapter import frame_compiled
    from .replay.live import compiled_program

    frame, compiles = frame_compiled()
    captured = _ACTIVE.get()
    if captured is not None:
        frame = len(captured.seen) if frame is None else frame
        captured.seen.append(Seen(compiled_program(graph, example_inputs, captured.name), frame, compiles))
    elif folder := os.environ.get(FOLDER_VARIABLE):
        _write(Path(folder), Seen(compiled_program(graph, example_inputs, COMPILED), frame or 0, compiles))
    else:
        _log.info("a graph of %d nodes, not kept: no capture is active", len(graph.graph.nodes))
    return graph.forward


def _write(folder: Path, seen: Seen) -> None:
    """Write what can be written; a graph that cannot be read must not stop the program that is being run."""
    number = len(list(folder.glob("*.prefill.graph")))
    for workload in (Workload.PREFILL, Workload.TRAIN):
        try:
            graph = _graph(seen, workload, None, "", is_part=False)
        except SlipstickError as error:
            _log.warning("graph %d is not written for %s: %s", number, workload, error)
            continue
        save_graph(graph, folder / f"{seen.program.name}-{number}.{workload}.graph")
