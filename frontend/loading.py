"""A model's name, config file or factory to its folded graph; torch is imported only when nothing is cached."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from ..ir.errors import NotBuiltError, NotUnderstoodError, UnknownNameError
from ..ir.graph import Graph, Workload
from ..ir.text.files import load_graph
from ..ir.text.stages import stage, told
from ..ir.text.untrusted import check_typed
from ..ir.types import DType
from .cache import GraphCache, graph_key, shipped_graph, shipped_path
from .exported import load_pt2, refuse_pickle
from .forms import CONFIG, EXPORTED, FACTORY, ONNX, PICKLED, SAVED, ModelForm, form_of
from .huggingface.configs.models import Config, read_config
from .runs.options import TraceOptions

Report = Callable[[str], None]

# What weights and activations may be in; narrower types come with their scales, which are not modelled yet.
COMPUTE_TYPES = (DType.BF16, DType.FP16, DType.FP32)
_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len")
# A length at which a graph of a config must hold, or the longest that the config allows where that is less: what code
# does may depend on it, and an example is short.
_TRIED = 4096
_LENGTHS_OF_ENDS = ("max_target_positions", "max_source_positions")
_NO_DIMS: Mapping[str, str] = MappingProxyType({})
_PLAIN = TraceOptions()
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
    images: int = 0,
) -> Graph:
    """Return the folded graph of a model for one workload, with options as in `TraceOptions`.

    Args:
        model: a catalogue name, a path to a `config.json`, a saved graph, an ONNX file, a `.pt2` file of
            `torch.export.save`, or `file.py:factory` (runs that code).
        workload: train, prefill or decode.
        dtype: element type of weights and activations.
        cache: where recorded graphs are kept; None records every time, models of the catalogue too.
        report: told, in one line each, about slow steps.
        dims: what the named dims of a file are.
        allow_unpriced: keep operators without a rule.
        source_tokens: what an encoder beside a decoder reads.
        spelled_out: record what unfused code runs.
        images: pictures a sequence.
    """
    options = TraceOptions(
        dims=dims, images=images, source_tokens=source_tokens, allow_unpriced=allow_unpriced, spelled_out=spelled_out
    )
    return load_model(model, workload, dtype, cache, report, options)


def load_model(
    model: str,
    workload: Workload | str = Workload.TRAIN,
    dtype: DType | str = DType.BF16,
    cache: GraphCache | None = None,
    report: Report | None = None,
    options: TraceOptions = _PLAIN,
) -> Graph:
    """Do as `load` with the options in one record, those of factories too; its workload and type are those given."""
    options.refuse_unread(model)
    if workload not in list(Workload):
        raise UnknownNameError.of("workload", workload, list(Workload))
    options = replace(options, workload=Workload(workload), dtype=DType.parse(str(dtype)))
    # Ops, and what looks at graphs, are not loaded for a name that is refused.
    from ..ir.text.admission import admit, refuse_incoming
    from .huggingface.lengths import with_source

    form = form_of(model)
    if form is CONFIG and read_config(model).is_shipped:
        return with_source(_LOADERS[form](model, options, cache, report), options.source_tokens)
    with refuse_incoming(model):
        graph = _LOADERS[form](model, options, cache, report)
        admit(graph)
        return with_source(graph, options.source_tokens)


def load_config(
    config: Config,
    kind: Workload = Workload.TRAIN,
    element: DType = DType.BF16,
    cache: GraphCache | None = None,
    report: Report | None = None,
    options: TraceOptions = _PLAIN,
) -> Graph:
    """Return the folded graph of a config for one workload; with a cache, from the package or from it.

    Pictures of the options are, in decode, tokens that were read before.
    """
    images = options.images
    if images and kind is Workload.DECODE:
        from .huggingface.configs.building import build_noted
        from .modalities.feeding import check_sees

        check_sees(build_noted(unquantised(config).text, element, is_whole=True).module, images)
        images = 0
    notes = _of_quantised(config, kind, element)
    config = unquantised(config)
    options = replace(options, workload=kind, dtype=element, images=images)
    variant = (*(("spelled-out",) if options.spelled_out else ()), *((f"images-{images}",) if images else ()))
    # The same answer before a recording and after it, here and where torch is another one.
    shipped = shipped_path(config.name, config.text, kind, element, *variant)
    found = None if cache is None else shipped_graph(shipped)
    if found is not None:
        told(f"graph of {config.name} ({kind}): of the package, {shipped.name}")
        return replace(found, name=config.name, notes=(*found.notes, *notes))
    key = graph_key(config.text, kind, element, *variant)
    lenient_key = graph_key(config.text, kind, element, *variant, "allow-unpriced")
    keys = (key, lenient_key) if options.allow_unpriced else (key,)
    found = next((g for k in keys if cache is not None and (g := cache.get(k)) is not None), None)
    if found is not None:
        return replace(found, name=config.name, notes=(*found.notes, *notes))
    with stage(f"record {config.name} ({kind}, {element})"):
        graph = _record_config(config, options, report)
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


def _load_saved(model: str, options: TraceOptions, cache: GraphCache | None, report: Report | None) -> Graph:
    graph = load_graph(Path(model))
    told(f"graph of {graph.name}: read from {model}")
    if graph.workload is not options.workload:
        raise NotUnderstoodError(
            f"'{model}' holds a {graph.workload} graph, not {options.workload}; ask for --phase {graph.workload}"
        )
    return graph


def _load_exported(model: str, options: TraceOptions, cache: GraphCache | None, report: Report | None) -> Graph:
    graph = load_pt2(model, options.workload, options.dims, options.allow_unpriced)
    return _with_own_type(graph, options.dtype, "exported")


def _with_own_type(graph: Graph, asked: DType, how: str) -> Graph:
    """Say of a graph that keeps its own element type that another one was asked for."""
    if graph.dtype is asked:
        return graph
    return replace(graph, notes=(*graph.notes, f"{how} in {graph.dtype}, which it keeps: --dtype {asked} is not used"))


def _load_onnx(model: str, options: TraceOptions, cache: GraphCache | None, report: Report | None) -> Graph:
    """Read an ONNX file; a graph kept of one is that of a file with the same bytes, read with the same sizes."""
    from .onnx import content_key, load_onnx

    path = Path(model)
    lenient = ("allow-unpriced",) if options.allow_unpriced else ()
    sizes = json.dumps(dict(options.dims), sort_keys=True)
    key = graph_key(content_key(path), options.workload, sizes, *lenient) if cache is not None else ""
    found = cache.get(key) if cache is not None else None
    if found is not None:
        return replace(found, name=path.stem)
    with stage(f"read {path}"):
        graph = load_onnx(path, options.workload, options.dims, options.allow_unpriced)
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


def _record_config(config: Config, options: TraceOptions, report: Report | None) -> Graph:
    if report is not None:
        report(f"recording {config.name} ({options.workload}, {options.dtype})")
    from .huggingface.configs.building import build_noted
    from .module import trace_built
    from .runs.model_run import ModelRun

    built = build_noted(config.text, options.dtype, is_whole=options.images > 0)
    longest = _positions(config, getattr(built.module, "config", None))
    at = min(longest or _TRIED, _TRIED)
    options = replace(options, name=config.name, sizes={"seq": at, "kv": at}, loss_by=_LOSS_OF_CONFIGS)
    graph = trace_built(ModelRun(built.module), options)
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


def _load_factory(model: str, options: TraceOptions, cache: GraphCache | None, report: Report | None) -> Graph:
    """Run a factory and record what it describes; a module that has another type than was asked for keeps it."""
    subject = f"{model} ({options.workload}, {options.dtype})"
    code, _, name = model.rpartition(":")
    if report is not None:
        report(f"recording {subject}: this runs the code of '{code}'")
    from .module import trace_run
    from .runs.factories import overlaid, run_from_factory

    run = overlaid(run_from_factory(model, options.dtype), options)
    options = replace(options, name=name, loss_by="--loss file.py:function")
    with stage(f"record {subject}"):
        return _with_own_type(trace_run(run, options), options.dtype, "built")


_LOADERS: Mapping[ModelForm, Callable[[str, TraceOptions, GraphCache | None, Report | None], Graph]] = MappingProxyType(
    {
        SAVED: _load_saved,
        ONNX: _load_onnx,
        EXPORTED: _load_exported,
        PICKLED: lambda model, *_: refuse_pickle(model),
        FACTORY: _load_factory,
        CONFIG: lambda model, options, cache, report: load_config(
            read_config(model), options.workload, options.dtype, cache, report, options
        ),
    }
)
