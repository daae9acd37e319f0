"""A model of transformers that someone already holds: attention and experts are ours while it is recorded."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import product

from torch import nn

from ..record.adapter import swapped
from .recording import IMPLEMENTATION, register

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


@contextmanager
def _said(model: nn.Module, fields: Mapping[str, object]) -> Iterator[None]:
    """Let the configs of all parts say so, where they say anything."""
    configs = {id(c): c for part in model.modules() if hasattr(c := vars(part).get("config"), "__dict__")}
    with ExitStack() as stack:
        for config, (name, value) in product(configs.values(), fields.items()):
            if name in vars(config):
                stack.enter_context(swapped(config, name, value))
        yield


__all__ = ["is_of_transformers", "recordable", "uncached", "what_runs"]
