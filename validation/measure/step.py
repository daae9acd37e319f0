"""A training step of a small Llama, really run: its time, and where it went by class of op."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from ...frontend.record.adapter import DispatchMode
from ...ir.ops import OpClass
from ...ir.records import dataclass
from ...ir.types import DType
from .device import Device
from .kernels.huggingface import llama
from .stopwatch import Tell, clock_of

# A clock for every op that reaches PyTorch's dispatcher, by class of op.

# Ops that tell their class; what else runs is told by the module it runs in, else it is elementwise.
_BY_OP: Mapping[str, OpClass] = MappingProxyType(
    {
        "mm": OpClass.MATMUL,
        "addmm": OpClass.MATMUL,
        "bmm": OpClass.MATMUL,
        "embedding": OpClass.MEMORY,
        "embedding_dense_backward": OpClass.MEMORY,
        "_log_softmax": OpClass.LOSS,
        "_log_softmax_backward_data": OpClass.LOSS,
        "nll_loss_forward": OpClass.LOSS,
        "nll_loss_backward": OpClass.LOSS,
    }
)
# What makes a view of a tensor does no work; its time is between ops.
_VIEWS = frozenset(
    ("_unsafe_view", "alias", "as_strided", "detach", "expand", "permute", "select", "slice", "split", "squeeze", "t",
     "transpose", "unsqueeze", "view")
)  # fmt: skip


class OpClock(DispatchMode):
    """Times every op, and adds the times up by class."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self.times_s: dict[OpClass, float] = {}
        self._now_s = clock_of(device)
        self._in_norm = False

    def watch_norm(self, module: nn.Module) -> None:
        """Count what runs in a module, and in the backward of it, as norm."""
        module.register_forward_pre_hook(self._enter)
        module.register_forward_hook(self._leave)

    def run(self, func: torch._ops.OpOverload, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Run one op and time it, unless it makes a view."""
        op = func.overloadpacket.__name__
        if op in _VIEWS:
            return func(*args, **kwargs)
        start = self._now_s()
        out = func(*args, **kwargs)
        kind = self._class_of(op)
        self.times_s[kind] = self.times_s.get(kind, 0.0) + self._now_s() - start
        return out

    def _class_of(self, op: str) -> OpClass:
        if "scaled_dot_product" in op:
            return OpClass.ATTENTION
        return _BY_OP.get(op, OpClass.NORM if self._in_norm else OpClass.ELEMENTWISE)

    def _enter(self, module: nn.Module, args: tuple[Tensor, ...]) -> None:
        self._in_norm = True

    def _leave(self, module: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> None:
        self._in_norm = False
        for node in _between(out.grad_fn, [x.grad_fn for x in args]):
            node.register_prehook(self._enter_backward)
            node.register_hook(self._leave_backward)

    def _enter_backward(self, grads: Sequence[Tensor]) -> None:
        self._in_norm = True

    def _leave_backward(self, before: Sequence[Tensor], after: Sequence[Tensor]) -> None:
        self._in_norm = False


def _between(last: Node | None, before: Sequence[Node | None]) -> Iterator[Node]:
    """Yield the nodes of a backward that lie behind some others; sums of gradients in leaves are not among them."""
    todo, seen = [last], set(before)
    while todo:
        node = todo.pop()
        if node is None or node in seen or node.name().endswith("AccumulateGrad"):
            continue
        seen.add(node)
        yield node
        todo += [following for following, _ in node.next_functions]


@dataclass(frozen=True, slots=True)
class StepSize:
    """A Llama and the batch it is trained on; sizes by their names in a config.json."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int
    batch: int
    seq: int

    @property
    def config(self) -> dict[str, object]:
        """What HuggingFace and slipstick read alike."""
        return {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "vocab_size": self.vocab_size,
            "max_position_embeddings": 4096,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-6,
            "tie_word_embeddings": False,
        }

    def write(self, path: Path) -> None:
        """Write the config.json that `slipstick estimate` takes."""
        path.write_text(json.dumps(self.config, indent=2) + "\n", encoding="utf-8")

    @property
    def title(self) -> str:
        """What people call it."""
        return (
            f"hidden {self.hidden_size}, ffn {self.intermediate_size}, {self.num_hidden_layers} layers, "
            f"{self.num_attention_heads}/{self.num_key_value_heads} heads, vocabulary {self.vocab_size}, "
            f"batch {self.batch}, sequence {self.seq}"
        )


@dataclass(frozen=True, slots=True)
class StepTime:
    """The median of some steps and their quartiles' distance over it; seconds by class of op, medians of other steps.

    What lies between ops (Python, autograd) is `rest_s`: the step less its ops.
    """

    time_s: float
    spread: float
    by_class: Mapping[OpClass, float]

    @property
    def rest_s(self) -> float:
        """What no op took."""
        return self.time_s - sum(self.by_class.values())


@dataclass
class _Training:
    """A model in training; gradients are sums that are set to zero, never given back, as a plan's are."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    tokens: Tensor

    @classmethod
    def of(cls, size: StepSize, device: Device, dtype: DType) -> _Training:
        model = llama(size.config, device.kind, dtype)
        tokens = torch.randint(size.vocab_size, (size.batch, size.seq), device=device.kind)
        return cls(model, torch.optim.AdamW(model.parameters(), lr=1e-5), tokens)

    def forward_backward(self) -> None:
        loss = self.model(input_ids=self.tokens, labels=self.tokens).loss
        loss.backward()

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)


def run_step(size: StepSize, device: Device, dtype: DType, num_steps: int, tell: Tell) -> StepTime:
    """Train for some steps timed as a whole, and for as many whose ops are timed one by one, in turn."""
    training = _Training.of(size, device, dtype)
    for _ in range(3):
        _timed(training, device)
    tell(f"step: {num_steps} steps of a Llama of {size.title}")
    clock = OpClock(device)
    for name, module in training.model.named_modules():
        if name.endswith("norm"):
            clock.watch_norm(module)
    times, parts = [], []
    for _ in range(num_steps):
        times.append(_timed(training, device))
        parts.append(_by_class(training, device, clock))
    times.sort()
    quarter, middle = num_steps // 4, median(times)
    by_class = {kind: median(part.get(kind, 0.0) for part in parts) for kind in parts[0]}
    return StepTime(middle, (times[-1 - quarter] - times[quarter]) / middle, by_class)


def _timed(training: _Training, device: Device) -> float:
    now_s = clock_of(device)
    start = now_s()
    training.forward_backward()
    training.update()
    return now_s() - start


def _by_class(training: _Training, device: Device, clock: OpClock) -> Mapping[OpClass, float]:
    now_s = clock_of(device)
    clock.times_s.clear()
    with clock:
        training.forward_backward()
    start = now_s()
    training.update()
    return {**clock.times_s, OpClass.OPTIMIZER: now_s() - start}
