"""Any `fx.GraphModule` with example inputs to a folded graph: traced by `symbolic_trace`, `make_fx` or Dynamo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..ir.graph import Graph, Workload

if TYPE_CHECKING:
    from torch import fx

    from .example_inputs import Dynamic
    from .exported import Dims


def trace_graph(
    graph: fx.GraphModule,
    inputs: Sequence[object],
    dynamic: Dynamic | None = None,
    phase: Workload | str = Workload.PREFILL,
    dims: Dims | None = None,
    name: str = "",
    allow_unpriced: bool = False,
) -> Graph:
    """Return the folded graph of a traced graph; its parameters are read by shape and left as they are.

    A graph that holds a backward pass already (nodes tagged as backward) is taken as a training graph as it is.

    Args:
        graph: what was traced; from `symbolic_trace` no node needs to carry a value.
        inputs: example inputs in the order of its placeholders, nested or flat; tensors of any device, also meta or
            fake. Those that are `nn.Parameter` are weights, named by the key that they stand under.
        dynamic: which dims of which inputs are `batch`, `seq` or `kv`, a word or None a dim, by name of the input:
            `{"ids": ("batch", "seq")}`. Without, open sizes of the examples stay open, and a graph traced without
            values takes the first two dims of integer inputs as batch and sequence.
        phase: prefill (the graph as it is), train (loss on its first output, and backward) or decode.
        dims: what open sizes of the graph are, as `{"s70": "seq"}`; see `load_exported`.
        name: what the result is called.
        allow_unpriced: keep operators without a rule as nodes of which only the bytes count, instead of refusing them.
    """
    from .replay.runs import graph_of
    from .replay.traced import program_of

    program = program_of(graph, inputs, dynamic or {}, name)
    return graph_of(program, Workload(phase), dims, allow_unpriced=allow_unpriced)


__all__ = ["trace_graph"]
