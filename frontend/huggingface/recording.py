"""Models of transformers as they are recorded: semantic operators in place of what they spell out, and their caches."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from typing import TypeVar

from torch import nn

from ...ir.errors import TraceError
from ...ir.graph import Hint
from ...ir.placement import EP, TP
from ..modalities.pictures import placed
from ..record.adapter import swapped
from ..record.preserve import Contexts, one_context
from .odd_models import decided
from .operators.attention import attend, attention_patched, no_mask, registered
from .operators.experts import banked, experts
from .operators.linear import scanned
from .operators.old_attention import fused_attention, is_fused
from .operators.scans import scans
from .operators.sparse import compressed, indexed

IMPLEMENTATION = "slipstick"
T = TypeVar("T")


class _InOrder(set[T]):
    """A set that gives its members in the order of their text, in every run of Python the same."""

    def __iter__(self) -> Iterator[T]:
        return iter(sorted(super().__iter__(), key=str))


def register() -> None:
    """Make our attention and experts known to transformers under the name that models are built with."""
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(IMPLEMENTATION, attend)
    ALL_MASK_ATTENTION_FUNCTIONS.register(IMPLEMENTATION, no_mask)
    ALL_EXPERTS_FUNCTIONS.register(IMPLEMENTATION, experts)


@one_context
def patched(model: nn.Module, spelled_out: bool = False) -> Contexts:
    """Replace, for the time of a recording, what transformers spells out in many small operators.

    Rotary embedding (a function of the modelling file; not with `spelled_out`), the packed-sequence check (which reads
    data), checks of pictures against their tokens, the assembly of keys from latents (written in place, value by
    value), recurrences (loops over positions), and loops over sets, whose order is of no run of Python twice.
    """
    import transformers.masking_utils as masking
    import transformers.pytorch_utils as cached

    # Positions of a picture are kept by its sizes, and open sizes are no keys: as in a compilation nothing is kept.
    yield swapped(cached, "is_torchdynamo_compiling", lambda: True)
    yield swapped(masking, "find_packed_sequence_indices", lambda position_ids: None)
    yield _ordered(model)
    yield attention_patched(model, IMPLEMENTATION, spelled_out)
    yield indexed(model)
    yield compressed(model)
    yield banked(model)
    yield scans(model)
    yield scanned(model)
    yield fused_attention(model)
    yield decided(model)
    yield placed(model)
    if is_fused(model):
        own = str(getattr(model.config, "_attn_implementation", ""))
        yield registered(masking.ALL_MASK_ATTENTION_FUNCTIONS, own, no_mask)


@one_context
def _ordered(model: nn.Module) -> Contexts:
    """Let loops over `set(config.layer_types)`, in which tables of positions are computed, run in one order."""
    for file in {type(m).__module__ for m in model.modules() if type(m).__module__.startswith("transformers")}:
        yield swapped(sys.modules[file], "set", _InOrder)
    for part in model.modules():
        for name in [n for n, held in vars(part).items() if type(held) is set and not n.startswith("_")]:
            yield swapped(part, name, _InOrder(vars(part)[name]))


def hints_on(model: nn.Module) -> tuple[Hint, ...]:
    """The plans that a transformers model (or one that wraps such models alike) carries for splitting its layers."""
    plans = ((TP, getattr(model, "tp_plan", None)), (EP, getattr(model, "ep_plan", None)))
    return tuple(
        Hint(axis, str(path), str(style))
        for axis, plan in plans
        if isinstance(plan, dict)
        for path, style in plan.items()
    )


def config_of(model: nn.Module):  # type: ignore[no-untyped-def]
    """Return the model's own config object; TraceError when it has none."""
    config = getattr(model, "config", None)
    if config is None:
        raise TraceError(f"{type(model).__name__} has no config")
    return config


# Where a config keeps the names of the functions that its model calls.
_NAMES = ("_attn_implementation_internal", "_experts_implementation_internal")


def is_of_transformers(module: nn.Module) -> bool:
    """Whether transformers made a model; it is not imported to find out."""
    kind = getattr(sys.modules.get("transformers.modeling_utils"), "PreTrainedModel", None)
    return isinstance(kind, type) and isinstance(module, kind)


def what_runs(module: nn.Module, takes_known_inputs: bool) -> nn.Module:
    """Return what a wrapper wraps: the module inside a data-parallel one, or a model of transformers.

    That is what runs where it holds all parameters of its wrapper and runs on the inputs that it is known to take.
    """
    while isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
        module = module.module
    if not takes_known_inputs or is_of_transformers(module):
        return module
    inside = next((part for part in module.modules() if is_of_transformers(part)), None)
    if inside is None or {id(p) for p in module.parameters()} != {id(p) for p in inside.parameters()}:
        return module
    return inside


@contextmanager
def recordable(model: nn.Module) -> Iterator[None]:
    """Let the models of transformers in a module call our attention and experts, by the configs of all their parts."""
    if not any(is_of_transformers(part) for part in model.modules()):
        yield
        return
    register()
    with _said(model, dict.fromkeys(_NAMES, IMPLEMENTATION)):
        yield


@contextmanager
def uncached(model: nn.Module) -> Iterator[None]:
    """Let models of transformers keep no keys and values, which nobody trains: a training step has no later one."""
    with _said(model, {"use_cache": False}):
        yield


@one_context
def _said(model: nn.Module, fields: Mapping[str, object]) -> Contexts:
    """Let the configs of all parts say so, where they say anything."""
    configs = {id(c): c for part in model.modules() if hasattr(c := vars(part).get("config"), "__dict__")}
    for config, (name, value) in product(configs.values(), fields.items()):
        if name in vars(config):
            yield swapped(config, name, value)
