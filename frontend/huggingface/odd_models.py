"""Models that look at data to choose a way that is known beforehand, and those that read ids of other shapes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from itertools import product
from types import MappingProxyType
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.utils.weak import WeakTensorKeyDictionary

from ...ir.records import dataclass
from ..record.adapter import swapped
from ..record.preserve import Contexts, FunctionMode, one_context

# What a training step leaves out at random, by fields of configs: masked frames of sound, layers.
_CHOSEN_AT_RANDOM: Mapping[str, object] = MappingProxyType(
    {
        "apply_spec_augment": False,
        "mask_time_prob": 0.0,
        "mask_feature_prob": 0.0,
        "layerdrop": 0.0,
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
    }
)


@one_context
def decided(model: nn.Module) -> Contexts:
    """Let such modules take, for the time of a recording, the way that all tokens go."""
    yield swapped(Distribution, "_validate_args", False)
    configs = {id(c): c for part in model.modules() if (c := vars(part).get("config")) is not None}
    owners = (*configs.values(), *model.modules())
    for owner, (name, chosen) in product(owners, _CHOSEN_AT_RANDOM.items()):
        if isinstance(getattr(owner, "__dict__", {}).get(name), type(chosen)):
            yield swapped(owner, name, chosen)
    for part in model.modules():
        if callable(getattr(part, _EXTRA_PADDING, None)):
            yield _paddings_counted(part)
        make = _BY_CLASS.get(type(part).__name__)
        for name, replacement in ({} if make is None else make(part)).items():
            yield swapped(part, name, replacement)
    yield _AllFinite()


class _AllFinite(FunctionMode):
    """Answers whether a tensor holds what is no number by no: a model that is trained makes none."""

    def __init__(self) -> None:
        super().__init__()
        self._answers: MutableMapping[Tensor, bool] = WeakTensorKeyDictionary()

    def call(self, func: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        answers = [a for t in args if isinstance(t, Tensor) and (a := self._answers.get(t)) is not None]
        if func is Tensor.__bool__ and answers:
            return answers[0]
        out = func(*args, **kwargs)
        if isinstance(out, Tensor) and func in _ASKS_FOR_NUMBERS:
            self._answers[out] = _ASKS_FOR_NUMBERS[func]
        elif isinstance(out, Tensor) and answers and func in _OF_ALL:
            self._answers[out] = answers[0]
        return out


_ASKS_FOR_NUMBERS: Mapping[object, bool] = MappingProxyType(
    {
        torch.isfinite: True,
        Tensor.isfinite: True,
        torch.isinf: False,
        Tensor.isinf: False,
        torch.isnan: False,
        Tensor.isnan: False,
    }
)
_OF_ALL = (torch.all, Tensor.all, torch.any, Tensor.any)


_EXTRA_PADDING = "_get_extra_padding_for_conv1d"


@contextmanager
def _paddings_counted(part: nn.Module) -> Iterator[None]:
    """Convolutions of codecs, which keep their sizes in tensors: what they pad with is counted with plain numbers.

    A sound of n samples gets ceil(n / stride) places.
    """
    conv = next(m for m in part.modules() if isinstance(m, nn.Conv1d))
    stride = conv.stride[0]
    total = (conv.kernel_size[0] - 1) * conv.dilation[0] + 1 - stride
    right = total // 2
    numbers = {"padding_total": total, "padding_right": right, "padding_left": total - right}

    def extra(hidden_states: Tensor) -> int | torch.SymInt:
        length = hidden_states.shape[-1]
        return -(-length // stride) * stride - length

    before = dict(vars(part))
    buffers = {n: b for n, b in part._buffers.items() if n not in numbers}
    vars(part).update({**numbers, _EXTRA_PADDING: extra, "_buffers": buffers})
    try:
        yield
    finally:
        vars(part).clear()
        vars(part).update(before)


def ids_a_row(model: nn.Module) -> int:
    """Return how many rows of ids a sequence has: MusicGen reads a row for each codebook, all others read one.

    Source: MusicgenDecoder.forward of transformers, `input_ids` of [batch x codebooks, length].
    """
    config = getattr(model, "config", None)
    is_musicgen = str(getattr(config, "model_type", "")).startswith("musicgen")
    return int(config.num_codebooks) if config is not None and is_musicgen else 1


_OF_ADAPTERS = ("dropout", "LayerNorm", "adapter_layer_norm")


def _one_language(part: nn.Module) -> Mapping[str, object]:
    """X-MOD: every token is of the default language, so that one adapter gets them all."""
    adapter = next(iter(cast(nn.ModuleDict, part.adapter_modules).values()))
    dropout, norm, norm_of_adapter = (cast("nn.Module | None", getattr(part, name)) for name in _OF_ADAPTERS)

    def lang_adapter(lang_ids: Tensor, hidden_states: Tensor) -> Tensor:
        normed = hidden_states
        if norm_of_adapter is not None:
            normed = norm_of_adapter(hidden_states)
        elif part.adapter_reuse_layer_norm and norm is not None:
            normed = norm(hidden_states)
        out: Tensor = adapter(normed)
        out = out if dropout is None else dropout(out)
        return out + (normed if part.ln_before_adapter else hidden_states)

    return {"lang_adapter": lang_adapter}


@dataclass(frozen=True, slots=True)
class _Whole:
    """Lengths [batch] of sequences without padding: what XLM asks of its tensor of lengths, known without reading."""

    batch: int
    longest: int

    def size(self, dim: int) -> int:
        return self.batch

    def max(self) -> _Whole:
        return self

    def item(self) -> int:
        return self.longest


def _whole_sequences(part: nn.Module) -> Mapping[str, object]:
    """XLM and FlauBERT: no token is padding, so that the lengths it asserts on are the length of the ids."""
    original = cast("Callable[..., object]", part.forward)

    def forward(input_ids: Tensor, *args: object, **options: object) -> object:
        whole = _Whole(input_ids.shape[0], input_ids.shape[1])
        with swapped(sys.modules[type(part).__module__], "get_masks", _whole_masks):
            return original(input_ids, *args, **{**options, "lengths": whole})

    return {"forward": forward}


def _whole_masks(length: int, whole: _Whole, causal: bool, padding_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The masks [batch, length] of tokens and [batch, length] or [batch, length, length] of attention, as XLM's own."""
    places = torch.arange(length)
    mask = (places < length).expand(whole.batch, length) if padding_mask is None else padding_mask
    return mask, (places <= places[:, None]).expand(whole.batch, length, length) if causal else mask


def _mask_with_prompts(part: nn.Module) -> Mapping[str, object]:
    """CPM-Ant: the mask of its prompts and tokens with positions counted by a tensor, not by a list of Python."""

    def prepare(input_ids: Tensor, span: Tensor, context: Tensor, length: Tensor) -> Tensor:
        batch, size = input_ids.shape
        places, prompts = torch.arange(size), cast(int, part.prompt_length)
        seen = context[:, None, :] | (context[:, :, None].logical_not() & (places <= places.view(-1, 1)))
        own = seen & (span[:, None, :] == span[:, :, None])
        token = torch.arange(size - prompts).flip(0)[None, :].expand(batch, size - prompts) < length[:, None]
        known = torch.cat((token.new_ones(batch, prompts), token), dim=1)
        return known[:, :, None] & known[:, None, :] & own

    return {"_prepare_attention_mask": prepare}


def _axial_positions(part: nn.Module) -> Mapping[str, object]:
    """Reformer in inference: rows of the whole table of axial positions, which it cuts where positions read end."""
    original = cast("Callable[[Tensor], Tensor]", part.forward)
    weights, shape = cast("list[Tensor]", part.weights), cast("tuple[int, ...]", tuple(part.axial_pos_shape))  # type: ignore[arg-type]

    def forward(position_ids: Tensor) -> Tensor:
        if part.training:
            return original(position_ids)
        table = torch.cat([w.expand(*shape, w.shape[-1]) for w in weights], dim=-1).flatten(0, len(shape) - 1)
        return table[position_ids]

    return {"forward": forward}


_BY_CLASS: Mapping[str, Callable[[nn.Module], Mapping[str, object]]] = MappingProxyType(
    {
        "AxialPositionEmbeddings": _axial_positions,
        "CpmAntModel": _mask_with_prompts,
        "FlaubertModel": _whole_sequences,
        "XLMModel": _whole_sequences,
        "XmodOutput": _one_language,
    }
)
