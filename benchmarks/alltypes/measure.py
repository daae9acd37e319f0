"""One model type with all its parts: traced in training and inference, counted by torch on the same class, compared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn

from slipstick.frontend import config_of, load_config
from slipstick.frontend.architectures import Architecture, ModelConfig, choose
from slipstick.frontend.failures import first_line
from slipstick.frontend.modalities.feeding import Feeds, feeds_of
from slipstick.frontend.odd_models import decided
from slipstick.frontend.small_configs import small_config
from slipstick.frontend.source_length import with_source
from slipstick.ir.graph import Workload

from ..coverage.compared import WORKLOADS, Compared, count, failed, ratios, sum_of_outputs
from ..coverage.counter import Counted
from ..coverage.graphs import Traced, traced
from ..coverage.oracle import BATCH
from ..foreign.packages import define_torchvision_operators


def model_types() -> tuple[str, ...]:
    """Return every model type for which transformers has a class without a head, in order."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return tuple(sorted(MODEL_MAPPING_NAMES))


def measure(model_type: str) -> list[Compared]:
    """Trace a small config of a type with all its parts, one picture a sequence, and compare it with torch's count."""
    torch.set_num_threads(1)
    define_torchvision_operators()
    try:
        fields = {"model_type": model_type, **small_config(model_type, is_whole=True)}
    except Exception as error:
        return failed(model_type, f"no config: {first_line(error)}")
    config = config_of(model_type, fields)
    found = traced(lambda workload: with_source(load_config(config, workload, images=1)), WORKLOADS)
    try:
        chosen, module = _built(fields)
        feeds = feeds_of(module, Workload.PREFILL, images=1)
    except Exception as error:
        return [
            Compared(
                model_type, layers=found.layers, parameters=(found.num_parameters, 0, 0), why_not=found.why_not,
                oracle=first_line(error), plans=found.plans,
            )
        ]  # fmt: skip
    return [_compared(model_type, found, chosen.model_class.__name__, module, feeds)]


def _compared(model_type: str, found: Traced, class_name: str, module: nn.Module, feeds: Feeds) -> Compared:
    total, oracle = sum(p.numel() for p in module.parameters()), ""
    theirs: dict[str, Counted] = {}
    used = 0
    try:
        if found.graphs:
            theirs, used = _counted(module, feeds)
    except Exception as error:
        oracle = first_line(error)
    lengths = {"batch": BATCH, "seq": feeds.lengths["seq"], "kv": feeds.lengths["seq"]}
    return Compared(
        model_type=model_type,
        class_name=class_name,
        layers=found.layers,
        parameters=(found.num_parameters, total, used),
        why_not=found.why_not,
        ratios=dict(ratios(found.graphs, theirs, lengths)),
        trace_s=found.trace_s,
        notes=(str(feeds),),
        oracle=oracle,
        plans=found.plans,
    )


def _built(fields: Mapping[str, object]) -> tuple[Architecture, nn.Module]:
    """The class that is traced, with the attention that transformers spells out."""
    from transformers import AutoConfig

    given = {name: value for name, value in json.loads(json.dumps(dict(fields))).items() if name != "model_type"}
    chosen = choose(cast(ModelConfig, AutoConfig.for_model(str(fields["model_type"]), **given)), is_whole=True)
    with torch.device("meta"):
        made = chosen.model_class._from_config(chosen.config, dtype=torch.float32, attn_implementation="eager")
    assert isinstance(made, nn.Module)
    return chosen, made


def _counted(module: nn.Module, feeds: Feeds) -> tuple[dict[str, Counted], int]:
    """Torch's own count of a step and of a forward pass, and the parameters that get a gradient."""
    if not feeds.is_plain and feeds.grid:
        raise ValueError("packed pictures are sized by data")
    with decided(module):
        return count(module, lambda: _inputs(feeds), _loss)


def _loss(out: object) -> Tensor:
    logits = getattr(out, "logits", None)
    return logits.float().sum() if isinstance(logits, Tensor) and logits.dim() == 3 else sum_of_outputs(out)


def _inputs(feeds: Feeds) -> dict[str, Tensor]:
    at = {**feeds.lengths, "batch": BATCH, "images": BATCH, "src": feeds.lengths["seq"]}
    sizes = ((f, [at[d] if isinstance(d, str) else d for d in f.dims]) for f in feeds.given)
    return {f.name: torch.zeros(s, dtype=torch.int64 if f.dtype is torch.int64 else torch.float32) for f, s in sizes}


__all__ = ["measure", "model_types"]
