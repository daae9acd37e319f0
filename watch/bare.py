"""The module that a run trains without what the run put around it: no weights, no hooks, no wrappers, one type."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Final

import torch
from torch import Tensor, nn

from ..ir.errors import NotBuiltError

# What holds the module that it wraps, by the attribute under which it does.
_WRAPPED: Final = ("_orig_mod", "_checkpoint_wrapped_module")
# Set on a module by compilers, accelerate and trainers; what is recorded is the class's own code.
_OF_THE_RUN: Final = ("forward", "_compiled_call_impl", "_trainer", "_fabric", "_strategy")
_HOOKS: Final = (
    "_backward_hooks",
    "_backward_pre_hooks",
    "_forward_hooks",
    "_forward_hooks_always_called",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_load_state_dict_post_hooks",
    "_load_state_dict_pre_hooks",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
)
# Flags of modules that have activations recomputed; the plan says so instead.
_CHECKPOINTING: Final = ("gradient_checkpointing",)


def bare(module: nn.Module, dtype: torch.dtype | None = None, keeps_buffers: bool = False) -> nn.Module:
    """Return a copy of a module on the `meta` device, as its class was written.

    Hooks, data-parallel wrappers, `fully_shard`, `torch.compile` and checkpoint wrappers are left out; a sharded
    parameter (DTensor) has its whole size. Attributes that are no tensors and no modules are those of the original.

    Args:
        module: what is trained; it is only read.
        dtype: the type of all floating-point parameters in the copy, as autocast computes; None for their own.
        keeps_buffers: floating-point buffers keep their type, as those of transformers do.

    Raises:
        NotBuiltError: a module of `FullyShardedDataParallel`, whose parameters have lost their shapes.
    """
    copies = dict[int, nn.Module]()
    tensors = dict[int, Tensor | None]()

    def of_tensor(tensor: Tensor | None, target: torch.dtype | None) -> Tensor | None:
        if tensor is not None and id(tensor) not in tensors:
            # Under ZeRO 3 of DeepSpeed a parameter is empty, and says what it is a part of.
            made = torch.empty(
                getattr(tensor, "ds_shape", tensor.shape),
                dtype=target if target and tensor.is_floating_point() else tensor.dtype,
                device="meta",
            )
            is_parameter = isinstance(tensor, nn.Parameter)
            tensors[id(tensor)] = nn.Parameter(made, tensor.requires_grad) if is_parameter else made
        return None if tensor is None else tensors[id(tensor)]

    def of(part: nn.Module) -> nn.Module:
        part = unwrapped(part)
        if id(part) in copies:
            return copies[id(part)]
        kind = type(part)
        if any(base.__name__ == "FSDPModule" for base in kind.__bases__):
            # `fully_shard` puts a class of its own before the one that was written.
            kind = next(base for base in kind.__mro__[1:] if issubclass(base, nn.Module))
        copies[id(part)] = copy = kind.__new__(kind)
        own = vars(part)
        state = {name: value for name, value in own.items() if name not in (*_OF_THE_RUN, *_HOOKS)}
        state |= {name: type(own[name])() for name in _HOOKS if name in own}
        state |= {name: None for name in _OF_THE_RUN[2:] if name in own}
        state |= {name: False for name in _CHECKPOINTING if name in own}
        state["_parameters"] = {n: of_tensor(p, dtype) for n, p in part._parameters.items()}
        state["_buffers"] = {n: of_tensor(b, None if keeps_buffers else dtype) for n, b in part._buffers.items()}
        state["_modules"] = {n: None if m is None else of(m) for n, m in part._modules.items()}
        copy.__dict__.update(state)
        return copy

    found = of(module)
    for copy in copies.values():
        copy.__dict__.update(_relinked(vars(copy), copies))
    return found


def unwrapped(module: nn.Module) -> nn.Module:
    """Return the module that a wrapper wraps; NotBuiltError where its parameters are flattened."""
    while True:
        if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
            module = module.module
            continue
        if "_fsdp_wrapped_module" in module._modules:
            raise NotBuiltError(
                "a model inside of FullyShardedDataParallel is not recorded: its parameters have lost their shapes; "
                "shard it with torch.distributed.fsdp.fully_shard, or watch the model before it is wrapped"
            )
        inner = next((module._modules[name] for name in _WRAPPED if name in module._modules), None)
        if inner is None:
            return module
        module = inner


def recomputes(module: nn.Module) -> bool:
    """Whether parts of a module recompute their activations: flags of transformers, or checkpoint wrappers."""
    parts = list(module.modules())
    return any(getattr(part, name, False) is True for part in parts for name in _CHECKPOINTING) or any(
        "_checkpoint_wrapped_module" in part._modules for part in parts
    )


def _relinked(state: Mapping[str, object], copies: Mapping[int, nn.Module]) -> Iterator[tuple[str, object]]:
    """Yield attributes that lead to modules of the original, with their copies: bound methods, plain lists."""
    for name, value in state.items():
        if isinstance(value, types.MethodType) and id(value.__self__) in copies:
            yield name, types.MethodType(value.__func__, copies[id(value.__self__)])
        elif isinstance(value, list) and any(isinstance(one, nn.Module) for one in value):
            yield name, [copies.get(id(one), one) for one in value]
