"""Ways to split a model: by module with DTensor, as transformers does by the model's own plan, in units of FSDP2."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import cast

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

from slipstick.frontend.fold.trace import find_stack
from slipstick.passes.sharding.plans.plans import Style, TpPlan, tp_plan

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
_STYLES: Mapping[Style, Callable[[], ParallelStyle]] = {Style.COLWISE: ColwiseParallel, Style.ROWWISE: RowwiseParallel}
# What modules of attention keep as plain numbers of the whole model; engines give each rank its own.
_NUMBERS = (
    "num_heads", "n_heads", "n_head", "num_attention_heads", "num_key_value_heads", "num_kv_heads", "embed_dim",
    "all_head_size", "inner_dim", "hidden_size", "new_num_heads",
)  # fmt: skip


def split_linears(model: nn.Module) -> dict[str, Style]:
    """Return the linear layers of repeated layers that Megatron's plan splits, with stars for numbers."""
    stack = find_stack(model)
    plan, found = tp_plan("megatron"), dict[str, Style]()
    for name, part in model.named_modules():
        starred = _NUMBER.sub("*", name)
        if stack is not None and name.startswith(f"{stack.path}.") and type(part) is nn.Linear:
            style = plan.style(f"{starred}.weight")
            if style in _STYLES:
                found[starred] = style
    return found


def plan_of(linears: Mapping[str, Style]) -> TpPlan:
    """Return our plan of the same layers, each of which reduces its own input gradient."""
    return TpPlan("layer-by-layer", tuple(linears.items()), eager_grads=True)


def by_module(linears: Mapping[str, Style], tp: int, local_numbers: bool) -> Callable[[nn.Module, DeviceMesh], None]:
    """Split layer by layer; with `local_numbers` attention is told a rank's own number of heads."""

    def split(model: nn.Module, mesh: DeviceMesh) -> None:
        named = {name: linears[s] for name, _ in model.named_modules() if (s := _NUMBER.sub("*", name)) in linears}
        owners = {name.rpartition(".")[0] for name, style in named.items() if style is Style.COLWISE}
        parallelize_module(model, mesh, {name: _STYLES[style]() for name, style in named.items()})
        for owner in sorted(owners) if local_numbers else ():
            part = model.get_submodule(owner)
            for number in _NUMBERS:
                kept = part.__dict__.get(number)
                if isinstance(kept, int) and kept % tp == 0:
                    setattr(part, number, kept // tp)

    return split


def as_transformers_does(model: nn.Module, mesh: DeviceMesh) -> None:
    """Apply the plan that comes with the model as transformers itself does."""
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    expanded = cast("Mapping[str, str]", model._expand_parallel_plan(model.tp_plan))  # type: ignore[operator]
    names = {n for n, _ in (*model.named_modules(), *model.named_parameters())}
    apply_tensor_parallelism(model, mesh, {path: style for path, style in expanded.items() if path in names})


def in_units(first: Collection[str]) -> Callable[[nn.Module, DeviceMesh], None]:
    """Make units of FSDP2: what runs before the layers (the owners of the parameters named), each layer, the rest.

    A unit of nothing but tables is not gathered for its backward phase, which reads no table.
    """

    def split(model: nn.Module, mesh: DeviceMesh) -> None:
        stack = find_stack(model)
        assert stack is not None
        layers = cast("nn.ModuleList", model.get_submodule(stack.path))
        outside = [(name, part) for name, part in _owners(model) if not name.startswith(f"{stack.path}.")]
        runs_first = {name.rpartition(".")[0] for name in first}
        before = [part for name, part in outside if name in runs_first]
        behind = [part for name, part in outside if name not in runs_first]
        units: list[nn.Module | list[nn.Module]] = [u for u in (before, *layers, behind) if u]
        for unit in units:
            fully_shard(unit, mesh=mesh)
        fully_shard(model, mesh=mesh)
        if before and all(isinstance(part, nn.Embedding) for part in before):
            cast("FSDPModule", before[0]).set_unshard_in_backward(False)

    return split


def _owners(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules that own parameters, in order."""
    for name, part in model.named_modules():
        if next(part.parameters(recurse=False), None) is not None:
            yield name, part
