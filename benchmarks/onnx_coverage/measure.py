"""A case read by Slipstick: the shapes and types of its results beside those of the run, and its estimate."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

import onnx
from onnx import TensorProto

from slipstick.driver.estimate import estimate
from slipstick.frontend.onnx import load_onnx
from slipstick.frontend.onnx.loading import value_types
from slipstick.frontend.onnx.reading import read_model
from slipstick.frontend.onnx.shapes.items import dtype_of
from slipstick.ir.errors import SlipstickError
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.sizes.fixed_sizes import fixed_sizes
from slipstick.ir.types import TensorType

from .cases import Case, Made, cases

# What an error says to write for a size that depends on data.
_FLAG = re.compile(r"--dim '?([^\s=']+)'?=NUMBER")
_TEMPORARY = re.compile(r"^'[^']*': ")
_MAX_ROUNDS = 8


@dataclass(frozen=True)
class Result:
    """What came of a case.

    Attributes:
        why_not: why it is not read, or how its results differ from those of the run; empty where they agree.
        not_priced: why there is no estimate; of node tests none is asked for.
        told: how many sizes the reader asked for, and the run's data told.
        step_s: the time of one pass on one H100.
    """

    model_type: str
    family: str
    is_numeric: bool
    why_not: str = ""
    not_priced: str = ""
    told: int = 0
    step_s: float = 0.0

    def to_json(self) -> str:
        """Return one line."""
        return json.dumps(asdict(self))


def from_json(line: str) -> Result:
    """Read a line of `to_json`."""
    return Result(**json.loads(line))


@cache
def known() -> Mapping[str, Case]:
    """Return the cases of this process, collected once."""
    return cases()


def read(name: str) -> tuple[Result, Graph | None]:
    """Read a case and compare it with its run."""
    case = known()[name]
    model = case.model()
    result = Result(name, case.family, _is_numeric(case, model))
    try:
        dims, graph, why_not = _read(case, model)
    except SlipstickError as error:
        return replace(result, why_not=_TEMPORARY.sub("", str(error))), None
    return replace(result, why_not=why_not, told=len(dims) - len(case.dims)), graph


def measure(name: str) -> list[Result]:
    """Read a case, and estimate it where it is a whole model."""
    result, graph = read(name)
    if result.family == "node" or result.why_not or graph is None:
        return [result]
    try:
        return [replace(result, step_s=_step_s(graph))]
    except SlipstickError as error:
        return [replace(result, not_priced=str(error))]


def failed(name: str, why_not: str) -> list[Result]:
    """Say why nothing came of a case."""
    return [Result(name, name.partition("/")[0], True, why_not)]


def _read(case: Case, model: onnx.ModelProto) -> tuple[dict[str, str], Graph, str]:
    """Read a case with the sizes that it asks for; say how its results differ from those of the run."""
    with tempfile.TemporaryDirectory() as folder:
        path = case.path or Path(folder) / "model.onnx"
        if case.path is None:
            path.write_bytes(case.data)
        dims, graph = _loaded(case, model, path)
        types = value_types(read_model(path), Workload.PREFILL, dims)
        return dims, graph, _compared(case, model, types)


def _loaded(case: Case, model: onnx.ModelProto, path: Path) -> tuple[dict[str, str], Graph]:
    """Read a file; a size that an error asks for is told from the data of the run, as its user would."""
    dims = dict(case.dims)
    for _ in range(_MAX_ROUNDS):
        try:
            return dims, load_onnx(path, Workload.PREFILL, dims)
        except SlipstickError as error:
            asked = [name for name in _FLAG.findall(str(error)) if name not in dims]
            found = {name: size for name in asked if (size := _told(case, model, name)) is not None}
            if not found:
                raise
            dims |= found
    return dims, load_onnx(path, Workload.PREFILL, dims)


def _told(case: Case, model: onnx.ModelProto, name: str) -> str | None:
    """Return a number that an input holds, `name[0]`, or a dim of a result, `name.0`, in the run."""
    entry = re.fullmatch(r"(.*)\[(\d+)\]", name)
    stored = {t.name for t in model.graph.initializer}
    if entry is not None:
        names = [i.name for i in model.graph.input if i.name not in stored]
        given = dict(zip(names, case.inputs, strict=False)).get(entry.group(1))
        place = int(entry.group(2))
        return str(given.numbers[place]) if given is not None and place < len(given.numbers) else None
    for info, made in zip(model.graph.output, case.outputs or (), strict=False):
        for axis, size in enumerate(made.dims or ()):
            shape = info.type.tensor_type.shape.dim
            if name in (f"{info.name}.{axis}", shape[axis].dim_param if axis < len(shape) else None):
                return str(size)
    return None


def _compared(case: Case, model: onnx.ModelProto, types: Mapping[str, TensorType]) -> str:
    """Say how results differ from those of the run, nothing where they agree or no run is kept."""
    for info, want in zip(model.graph.output, case.outputs or (), strict=False):
        found = types.get(info.name)
        if want.dims is None or not info.name:
            continue
        if found is None:
            return f"result '{info.name}' is not made"
        element = info.type.tensor_type.elem_type or want.element
        if found.dims != want.dims:
            return f"result '{info.name}' is {found}, and {list(want.dims)} in the run"
        if found.dtype is not dtype_of(element, f"result '{info.name}'"):
            return f"result '{info.name}' is {found}, and {TensorProto.DataType.Name(element)} in the run"
    return ""


def _is_numeric(case: Case, model: onnx.ModelProto) -> bool:
    """Whether inputs and results are tensors of numbers: no texts, sequences, maps, encoded pictures."""
    infos = [*model.graph.input, *model.graph.output]
    kinds = [i.type.tensor_type.elem_type for i in infos if i.type.HasField("tensor_type")]
    whole = len(kinds) == len(infos) and TensorProto.STRING not in kinds
    made: tuple[Made, ...] = (*case.inputs, *(case.outputs or ()))
    return whole and all(m.dims is not None for m in made)


def _step_s(graph: Graph) -> float:
    """Estimate one pass on one H100, of a static graph with its own sizes."""
    from slipstick import Family, load_system, make_plan

    batch, length = fixed_sizes(graph)
    micro_batch = batch or 1
    plan = make_plan(
        num_gpus=1, seq_len=length or 1024, micro_batch=micro_batch, global_batch=micro_batch, family=Family()
    )
    return estimate(graph, load_system("dgx-h100"), plan).metrics["step_time_s"]
