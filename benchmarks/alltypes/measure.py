"""One model type with all its parts: traced in training and inference, counted by torch on the same class, compared."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from slipstick.frontend import config_of, load_config
from slipstick.frontend.huggingface.configs.architectures import Architecture, ModelConfig, choose, speaks
from slipstick.frontend.huggingface.configs.models import Config
from slipstick.frontend.huggingface.lengths import SOURCE
from slipstick.frontend.huggingface.odd_models import decided
from slipstick.frontend.huggingface.runs import TOKENS, reads_known
from slipstick.frontend.modalities.feeding import DECODED, OF_EACH, OF_TOKENS, Feeds, all_feeds, check_sees
from slipstick.frontend.modalities.pictures import unchecked
from slipstick.frontend.record.failures import first_line
from slipstick.frontend.runs.options import TraceOptions
from slipstick.ir.errors import SlipstickError, UsageError
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.types import DType

from ..coverage.compared import WORKLOADS, Compared, count, failed, ratios, sum_of_outputs
from ..coverage.counter import Counted
from ..coverage.graphs import Traced, traced
from ..foreign.packages import define_torchvision_operators
from ..small_configs import small_config

# Lengths that are tried of a graph that does not hold for that of the examples.
_LONGEST = 8192


def model_types() -> tuple[str, ...]:
    """Return every model type for which transformers has a class without a head, in order."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return tuple(sorted(MODEL_MAPPING_NAMES))


def measure(model_type: str) -> list[Compared]:
    """Trace a small config of a type with all its parts, one picture a sequence if it sees, and let torch count it."""
    torch.set_num_threads(1)
    define_torchvision_operators()
    try:
        fields = {"model_type": model_type, **small_config(model_type, is_whole=True)}
    except Exception as error:
        return failed(model_type, f"no config: {first_line(error)}")
    config = config_of(model_type, fields)
    try:
        images, chosen, module = _built(fields)
    except Exception as error:
        found = traced(lambda workload: _graph(config, workload, 0), WORKLOADS)
        return [replace(_ours(model_type, found), oracle=first_line(error))]
    found = traced(lambda workload: _graph(config, workload, images), WORKLOADS)
    return [_compared(model_type, found, chosen.model_class.__name__, module, images)]


def _graph(config: Config, workload: Workload, images: int) -> Graph:
    """Trace in bf16, and in fp32 a model that makes fp32 numbers of its own and so runs in that type alone."""
    try:
        return load_config(config, workload, options=TraceOptions(images=images))
    except SlipstickError as error:
        if "bfloat16" not in str(error).lower():
            raise
        return load_config(config, workload, DType.FP32, options=TraceOptions(images=images))


def _ours(model_type: str, found: Traced) -> Compared:
    return Compared(
        model_type=model_type, layers=found.layers, parameters=(found.num_parameters, 0, 0), why_not=found.why_not,
        trace_s=found.trace_s, plans=found.plans,
    )  # fmt: skip


def _compared(model_type: str, found: Traced, class_name: str, module: nn.Module, images: int) -> Compared:
    ours = replace(_ours(model_type, found), class_name=class_name)
    try:
        graph = next(iter(found.graphs.values()), None)
        feeds = _held(_recorded(all_feeds(module, Workload.PREFILL, images=images), graph), graph)
        is_prompt = images > 0 or not _says(found.graphs.get("prefill"))
        theirs, used = _counted(module, feeds, images, is_prompt) if found.graphs else ({}, 0)
    except Exception as error:
        return replace(ours, oracle=first_line(error))
    of_these = {name: g for name, g in found.graphs.items() if _is_of(g, feeds)}
    lengths = {"batch": feeds.lengths["batch"], "seq": feeds.lengths["seq"], "kv": feeds.lengths["seq"]}
    total = sum(p.numel() for p in module.parameters())
    return replace(
        ours,
        parameters=(found.num_parameters, total, used),
        ratios=dict(ratios(of_these, theirs, {**lengths, SOURCE: feeds.lengths[SOURCE]})),
        notes=(str(feeds),),
    )


def _recorded(tried: Iterator[Feeds], graph: Graph | None) -> Feeds:
    """What a graph was recorded with, as its notes say; the first layout where they say nothing."""
    first = found = next(tried)
    while graph is not None and not _is_of(graph, found):
        later = next(tried, None)
        if later is None:
            return first
        found = later
    return found


def _held(feeds: Feeds, graph: Graph | None) -> Feeds:
    """The same inputs at lengths for which a graph holds, those of the examples where it holds for these."""
    changed: dict[str, int] = {}
    for name in ("seq", SOURCE):
        bounds = [b for b in (graph.bounds if graph is not None else ()) if b.name == name]
        own = feeds.lengths[name]
        held = (n for n in (own, *(b.low for b in bounds), *range(own, _LONGEST)) if all(b.holds(n) for b in bounds))
        changed[name] = next(held, own)
    return replace(feeds, lengths={**feeds.lengths, **changed})


def _says(graph: Graph | None) -> bool:
    """Whether a graph says what it reads, as one does that no prompt and no tokens to train on are known of."""
    return graph is not None and any(note.startswith("it reads ") for note in graph.notes)


def _is_of(graph: Graph, feeds: Feeds) -> bool:
    fixed = {note.partition(" ")[0] for note in graph.notes if note.endswith(OF_EACH)}
    return (str(feeds) in graph.notes or not _says(graph)) and feeds.numbers.keys() == fixed


def _built(fields: Mapping[str, object]) -> tuple[int, Architecture, nn.Module]:
    """The pictures a sequence, and the class that is traced, with the attention that transformers spells out."""
    images, chosen, module = 1, *_class(fields, is_whole=True)
    try:
        check_sees(module, images)
    except UsageError:
        images, chosen, module = 0, *_class(fields, is_whole=False)
    return images, chosen, module


def _class(fields: Mapping[str, object], is_whole: bool) -> tuple[Architecture, nn.Module]:
    from transformers import AutoConfig

    given = {name: value for name, value in json.loads(json.dumps(dict(fields))).items() if name != "model_type"}
    chosen = choose(cast(ModelConfig, AutoConfig.for_model(str(fields["model_type"]), **given)), is_whole=is_whole)
    with torch.device("meta"):
        options = {"dtype": torch.float32, "attn_implementation": "eager", "experts_implementation": "batched_mm"}
        made = chosen.model_class._from_config(chosen.config, **options)
    assert isinstance(made, nn.Module)
    return chosen, made


def _counted(module: nn.Module, feeds: Feeds, images: int, is_prompt: bool) -> tuple[dict[str, Counted], int]:
    """Torch's own count of a step and of a forward pass, and the parameters that get a gradient."""
    known = replace(feeds, fixed=OF_TOKENS)
    given = {**known.examples(), **known.beside(known.lengths["batch"])}
    given = {n: t.float() if isinstance(t, Tensor) and t.is_floating_point() else t for n, t in given.items()}
    with decided(module), unchecked(module), known.working_out():
        return count(module, lambda: given, _loss, _of_prefill(module, given, images) if is_prompt else {})


def _of_prefill(module: nn.Module, given: Mapping[str, object], images: int) -> Mapping[str, object]:
    """What makes a model that speaks do what a prefill does: logits of the last token alone, one token of an answer."""
    if not speaks(type(module)):
        return {}
    takes = "logits_to_keep" in inspect.signature(type(module).forward).parameters
    decoded, reads = given.get(DECODED), TOKENS in given and not images and reads_known(module)
    first = {DECODED: decoded[:, :1]} if reads and isinstance(decoded, Tensor) else {}
    return {**first, **({"logits_to_keep": 1} if takes else {})}


def _loss(out: object) -> Tensor:
    logits = getattr(out, "logits", None)
    return logits.float().sum() if isinstance(logits, Tensor) and logits.dim() == 3 else sum_of_outputs(out)


__all__ = ["measure", "model_types"]
