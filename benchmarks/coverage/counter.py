"""Torch's FLOP counter, which tells the products of recurrences from all others, forward and backward alike."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from math import prod
from typing import Self

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count
from torch.utils.module_tracker import ModuleTracker

from slipstick.frontend.record.adapter import autograd_origin, swapped

Shape = tuple[int, ...]
# What runs recurrences: functions of modelling files by parts of their names, and modules by parts of their classes'.
_FUNCTIONS = ("_scan", "delta_rule", "delta_attention", "selective_state_update", "mlstm_", "rwkv_linear_attention")
_CLASSES = ("LightningAttention", "LinearAttention")
_METHODS = ("_rnn_scan",)
# Modules that run all tokens through all their experts and throw most results away.
_EVERY_EXPERT = ("Llama4TextMoe",)
# Part of the FLOPs that counts: all of them, but in recurrences none, which are told apart.
_ALL, _NONE = 1.0, 0.0


def _grouped_mm_flops(a: Shape, b: Shape, *_: object, out_shape: object = None, **__: object) -> int:
    """A row of [rows, k] meets one matrix of [groups, k, n]; in [m, rows] x [rows, n] it meets one row."""
    return 2 * a[0] * a[1] * b[-1]


def _distance_flops(a: Shape, b: Shape, *_: object, out_shape: object = None, **__: object) -> int:
    """Euclidean distances of all rows to all columns: a product of these with their norms and ones beside."""
    return 2 * prod(a[:-1]) * b[-2] * (a[-1] + 2)


def _sdpa_flops(q: Shape, k: Shape, v: Shape, *_: object, out_shape: object = None, **__: object) -> int:
    """Two products over all pairs, by torch's own formula; keys and values may have fewer heads."""
    return int(sdpa_flop_count(q, k, v))  # type: ignore[no-untyped-call]


def _sdpa_backward_flops(
    grad: Shape, q: Shape, k: Shape, v: Shape, *_: object, out_shape: object = None, **__: object
) -> int:
    """Four products over all pairs: of torch's five, the first computes the scores once more, which no model asks."""
    scores = 2 * q[0] * q[1] * q[2] * q[3] * k[2]
    return int(sdpa_backward_flop_count(grad, q, k, v)) - scores  # type: ignore[no-untyped-call]


def _conv_flops(
    x: Shape, w: Shape, _bias: object, _stride: object, _padding: object, _dilation: object, transposed: bool,
    *_: object, out_shape: Shape, **__: object,
) -> int:  # fmt: skip
    """A product with [outputs, inputs of a group x taps] at each place; taps of one channel alone are no matrix."""
    places = x if transposed else out_shape
    return 0 if w[1] == 1 else 2 * places[0] * prod(places[2:]) * prod(w)


def _conv_backward_flops(
    grad: Shape, x: Shape, w: Shape, _bias: object, _stride: object, _padding: object, _dilation: object,
    transposed: bool, _output_padding: object, _groups: int, mask: Sequence[bool], *_: object,
    out_shape: object = None, **__: object,
) -> int:  # fmt: skip
    """As many as forward for each of the two gradients that are asked for."""
    places = x if transposed else grad
    return 0 if w[1] == 1 else 2 * places[0] * prod(places[2:]) * prod(w) * sum(mask[:2])


@dataclass(frozen=True, slots=True)
class Counted:
    """FLOPs of products of one pass: in recurrences, and elsewhere."""

    plain_flops: int
    recurrent_flops: int

    @property
    def flops(self) -> int:
        """All of them."""
        return self.plain_flops + self.recurrent_flops

    def __add__(self, other: Counted) -> Counted:
        return Counted(self.plain_flops + other.plain_flops, self.recurrent_flops + other.recurrent_flops)

    def __sub__(self, other: Counted) -> Counted:
        return Counted(self.plain_flops - other.plain_flops, self.recurrent_flops - other.recurrent_flops)


@dataclass
class _Regions:
    """What part of the FLOPs counts, by autograd sequence number: each change with the number it begins at."""

    starts: list[int] = field(default_factory=lambda: [-1])
    shares: list[float] = field(default_factory=lambda: [_ALL])

    @contextmanager
    def region(self, share: float) -> Iterator[None]:
        before = self.shares[-1]
        self._change(share)
        try:
            yield
        finally:
            self._change(before)

    def _change(self, share: float) -> None:
        number, _ = autograd_origin()
        self.starts.append(number + 1)
        self.shares.append(share)

    def share(self) -> float:
        """The share in force, in backward that of the forward operator whose gradient is computed."""
        number, is_backward = autograd_origin()
        if not is_backward:
            return self.shares[-1]
        return self.shares[bisect_right(self.starts, number) - 1]


class _WholeModel(ModuleTracker):
    """Without torch's hooks on modules, which what modules write in place breaks: everything is of the model."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Counter(FlopCounterMode):
    """Counts products with formulas for the kernels that torch counts as nothing on the CPU."""

    def __init__(self) -> None:
        aten = torch.ops.aten
        holes = {
            aten._grouped_mm: _grouped_mm_flops,
            aten._euclidean_dist: _distance_flops,
            aten.convolution: _conv_flops,
            aten.convolution_backward: _conv_backward_flops,
            aten._scaled_dot_product_flash_attention_for_cpu: _sdpa_flops,
            aten._scaled_dot_product_flash_attention_for_cpu_backward: _sdpa_backward_flops,
        }
        super().__init__(display=False, custom_mapping=holes)
        self.recurrent_flops = 0
        self.unused_flops = 0
        self.regions = _Regions()
        self.mod_tracker = _WholeModel()

    @property
    def counted(self) -> Counted:
        """What was counted so far."""
        plain = self.get_total_flops() - self.recurrent_flops - self.unused_flops
        return Counted(plain, self.recurrent_flops)

    def _count_flops(self, func_packet, out, args, kwargs):  # type: ignore[no-untyped-def]
        before = self.get_total_flops()
        out = super()._count_flops(func_packet, out, args, kwargs)  # type: ignore[no-untyped-call]
        share, flops = self.regions.share(), self.get_total_flops() - before
        if share == _NONE:
            self.recurrent_flops += flops
        else:
            self.unused_flops += round(flops * (_ALL - share))
        return out

    @contextmanager
    def watching(self, model: nn.Module) -> Iterator[None]:
        """Tell recurrences, and experts without a token, apart while the model runs."""
        with ExitStack() as stack:
            for owner, name in recurrences(model):
                stack.enter_context(swapped(owner, name, self._in_region(getattr(owner, name), _NONE)))
            for part, share in (*_leaves(model), *_experts(model)):
                stack.enter_context(swapped(part, "forward", self._in_region(part.forward, share)))
            yield

    def _in_region(self, run: Callable[..., object], share: float) -> Callable[..., object]:
        # What a forward reads is told from its signature.
        @wraps(run)
        def wrapped(*args: object, **options: object) -> object:
            with self.regions.region(share):
                return run(*args, **options)

        return wrapped


def recurrences(model: nn.Module) -> Iterator[tuple[object, str]]:
    """Yield what of a model runs recurrences: functions of modelling files, methods and attributes of modules."""
    for module in {sys.modules[type(m).__module__] for m in model.modules()}:
        yield from ((module, name) for name, found in list(vars(module).items()) if _is_recurrence(name, found))
    for part in model.modules():
        if any(word in type(part).__name__ for word in _CLASSES):
            yield part, "forward"
        yield from ((part, name) for name, found in list(vars(part).items()) if _is_recurrence(name, found))
        yield from ((part, name) for name in _METHODS if hasattr(part, name))


def _is_recurrence(name: str, found: object) -> bool:
    plain = callable(found) and not isinstance(found, type | nn.Module)
    return plain and any(word in name for word in _FUNCTIONS)


def _leaves(model: nn.Module) -> Iterator[tuple[nn.Module, float]]:
    """Modules without modules of their own, whose products are what they say wherever they are called."""
    yield from ((part, _ALL) for part in model.modules() if not list(part.children()))


def _experts(model: nn.Module) -> Iterator[tuple[nn.Module, float]]:
    """Banks of experts that every token runs through, with the part of them that a token is for."""
    for part in model.modules():
        if type(part).__name__ in _EVERY_EXPERT:
            yield part.get_submodule("experts"), int(str(part.top_k)) / int(str(part.num_experts))
