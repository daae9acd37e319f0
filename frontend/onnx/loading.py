"""An ONNX file to the folded graph of one workload."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx

from ...ir.errors import NotBuiltError, NotUnderstoodError
from ...ir.expr import Dim
from ...ir.graph import Graph, Role, Workload
from ...ir.types import DType, TensorType
from ...ir.verify import verify
from ..blocks import Identity
from ..flat import Flat
from ..scoped import fold_by_scope
from ..tidy import tidy
from .builder import Builder
from .hoist import hoisted
from .items import Item, checked_dims, dtype_of, stored_item
from .reading import opset, printable, read_model
from .symbols import Sizes
from .translate import Names, Translation


def load_onnx(
    path: str | Path, workload: Workload | str = Workload.PREFILL, dims: Mapping[str, str] | None = None
) -> Graph:
    """Return the verified, folded graph of an ONNX file for one workload; its weights are never read.

    Args:
        path: the file; external data may lie beside it or be absent.
        workload: prefill (a prompt, nothing cached) or decode (one token behind a cache).
        dims: sizes of named dims that their names do not tell: NAME to batch, seq, kv, total, tokens or a number.
    """
    kind = Workload(workload)
    if kind is Workload.TRAIN:
        raise NotBuiltError(f"'{path}': an ONNX file has no backward pass; ask for --phase prefill or decode")
    file = Path(path)
    try:
        model = read_model(file)
        flat, build = _flat(model, kind, dims or {})
        if not flat.nodes:
            raise NotUnderstoodError("nothing is computed from the inputs")
        identity = Identity(file.stem, kind, _main_dtype(flat), tuple(build.notes), build.max_positions)
        graph = fold_by_scope(flat, identity)
    except NotUnderstoodError as error:
        text = str(error)
        raise type(error)(printable(text if text.startswith(f"'{path}'") else f"'{path}': {text}")) from error
    verify(graph)
    return graph


def value_types(model: onnx.ModelProto, workload: Workload, dims: Mapping[str, str]) -> dict[str, TensorType]:
    """Return the type of every value of the main graph by name, as the rules find it; caches in use included."""
    names, _ = _translated(model, workload, dims)
    return {name: item.type for name, item in names.items.items() if item is not None}


def _flat(model: onnx.ModelProto, workload: Workload, dims: Mapping[str, str]) -> tuple[Flat, Builder]:
    names, build = _translated(model, workload, dims)
    build.flat.results = _results(model.graph, names, build)
    return hoisted(tidy(build.flat)), build


def _translated(model: onnx.ModelProto, workload: Workload, dims: Mapping[str, str]) -> tuple[Names, Builder]:
    build, names = Builder(workload), Names()
    stored = {t.name: t for t in model.graph.initializer}
    names.items.update((name, stored_item(t)) for name, t in stored.items())
    sizes = Sizes.of(workload, dims)
    given = [i for i in model.graph.input if i.name not in stored]
    for _ in range(2):  # a name that stands at a place that tells its meaning is known everywhere
        kinds = {i.name: _input_type(i, sizes) for i in given}
    for info in given:
        value = build.flat.value(kinds[info.name], None, Role.INPUT, info.name)
        names.items[info.name] = Item(kinds[info.name], value)
    functions = {(f.domain, f.name): f for f in model.functions}
    Translation(build, functions, opset(model)).run(model.graph.node, names, stored, "")
    return names, build


def _input_type(info: onnx.ValueInfoProto, sizes: Sizes) -> TensorType:
    what = f"input '{info.name}'"
    if not info.type.HasField("tensor_type"):
        raise NotUnderstoodError(f"{what} is no tensor: sequences and maps are not understood")
    tensor = info.type.tensor_type
    if not tensor.HasField("shape"):
        raise NotUnderstoodError(f"{what} has no shape")
    rank = len(tensor.shape.dim)
    made: list[Dim] = []
    for position, d in enumerate(tensor.shape.dim):
        fixed = d.WhichOneof("value") == "dim_value" and d.dim_value > 0
        if d.dim_value < 0:
            raise NotUnderstoodError(f"{what} has a dim of {d.dim_value}")
        made.append(d.dim_value if fixed else sizes.learn(info.name, position, rank, d.dim_param))
    return TensorType(checked_dims(tuple(made), what), dtype_of(tensor.elem_type, what))


def _results(graph: onnx.GraphProto, names: Names, build: Builder) -> list[int]:
    """What the model returns, caches apart: they stay where they are."""
    found: list[int] = []
    caches = {v.id for v in build.flat.values.values() if v.role is Role.CACHE}
    appended = {n.key for n in build.flat.nodes if n.op == "kv_append"}
    for output in graph.output:
        item = names.find(output.name)
        if item is None or item.value is None:
            continue
        owner = build.flat.values[item.value].storage
        if item.value not in appended and owner not in caches and owner not in appended:
            found.append(item.value)
    return list(dict.fromkeys(found))


def _main_dtype(flat: Flat) -> DType:
    """The type of most parameters that are no integers; of a model without any, that of its first result."""
    counts: dict[DType, float] = {}
    for v in flat.values.values():
        dtype = v.type.dtype
        if v.role is Role.PARAM and dtype in (DType.BF16, DType.FP16, DType.FP32):
            size = v.type.numel
            counts[dtype] = counts.get(dtype, 0.0) + float(size.evaluate({}))
    if counts:
        return max(counts, key=lambda d: counts[d])
    return next((t for n in flat.nodes if (t := flat.values[n.key].type.dtype).is_floating), DType.FP32)
