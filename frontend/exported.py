"""An exported program or its `.pt2` file to a folded graph; no weight is read and nothing is unpickled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from ..ir.errors import NotUnderstoodError, UsageError
from ..ir.graph import Graph, Workload

if TYPE_CHECKING:
    from torch.export import ExportedProgram

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
    from .replay.runs import graph_of
    from .replay.signature import program_of

    return graph_of(program_of(program, name), Workload(phase), dims, allow_unpriced=allow_unpriced)


def load_pt2(
    path: Path | str, phase: Workload | str = Workload.PREFILL, dims: Dims | None = None, allow_unpriced: bool = False
) -> Graph:
    """Return the folded graph of a file that `torch.export.save` wrote; `phase` and `dims` as for `load_exported`.

    Only its JSON parts are read: neither weights, nor example inputs, nor anything pickled. NotUnderstoodError when the
    file is no such archive, is cut short, or asks for what only unpickling could give.
    """
    from .record.failures import first_line
    from .replay.files.archive import read_program
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


__all__ = ["Dims", "load_exported", "load_pt2", "refuse_pickle"]
