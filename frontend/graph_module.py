"""Any `fx.GraphModule` with example inputs to a folded graph: traced by `symbolic_trace`, `make_fx` or Dynamo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..ir.graph import Graph, Workload

if TYPE_CHECKING:
    from torch import fx


def trace_graph(
    graph: fx.GraphModule,
    inputs: Sequence[object],
    workload: Workload | str = Workload.PREFILL,
    dims: Mapping[str, Sequence[str | int]] | None = None,
    sizes: Mapping[str, str | int] | None = None,
    name: str = "",
) -> Graph:
    """Return the folded graph of a traced graph; its parameters are read by shape and left as they are.

    A graph that holds a backward pass already (nodes tagged as backward) is taken as a training graph as it is.

    Args:
        graph: what was traced; from `symbolic_trace` no node needs to carry a value.
        inputs: example inputs in the order of its placeholders, nested or flat; tensors of any device, also meta or
            fake. Those that are `nn.Parameter` are weights, named by the key that they stand under.
        workload: prefill (the graph as it is), train (loss on its first output, and backward) or decode.
        dims: names of the dims of inputs, as `{"ids": ("batch", "seq")}`. Without, open sizes of the examples stay
            open, and a graph traced without values takes the first two dims of integer inputs as batch and sequence.
        sizes: what open sizes of the graph are, as `{"s70": "seq"}`; see `load_exported`.
        name: what the result is called.
    """
    from .replay.runs import graph_of
    from .replay.traced import program_of

    program = program_of(graph, inputs, dims or {}, name)
    return graph_of(program, Workload(workload), sizes)


__all__ = ["trace_graph"]
