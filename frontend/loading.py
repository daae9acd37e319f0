"""A model's name, config file or factory to its folded graph; torch is imported only when nothing is cached."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from ..ir.errors import NotBuiltError, NotUnderstoodError, UnknownNameError, UsageError
from ..ir.graph import Graph, Workload
from ..ir.records import dataclass
from ..ir.text.files import load_graph
from ..ir.text.stages import stage, told
from ..ir.text.untrusted import check_typed
from ..ir.types import DType
from .cache import GraphCache, graph_key, shipped_graph, shipped_path
from .exported import load_pt2, refuse_pickle
from .forms import CONFIG, EXPORTED, FACTORY, ONNX, PICKLED, SAVED, ModelForm, form_of
from .huggingface.configs.models import Config, read_config
from .runs.asked import AskedSizes

Report = Callable[[str], None]

# What weights and activations may be in; narrower types come with their scales, which are not modelled yet.
COMPUTE_TYPES = (DType.BF16, DType.FP16, DType.FP32)
_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len")
# A length at which a graph of a config must hold, or the longest that the config allows where that is less: what code
# does may depend on it, and an example is short.
_TRIED = 4096
_LENGTHS_OF_ENDS = ("max_target_positions", "max_source_positions")
_NO_DIMS: Mapping[str, str] = MappingProxyType({})
_NOTHING = AskedSizes()
_LOSS_OF_CONFIGS = "--loss file.py:function of a factory that makes this model"


def load(
    model: str,
    workload: Workload | str = Workload.TRAIN,
    dtype: DType | str = DType.BF16,
    cache: GraphCache | None = None,
    report: Report | None = None,
    dims: Mapping[str, str] = _NO_DIMS,
    allow_unpriced: bool = False,
    source_tokens: int | None = None,
    spelled_out: bool = False,
    asked: AskedSizes = _NOTHING,
    images: int = 0,
) -> Graph:
    """Return the folded graph of a model for one workload.

    Args:
        model: a catalogue name, a path to a `config.json`, a saved graph, an ONNX file, a `.pt2` file of
            `torch.export.save`, or `file.py:factory` (runs that code).
        workload: train, prefill or decode.
        dtype: element type of weights and activations; ONNX and `.pt2` files have their own.
        cache: where recorded graphs are kept; None records every time, models of the catalogue too.
        report: told, in one line each, about slow steps.
        dims: what the named dims of an ONNX file or a `.pt2` file are: batch, seq, kv, total, tokens or a number.
        allow_unpriced: keep operators without a rule as nodes of which only the bytes count, instead of refusing them.
        spelled_out: record norms, rotary embeddings and activations as the model's own code runs them, operator by
            operator, instead of as one kernel each: what unfused code keeps in training. Of recorded models only.
        source_tokens: what the encoder of an encoder-decoder reads; None: as many tokens as the plan's lengths say.
        images: pictures a sequence of a model that sees, in training and prefill: with them its graph holds the encoder
            of pictures, too; without any it is that of its language model alone.
        asked: of a factory, what it does not say itself: inputs, loss, leaves, caches, and the lengths of the plan.
    """
    form = form_of(model)
    _refuse_unread(model, form, dims, asked, images)
    if workload not in list(Workload):
        raise UnknownNameError.of("workload", workload, list(Workload))
    kind, element = Workload(workload), DType.parse(str(dtype))
    request = LoadRequest(model, kind, element, cache, report, dims, allow_unpriced, spelled_out, asked, images)
    # Ops, and what looks at graphs, are not loaded for a name that is refused.
    from ..ir.text.admission import admit, refuse_incoming
    from .huggingface.lengths import with_source

    if form is CONFIG and read_config(model).is_shipped:
        return with_source(_LOADERS[form](request), source_tokens)
    with refuse_incoming(model):
        graph = _LOADERS[form](request)
        admit(graph)
        return with_source(graph, source_tokens)


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """The arguments of `load`, read: one record for the loader of each form."""

    model: str
    workload: Workload
    dtype: DType
    cache: GraphCache | None
    report: Report | None
    dims: Mapping[str, str]
    allow_unpriced: bool
    spelled_out: bool
    asked: AskedSizes
    images: int


def _refuse_unread(model: str, form: ModelForm, dims: Mapping[str, str], asked: AskedSizes, images: int) -> None:
    """Refuse words on inputs that a model of this form does not read."""
    if "input" not in form.reads:
        asked.refuse_but_of_factories(model)
    if dims and "dim" not in form.reads:
        raise UsageError(f"--dim {next(iter(dims))}: of ONNX and .pt2 files only, which '{model}' is not")
    if images and "images" not in form.reads:
        raise UsageError(
            f"--images {images}: of models of transformers by name or config.json; what a file reads it says itself, "
            f"and of a factory --input does: '{model}'"
        )


def load_config(
    config: Config,
    kind: Workload = Workload.TRAIN,
    element: DType = DType.BF16,
    cache: GraphCache | None = None,
    report: Report | None = None,
    allow_unpriced: bool = False,
    spelled_out: bool = False,
    images: int = 0,
) -> Graph:
    """Return the folded graph of a config for one workload; with a cache, from the package or from it.

    With `images`, so many pictures a sequence are read; in decode they are tokens that were read before.
    """
    if images and kind is Workload.DECODE:
        from .huggingface.configs.building import build_noted
        from .modalities.feeding import check_sees

        check_sees(build_noted(unquantised(config).text, element, is_whole=True).module, images)
        images = 0
    notes = _of_quantised(config, kind, element)
    config = unquantised(config)
    variant = (*(("spelled-out",) if spelled_out else ()), *((f"images-{images}",) if images else ()))
    # The same answer before a recording and after it, here and where torch is another one.
    shipped = shipped_path(config.name, config.text, kind, element, *variant)
    found = None if cache is None else shipped_graph(shipped)
    if found is not None:
        told(f"graph of {config.name} ({kind}): of the package, {shipped.name}")
        return replace(found, name=config.name, notes=(*found.notes, *notes))
    key = graph_key(config.text, kind, element, *variant)
    lenient_key = graph_key(config.text, kind, element, *variant, "allow-unpriced")
    keys = (key, lenient_key) if allow_unpriced else (key,)
    found = next((g for k in keys if cache is not None and (g := cache.get(k)) is not None), None)
    if found is not None:
        return replace(found, name=config.name, notes=(*found.notes, *notes))
    with stage(f"record {config.name} ({kind}, {element})"):
        graph = _record_config(config, kind, element, report, allow_unpriced, spelled_out, images)
    if cache is not None:
        from ..ir.ops.unpriced import unpriced_calls

        cache.put(lenient_key if unpriced_calls(graph) else key, graph)
    return replace(graph, notes=(*graph.notes, *notes))


def check(model: str, dtype: DType | str) -> None:
    """Refuse at once a model that is not known, code that was not typed, and a type that models are not built in."""
    element = DType.parse(str(dtype))
    if element not in COMPUTE_TYPES:
        known = ", ".join(COMPUTE_TYPES)
        raise NotBuiltError(
            f"--dtype {element}: weights and activations are one of {known}; low precision is "
            "--precision, as in --precision fp8"
        )
    form = form_of(model)
    if form is FACTORY:
        check_typed(model)
    if form is CONFIG:
        read_config(model)


def _load_saved(request: LoadRequest) -> Graph:
    graph = load_graph(Path(request.model))
    told(f"graph of {graph.name}: read from {request.model}")
    if graph.workload is not request.workload:
        raise NotUnderstoodError(
            f"'{request.model}' holds a {graph.workload} graph, not {request.workload}; ask for --phase "
            f"{graph.workload}"
        )
    return graph


def _load_exported(request: LoadRequest) -> Graph:
    graph = load_pt2(request.model, request.workload, request.dims, request.allow_unpriced)
    return _with_own_type(graph, request.dtype, "exported")


def _with_own_type(graph: Graph, asked: DType, how: str) -> Graph:
    """Say of a graph that keeps its own element type that another one was asked for."""
    if graph.dtype is asked:
        return graph
    return replace(graph, notes=(*graph.notes, f"{how} in {graph.dtype}, which it keeps: --dtype {asked} is not used"))


def _load_onnx(request: LoadRequest) -> Graph:
    """Read an ONNX file; a graph kept of one is that of a file with the same bytes, read with the same sizes."""
    from .onnx import content_key, load_onnx

    path, cache = Path(request.model), request.cache
    lenient = ("allow-unpriced",) if request.allow_unpriced else ()
    sizes = json.dumps(dict(request.dims), sort_keys=True)
    key = graph_key(content_key(path), request.workload, sizes, *lenient) if cache is not None else ""
    found = cache.get(key) if cache is not None else None
    if found is not None:
        return replace(found, name=path.stem)
    with stage(f"read {path}"):
        graph = load_onnx(path, request.workload, request.dims, request.allow_unpriced)
    if cache is not None:
        cache.put(key, graph)
    return graph


def unquantised(config: Config) -> Config:
    """Return the config of the model in one type: how weights are kept is a matter of the plan."""
    fields = json.loads(config.text)
    if not fields.get("quantization_config"):
        return config
    left = {key: value for key, value in fields.items() if key != "quantization_config"}
    return replace(config, text=json.dumps(left, sort_keys=True, separators=(",", ":")))


def _of_quantised(config: Config, kind: Workload, element: DType) -> tuple[str, ...]:
    """What to say of a model that was published quantised and is to be trained; NotBuiltError as `recipe_of`."""
    if kind is not Workload.TRAIN or not json.loads(config.text).get("quantization_config"):
        return ()
    from .huggingface.configs.published import recipe_of

    return (
        f"published quantised ({recipe_of(config)}), trained here in {element} with all weights; --precision says in "
        "what training multiplies",
    )


def _record_config(
    config: Config,
    workload: Workload,
    dtype: DType,
    report: Report | None,
    allow_unpriced: bool,
    spelled_out: bool,
    images: int,
) -> Graph:
    if report is not None:
        report(f"recording {config.name} ({workload}, {dtype})")
    from .huggingface.configs.building import build_noted
    from .module import Asking, trace_built
    from .runs.model_run import ModelRun

    built = build_noted(config.text, dtype, is_whole=images > 0)
    longest = _positions(config, getattr(built.module, "config", None))
    at = min(longest or _TRIED, _TRIED)
    asking = Asking(workload, config.name, {"seq": at, "kv": at}, allow_unpriced, spelled_out, images, _LOSS_OF_CONFIGS)
    graph = trace_built(ModelRun(built.module), asking)
    return replace(graph, notes=(*built.notes, *graph.notes), max_positions=longest)


def _positions(config: Config, built: object) -> int:
    """The longest sequence that a config allows, or the built model's own by default; 0 when neither says.

    Of an encoder-decoder it is what both sides take where the two differ.
    """
    fields = json.loads(config.text)
    given = (fields.get(key, getattr(built, key, None)) for key in _LENGTHS)
    found = next((v for v in given if isinstance(v, int) and v > 0), 0)
    ends = (fields.get(key, getattr(built, key, None)) for key in _LENGTHS_OF_ENDS)
    return found or min((v for v in ends if isinstance(v, int) and v > 0), default=0)


def _load_factory(request: LoadRequest) -> Graph:
    """Run a factory and record what it describes; a module that has another type than was asked for keeps it."""
    model, workload, dtype = request.model, request.workload, request.dtype
    if request.report is not None:
        request.report(f"recording {model} ({workload}, {dtype}): this runs the code of '{model.rpartition(':')[0]}'")
    from .module import Asking, trace_run
    from .runs.factories import overlaid, run_from_factory

    run = overlaid(run_from_factory(model, dtype), request.asked, dtype, workload)
    name, sizes = model.rpartition(":")[2], request.asked.sizes
    asking = Asking(
        workload, name, sizes, request.allow_unpriced, request.spelled_out, loss_by="--loss file.py:function"
    )
    with stage(f"record {model} ({workload}, {dtype})"):
        return _with_own_type(trace_run(run, asking), dtype, "built")


_LOADERS: Mapping[ModelForm, Callable[[LoadRequest], Graph]] = MappingProxyType(
    {
        SAVED: _load_saved,
        ONNX: _load_onnx,
        EXPORTED: _load_exported,
        PICKLED: lambda request: refuse_pickle(request.model),
        FACTORY: _load_factory,
        CONFIG: lambda r: load_config(
            read_config(r.model), r.workload, r.dtype, r.cache, r.report, r.allow_unpriced, r.spelled_out, r.images
        ),
    }
)
