"""A model of transformers that someone already holds: attention and experts are ours while it is recorded."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from torch import nn

from .adapter import swapped
from .huggingface import IMPLEMENTATION, register

# Where a config keeps the names of the functions that its model calls.
_NAMES = ("_attn_implementation_internal", "_experts_implementation_internal")


def is_of_transformers(module: nn.Module) -> bool:
    """Whether transformers made a model; it is not imported to find out."""
    kind = getattr(sys.modules.get("transformers"), "PreTrainedModel", None)
    return isinstance(kind, type) and isinstance(module, kind)


@contextmanager
def recordable(model: nn.Module) -> Iterator[None]:
    """Let the model call our attention and experts, by the configs of all of its parts."""
    register()
    configs = {id(c): c for part in model.modules() if (c := vars(part).get("config")) is not None}
    with ExitStack() as stack:
        for config in configs.values():
            for name in _NAMES:
                if name in vars(config):
                    stack.enter_context(swapped(config, name, IMPLEMENTATION))
        yield


__all__ = ["is_of_transformers", "recordable"]
