"""What the first step of a run shows of it: sizes, types, ranks, sharding, and how its optimizer keeps states."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..ir.records import dataclass
from .bare import recomputes, unwrapped

# Names of mesh dims, by the word of a plan that their size is.
_MESHES: Mapping[str, str] = {"tp": "tp", "cp": "cp", "pp": "pp"}


@dataclass(slots=True)
class ObservedRun:
    """A run as its first step shows it.

    Attributes:
        device: type of the device that the parameters are on.
        device_name: its name, as the driver has it; empty for a CPU.
        inputs: arguments of forward by name, tensors without data; None before the first forward pass.
        micro_batch: sequences, or samples, of a forward pass.
        seq_len: tokens of one; None where the input has no sequence.
        num_micro_batches: forward passes of the first step.
        compute_dtype: type that autocast or mixed precision computes in; None for that of the parameters.
        calls: the method that a forward pass is: `training_step` of a module of Lightning.
        words: fields of `PlanWords` that follow from it.
    """

    device: str
    device_name: str
    inputs: Mapping[str, object] | None = None
    micro_batch: int = 1
    seq_len: int | None = None
    num_micro_batches: int = 0
    compute_dtype: torch.dtype | None = None
    calls: str = "forward"
    words: dict[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, model: nn.Module) -> ObservedRun:
        """Return what a model shows before it runs."""
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        return cls(device.type, torch.cuda.get_device_name(device) if device.type == "cuda" else "")

    def passed(self, inputs: Mapping[str, object]) -> None:
        """Note a forward pass of training, the first with its sizes and the type in which it runs."""
        self.num_micro_batches += 1
        if self.inputs is not None:
            return
        self.inputs = {name: without_data(value) for name, value in inputs.items() if value is not None}
        self.micro_batch, self.seq_len = batch_of(inputs)
        if torch.is_autocast_enabled(self.device):
            self.compute_dtype = torch.get_autocast_dtype(self.device)

    def stepped(self, model: nn.Module, optimizer: Optimizer | None) -> None:
        """Note what the end of the first step shows: sharding, recomputation and types of optimizer states."""
        self.compute_dtype = self.compute_dtype or _sharded_dtype(model)
        self.words |= _ranks(model)
        if recomputes(model):
            self.words["recompute"] = "full"
        if optimizer is not None:
            self.words |= _states(optimizer)


def named(module: nn.Module, args: Sequence[object], kwargs: Mapping[str, object]) -> Mapping[str, object]:
    """Return the arguments of a call by the names that forward has for them.

    >>> list(named(nn.Linear(2, 2), [torch.zeros(1, 2)], {}))
    ['input']
    """
    try:
        bound = inspect.signature(unwrapped(module).forward).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return {**{f"arg{k}": value for k, value in enumerate(args)}, **kwargs}
    found: dict[str, object] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        found |= value if kind is inspect.Parameter.VAR_KEYWORD else {name: value}
    return found


def without_data(value: object) -> object:
    """Return a value with its tensors on the `meta` device, at any depth of lists, tuples and mappings."""
    if isinstance(value, Tensor):
        return torch.empty(value.shape, dtype=value.dtype, device="meta")
    if isinstance(value, list | tuple):
        parts = [without_data(one) for one in value]
        return parts if isinstance(value, list) or hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, Mapping):
        return {str(name): without_data(one) for name, one in value.items()}
    return value


def batch_of(inputs: Mapping[str, object]) -> tuple[int, int | None]:
    """Return the sequences or samples of a call and the length of one: of its token ids, else of its first tensor.

    >>> batch_of({"ids": torch.zeros(2, 16, dtype=torch.int64)}), batch_of({"image": torch.zeros(4, 3, 8, 8)})
    ((2, 16), (4, None))
    """
    found = list(_leaves(inputs))
    ids = next((t for t in found if not t.is_floating_point() and t.dim() > 1), None)
    tensor = ids if ids is not None else next((t for t in found if t.dim()), None)
    if tensor is None:
        return 1, None
    has_sequence = tensor.dim() > 1 and not (tensor.is_floating_point() and tensor.dim() != 3)
    return int(tensor.shape[0]), int(tensor.shape[1]) if has_sequence else None


def _leaves(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    for part in parts:
        yield from _leaves(part)


def _sharded_dtype(model: nn.Module) -> torch.dtype | None:
    """Return the type that `fully_shard` computes in, where its policy has one."""
    for part in model.modules():
        state = getattr(part, "_get_fsdp_state", None)
        policy = None if state is None else getattr(state(), "_mp_policy", None)
        found = getattr(policy, "param_dtype", None)
        if isinstance(found, torch.dtype):
            return found
    return None


def _ranks(model: nn.Module) -> Iterator[tuple[str, object]]:
    """Yield the number of ranks, and degrees and the ZeRO stage that sharded parameters show."""
    world = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
    yield "num_gpus", world
    from torch.distributed.tensor import DTensor, Shard

    sharded = next((p for p in model.parameters() if isinstance(p, DTensor)), None)
    if sharded is None or world == 1:
        return
    mesh = sharded.device_mesh
    names = mesh.mesh_dim_names or tuple("" for _ in range(mesh.ndim))
    for dim, name in enumerate(names):
        if name in _MESHES:
            yield _MESHES[name], mesh.size(dim)
        elif isinstance(sharded.placements[dim], Shard):
            yield "zero", 3
            if mesh.ndim > 1 and "tp" not in names:
                yield "dp_shard", mesh.size(dim)


def _states(optimizer: Optimizer) -> Iterator[tuple[str, object]]:
    """Yield types of master weights, moments and gradients where parameters have 16 bits: PyTorch's follow them."""
    params = [p for group in optimizer.param_groups for p in group["params"] if isinstance(p, Tensor)]
    if params and params[0].dtype in (torch.bfloat16, torch.float16):
        word = "bf16" if params[0].dtype is torch.bfloat16 else "fp16"
        moments = [t.dtype for t in _leaves(list(optimizer.state.values())) if t.dim()]
        kept = "fp32" if moments and moments[0] is torch.float32 else word
        yield from {"main_params_dtype": "none", "exp_avg_dtype": kept, "exp_avg_sq_dtype": kept}.items()
        yield "grad_dtype", word
