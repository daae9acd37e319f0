"""A model of transformers, split by PyTorch or transformers, run on fake tensors and a fake process group."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from slipstick.frontend.record.adapter import DispatchMode, swapped

from .ran import BATCH, SEQ, Ran, Shape

_KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
Split = Callable[[nn.Module, DeviceMesh], None]


class _Output(Protocol):
    logits: Tensor


class _Recorder(DispatchMode):
    """Notes messages and products of the rank; DTensor turns its own calls into those first."""

    wrappers = (DTensor,)

    def __init__(self) -> None:
        super().__init__()
        self.messages: Counter[tuple[str, int]] = Counter()
        self.products: Counter[Shape] = Counter()

    def note(
        self, func: torch._ops.OpOverload, args: Sequence[object], kwargs: Mapping[str, object], out: object
    ) -> None:
        name = str(func)
        if "c10d" in name and "wait_tensor" not in name:
            plain = name.replace("allreduce", "all_reduce").replace("allgather", "all_gather")
            kind = next(k for k in _KINDS if k in plain)
            self.messages[kind, max(map(_num_bytes, (out, *args[:2])))] += 1
        elif name in ("aten.mm.default", "aten.addmm.default"):
            (m, k), (_, n) = [tuple(a.shape) for a in args if isinstance(a, Tensor)][-2:]
            self.products[m, n, k] += 1


def _num_bytes(given: object) -> int:
    """Of a tensor, or of those in the list that a collective in place takes and gives."""
    if isinstance(given, list | tuple):
        return sum(map(_num_bytes, given))
    return int(given.numel() * given.element_size()) if isinstance(given, Tensor) else 0


@contextmanager
def ranks(shape: tuple[int, ...], names: tuple[str, ...]) -> Iterator[DeviceMesh]:
    """Rank 0 of a mesh; made outside of fake tensors, for a mesh reads its own ranks."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=int(torch.tensor(shape).prod()))
    try:
        yield init_device_mesh("cpu", shape, mesh_dim_names=names)
    finally:
        dist.destroy_process_group()


def run(model_type: str, fields: Mapping[str, object], mesh: DeviceMesh, split: Split) -> Ran:
    """Build a model in bf16, split it, and return what its second step runs: the first one's has preparations too."""
    import transformers

    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with swapped(transformers.masking_utils, "find_packed_sequence_indices", lambda position_ids: None):
        with fake:
            model = build(model_type, fields)
        split(model, mesh)
        with fake:
            _step(model)
            model.zero_grad()
            forward, backward = _step(model)
            local = [p.to_local() if isinstance(p, DTensor) else p for p in model.parameters()]
    products = forward.products + backward.products
    return Ran(forward.messages, backward.messages, products, Counter(p.numel() for p in local))


def build(model_type: str, fields: Mapping[str, object]) -> nn.Module:
    """Build the model as its own code would train it, but for experts: one product an expert and token."""
    import transformers

    config = transformers.AutoConfig.for_model(model_type, **json.loads(json.dumps(dict(fields))))
    make = cast("Callable[..., nn.Module]", transformers.AutoModelForCausalLM.from_config)
    options = {"dtype": torch.bfloat16, "experts_implementation": "batched_mm"}
    try:
        model = make(config, attn_implementation="sdpa", **options)
    except ValueError:  # no fused attention for this model
        model = make(config, attn_implementation="eager", **options)
    # Evaluation mode: dropout sends nothing.
    return model.eval()


def _step(model: nn.Module) -> tuple[_Recorder, _Recorder]:
    ids = torch.zeros(BATCH, SEQ, dtype=torch.int64)
    with _Recorder() as forward:
        logits = cast(_Output, model(input_ids=ids, use_cache=False)).logits
        loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids.flatten())
    with _Recorder() as backward:
        torch.autograd.backward(loss)
    return forward, backward
