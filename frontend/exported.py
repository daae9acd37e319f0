"""Programs that torch has traced, an exported one or its `.pt2` file or any GraphModule, to a folded graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from ..ir.errors import NotUnderstoodError, UsageError
from ..ir.graph import Graph, Workload

if TYPE_CHECKING:
    from torch import fx
    from torch.export import ExportedProgram

    from .example_inputs import Dynamic

# What open sizes are, by the program's own names of them.
Dims: TypeAlias = Mapping[str, str | int]


def load_exported(
    program: ExportedProgram,
    phase: Workload | str = Workload.PREFILL,
    dims: Dims | None = None,
    name: str = "exported",
    allow_unpriced: bool = False,
) -> Graph:
    """Return the folded graph of an exported program.

    Args:
        program: what `torch.export.export` returned; its weights are not read, so they may be on the meta device.
        phase: prefill (the program as it is), train (loss on its first output, and backward), or decode (the program
            takes a KV cache).
        dims: what its open sizes are, as `{"s70": "seq"}`: batch, seq, kv, total (kv + seq), tokens (batch x seq) or a
            number. Others go by their place.
        name: what the graph is called.
        allow_unpriced: keep operators without a rule as nodes of which only the bytes count, instead of refusing them.
    """
    from .replay.live import exported_program
    from .replay.runs import graph_of

    return graph_of(exported_program(program, name), Workload(phase), dims, allow_unpriced=allow_unpriced)


def load_pt2(
    path: Path | str, phase: Workload | str = Workload.PREFILL, dims: Dims | None = None, allow_unpriced: bool = False
) -> Graph:
    """Return the folded graph of a file that `torch.export.save` wrote; `phase` and `dims` as for `load_exported`.

    Only its JSON parts are read: neither weights, nor example inputs, nor anything pickled. NotUnderstoodError when the
    file is no such archive, is cut short, or asks for what only unpickling could give.
    """
    from .record.failures import first_line
    from .replay.archive import read_program
    from .replay.runs import graph_of

    program = read_program(Path(path))
    try:
        return graph_of(program, Workload(phase), dims, allow_unpriced=allow_unpriced)
    except UsageError:
        raise
    except NotUnderstoodError as error:
        raise error if str(path) in str(error) else type(error)(f"'{path}': {error}") from error
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise NotUnderstoodError(f"'{path}': the graph of the model is not whole ({first_line(error)})") from error


def refuse_pickle(path: str) -> NoReturn:
    """Refuse a file of pickled objects: reading one runs code of whoever wrote it."""
    raise NotUnderstoodError(
        f"'{path}' is pickled, and unpickling runs code; export the model instead: "
        "torch.export.save(torch.export.export(model, inputs, dynamic_shapes=..), 'model.pt2')"
    )


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
    from .replay.live import traced_program
    from .replay.runs import graph_of

    program = traced_program(graph, inputs, dynamic or {}, name)
    return graph_of(program, Workload(phase), dims, allow_unpriced=allow_unpriced)
