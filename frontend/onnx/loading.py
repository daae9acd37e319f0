"""An ONNX file to the folded graph of one workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import onnx

from ...ir.errors import NotBuiltError, NotUnderstoodError, UnknownNameError
from ...ir.graph import Graph, Role, Workload
from ...ir.ops.unpriced import unpriced_calls, unpriced_note
from ...ir.sizes.expr import Dim
from ...ir.types import DType, TensorType
from ...ir.verify import verify
from ..aten.flat import Flat, NodeOrigin
from ..derive import training
from ..fold.blocks import Identity
from ..fold.layered import fold_by_scope, in_layers
from ..huggingface.lengths import require_past
from ..recognise import recognise
from .builder import Builder
from .control import controlled
from .reading import printable, read_model
from .shapes.items import Item, checked_dims, dtype_of, stored_item
from .shapes.symbols import MEANINGS, NamedSizes, flag, is_cache, is_name
from .standard import lifted, opset
from .straighten import hoisted, straightened
from .translate import Names, Translation

_KINDS = "|".join((*MEANINGS, "NUMBER"))


def load_onnx(
    path: str | Path,
    workload: Workload | str = Workload.PREFILL,
    dims: Mapping[str, str] | None = None,
    allow_unpriced: bool = False,
) -> Graph:
    """Return the verified, folded graph of an ONNX file for one workload; its weights are never read.

    Args:
        path: the file; external data may lie beside it or be absent.
        workload: prefill (a prompt, nothing cached), decode (one token behind a cache) or train: the backward pass is
            derived from the forward one, the loss is a cross-entropy on the first result unless that is a scalar.
        dims: sizes of named dims that their names do not tell: NAME to batch, seq, kv, total, tokens or a number.
        allow_unpriced: keep operators without a rule whose results the file declares; only their bytes count.
    """
    kind = Workload(workload)
    file = Path(path)
    try:
        model = read_model(file)
        flat, build = _flat(model, kind, dims or {}, allow_unpriced)
        if not flat.nodes:
            raise NotUnderstoodError("nothing is computed from the inputs")
        identity = Identity(file.stem, kind, _main_dtype(flat), tuple(build.notes), build.max_positions)
        graph = in_layers(fold_by_scope(flat, identity))
        require_past(graph)
    except NotUnderstoodError as error:
        text = str(error)
        raise type(error)(printable(text if text.startswith(f"'{path}'") else f"'{path}': {text}")) from error
    verify(graph)
    calls = unpriced_calls(graph)
    return replace(graph, notes=(*graph.notes, unpriced_note(sorted(calls.items())))) if calls else graph


def value_types(model: onnx.ModelProto, workload: Workload, dims: Mapping[str, str]) -> dict[str, TensorType]:
    """Return the type of every value of the main graph by name, as the rules find it; caches in use included."""
    names, _ = translated(model, workload, dims)
    return {name: item.type for name, item in names.items.items() if item is not None}


def _flat(model: onnx.ModelProto, workload: Workload, dims: Mapping[str, str], lenient: bool) -> tuple[Flat, Builder]:
    names, build = translated(model, workload, dims, lenient)
    flat = _tidied(model.graph, names, build)
    if not flat.nodes:
        # Write the results of a model that computes nothing: constants, and copies of inputs.
        for output in model.graph.output:
            item = names.find(output.name)
            if item is not None and item.parts is None:
                made = build.emit("copy", [build.value(item, NodeOrigin())], [(item.type, None)], NodeOrigin())[0]
                names.items[output.name] = Item(item.type, made)
        flat = _tidied(model.graph, names, build)
    return _trained(flat) if workload is Workload.TRAIN else flat, build


def _tidied(graph: onnx.GraphProto, names: Names, build: Builder) -> Flat:
    build.flat.results = _results(graph, names, build)
    return hoisted(recognise(straightened(build.flat)))


def _trained(flat: Flat) -> Flat:
    """Add the loss and the backward pass, which a file in ONNX does not hold; NotBuiltError for quantised weights."""
    low = next((v for v in flat.values.values() if v.role is Role.PARAM and not v.type.dtype.is_floating), None)
    if low is not None:
        raise NotBuiltError(
            f"'{low.name}' rests in {low.type.dtype}, which is not trained; ask for --phase prefill or decode"
        )
    return training(flat)


def translated(
    model: onnx.ModelProto, workload: Workload, dims: Mapping[str, str], lenient: bool = False
) -> tuple[Names, Builder]:
    """Return what every name of the main graph stands for, and the graph in single steps."""
    model, notes = lifted(model)
    sizes = NamedSizes.of(workload, dims)
    results = [*model.graph.value_info, *model.graph.output]
    build, names = Builder(workload, sizes, {i.name: _written(i) for i in results}, notes=list(notes)), Names()
    stored = {t.name: t for t in model.graph.initializer}
    names.items.update((name, stored_item(t)) for name, t in stored.items())
    given = [i for i in model.graph.input if i.name not in stored]
    _declared(given, sizes)  # a name that stands where its meaning is clear is known everywhere
    _require_known(given, sizes)
    for info in given:
        kind = _input_type(info, sizes)
        if 0 in _written(info) and 0 in kind.dims:
            build.note(f"input '{info.name}' is empty: {kind}")
        names.items[info.name] = build.told(info.name, Item(kind, build.flat.value(kind, None, Role.INPUT, info.name)))
    functions = {(f.domain, f.name): f for f in model.functions}
    declared = _declared(results, sizes) if lenient else None
    translation = Translation(
        build, functions, opset(model), controlled, declared, cached=_cached(model.graph, workload)
    )
    translation.run(model.graph.node, names, stored, "")
    # A size of a dim that nothing in the file has or asks for is a slip.
    written = {d for info in [*given, *results] for d in _written(info) if isinstance(d, str) and is_name(d)}
    for name in dims:
        if name not in written | sizes.sought:
            raise UnknownNameError.of("dim of the file", name, sorted(written) or sorted(sizes.sought))
    return names, build


def _cached(graph: onnx.GraphProto, workload: Workload) -> frozenset[str]:
    """Return the results that are a new cache by their names, of a graph that is given none; training keeps none."""
    if workload is Workload.TRAIN or any(is_cache(i.name) for i in graph.input):
        return frozenset()
    return frozenset(o.name for o in graph.output if is_cache(o.name))


def _declared(infos: Sequence[onnx.ValueInfoProto], sizes: NamedSizes) -> dict[str, TensorType]:
    """Return the types of values as the file declares them, those with a dim that is not known left out."""
    found: dict[str, TensorType] = {}
    for info in infos:
        try:
            found[info.name] = _input_type(info, sizes)
        except NotUnderstoodError:
            continue
    return found


def _tensor(info: onnx.ValueInfoProto) -> onnx.TypeProto.Tensor:
    """Return the type of an input that is a tensor, or one that may be left out."""
    what = f"input '{info.name}'"
    kind = info.type.optional_type.elem_type if info.type.HasField("optional_type") else info.type
    if not kind.HasField("tensor_type"):
        raise NotUnderstoodError(f"{what} is no tensor: sequences and maps are not understood as inputs")
    if not kind.tensor_type.HasField("shape"):
        raise NotUnderstoodError(f"{what} has no shape")
    return kind.tensor_type


def _written(info: onnx.ValueInfoProto) -> tuple[int | str, ...]:
    """Return dims as the file writes them: a number, a name, or nothing where it says nothing; -1 says nothing."""
    shape = info.type.tensor_type.shape
    return tuple(
        d.dim_value if d.WhichOneof("value") == "dim_value" and d.dim_value >= 0 else d.dim_param for d in shape.dim
    )


def _dims(info: onnx.ValueInfoProto, sizes: NamedSizes) -> list[Dim | None]:
    """Return the dims of an input, None for those that are not known; what the user says of a place goes first."""
    shape = _tensor(info).shape.dim
    made: list[Dim | None] = []
    for position, d in enumerate(shape):
        fixed = d.WhichOneof("value") == "dim_value" and d.dim_value >= 0
        if d.dim_value < -1:
            raise NotUnderstoodError(f"input '{info.name}' has a dim of {d.dim_value}")
        told = sizes.learn(info.name, position, len(shape), "" if fixed else d.dim_param)
        is_told = f"{info.name}.{position}" in sizes.given
        made.append(d.dim_value if fixed and not is_told else told)
    return made


def _input_type(info: onnx.ValueInfoProto, sizes: NamedSizes) -> TensorType:
    """Return the type of an input; NotUnderstoodError where a dim is not known."""
    what = f"input '{info.name}'"
    made = tuple(d for d in _dims(info, sizes) if d is not None)
    if len(made) < len(_tensor(info).shape.dim):
        raise NotUnderstoodError(f"{what} has a dim that is not known")
    return TensorType(checked_dims(made, what), dtype_of(_tensor(info).elem_type, what))


def _require_known(given: Sequence[onnx.ValueInfoProto], sizes: NamedSizes) -> None:
    """Raise NotUnderstoodError for all dims of inputs that are not known, with what to write for each."""
    missing: dict[str, str] = {}
    for info in given:
        written = _tensor(info).shape.dim
        for position, size in enumerate(_dims(info, sizes)):
            if size is None:
                name, place = written[position].dim_param, f"{info.name}.{position}"
                said = f"dim '{name}'" if is_name(name) else f"dim {position}, which has no name,"
                missing.setdefault(name if is_name(name) else place, f"{said} of input '{info.name}'")
    if missing:
        flags = " ".join(f"--dim {flag(name)}={_KINDS}" for name in missing)
        verb = "is" if len(missing) == 1 else "are"
        raise NotUnderstoodError(f"{', '.join(missing.values())} {verb} not known: {flags}")


def _results(graph: onnx.GraphProto, names: Names, build: Builder) -> list[int]:
    """What the model returns, caches apart: they stay where they are."""
    found: list[int] = []
    caches = {v.id for v in build.flat.values.values() if v.role is Role.CACHE}
    appended = {n.key for n in build.flat.nodes if n.op == "kv_append"}
    items = [names.find(output.name) for output in graph.output]
    for item in [part for i in items if i is not None for part in (i.parts or (i,))]:
        if item.value is None:
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
