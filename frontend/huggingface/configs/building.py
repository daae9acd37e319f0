"""A HuggingFace config, its sizes looked at first, to a module on the meta device; no weight is allocated."""

from __future__ import annotations

import copy
import json
import logging
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import cast

import torch
from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook

from ....ir.errors import NotUnderstoodError, SlipstickError
from ....ir.records import dataclass
from ....ir.types import DType
from ...record.adapter import swapped
from ...record.dtypes import torch_dtype
from ...record.preserve import Contexts, one_context
from ..operators.old_attention import is_fused
from ..recording import IMPLEMENTATION, register
from .architectures import Architecture, ModelConfig, choose

Fields = Mapping[str, object]

# Beyond these a file is a slip or a trap: building takes time and memory for each layer, expert and head.
MAX_LAYERS = 4096
MAX_COUNT = 1 << 16
MAX_MODULES = 1 << 16
MAX_SIZE = 1 << 31
MAX_POSITIONS = 1 << 27

_LAYERS = re.compile(r"(num_|n_)?((hidden|encoder|decoder)_)*layers?|depths?|\w*block_sizes")
_COUNTS = re.compile(
    r"(num|n)_\w*(heads?|experts?|groups?|codebooks|experts_per_tok|labels)|moe_(num_experts|top_k)|num_blocks"
)
_POSITIONS = re.compile(r"max_position_embeddings|n_positions|n_ctx|max_seq_len|max_(source|target)_positions")
_SIZES = re.compile(
    r"(hidden|intermediate|vocab|embedding|ffn_hidden)_size|d_model|d_ff|d_kv|n_embd|n_inner|head_dim|dim"
)
# Others may be 0 or -1 for "none", so only their upper end is looked at.
_OTHER_SIZES = re.compile(r"\w+_(dim|size)|d_\w+")
_HEAD_SIZES = (
    "head_dim",
    "d_kv",
    "d_head",
    "dim_head",
    "qk_nope_head_dim",
    "kv_channels",
    "attention_head_dim",
    "attention_head_size",
    "head_size",
    "qk_head_dim",
)
# The least and the most of numbers that are no sizes. A window of -1 is none.
_RANGES: tuple[tuple[re.Pattern[str], float, float], ...] = (
    (re.compile(r"rope_(theta|base)|rope_local_base_freq|rotary_emb_base"), 1.0, 1e12),
    (re.compile(r"sliding_window(_size)?|local_attention|attention_window|window_size"), -1.0, MAX_SIZE),
    (re.compile(r"\w*dropout(_p|_prob|_rate)?|\w+_pdrop|drop_path_rate"), 0.0, 1.0),
    (re.compile(r"\w*_eps(ilon)?"), 0.0, 1.0),
)
# By these, transformers asks a hub for another model.
_FETCHED = frozenset({"backbone", "backbone_checkpoint", "use_pretrained_backbone"})
_HIDDEN = ("hidden_size", "d_model", "n_embd")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_CHOSEN = ("num_experts_per_tok", "num_experts_per_token", "moe_top_k")


def check_fields(fields: Fields, inside: str = "") -> None:
    """Refuse sizes that are no whole numbers or out of bounds, in a config and the configs inside it.

    >>> check_fields({"model_type": "llama", "num_hidden_layers": 100000000})
    Traceback (most recent call last):
    slipstick.ir.errors.NotUnderstoodError: 'num_hidden_layers' is 100000000; give a whole number from 1 to 4096
    """
    for name, value in fields.items():
        if isinstance(value, dict) and name.endswith(("config", "coder")):
            check_fields(cast(Fields, value), f"{inside}{name}.")
        elif (limits := _limits(name)) is not None and value is not None:
            _check(f"{inside}{name}", value, *limits)
        else:
            _check_other(f"{inside}{name}", value)
    _check_experts(fields, inside)


def check_heads(config: object) -> None:
    """Refuse heads that do not share the width, or the queries, evenly; the config is an object of transformers.

    Where layers have sizes of their own, those of each layer are looked at.
    """
    if getattr(config, "is_heterogeneous", False):
        for layer in cast("Iterable[object]", getattr(config, "per_layer_config", ())):
            _check_heads_of(layer)
    else:
        _check_heads_of(config)


def _check_heads_of(config: object) -> None:
    hidden, heads, kv_heads = (_first(config, names) for names in (_HIDDEN, _HEADS, _KV_HEADS))
    if heads is None:
        return
    heads_name, num_heads = heads
    if hidden is not None and hidden[1] % num_heads and not _has_head_size(config, hidden[1] // num_heads):
        raise NotUnderstoodError(
            f"'{hidden[0]}' {hidden[1]} is not a multiple of '{heads_name}' {num_heads}; "
            f"give {_divisors(hidden[1], num_heads)} heads, or a 'head_dim' of its own"
        )
    if kv_heads is not None and num_heads % kv_heads[1]:
        raise NotUnderstoodError(
            f"'{heads_name}' {num_heads} is not a multiple of '{kv_heads[0]}' {kv_heads[1]}; "
            f"give {_divisors(num_heads, kv_heads[1])} key-value heads"
        )


def missing_sizes(config: object) -> tuple[str, ...]:
    """Return the names of the sizes and counts that a config leaves without a number."""
    return tuple(sorted(name for name, value in vars(config).items() if value is None and _limits(name) is not None))


def _limits(name: str) -> tuple[int, int] | None:
    """The lowest and highest number that a field may hold; None for a field that is no size."""
    if _LAYERS.fullmatch(name):
        return 1, MAX_LAYERS
    if _COUNTS.fullmatch(name):
        return 0 if re.search("expert|group", name) else 1, MAX_COUNT
    if _POSITIONS.fullmatch(name):
        return 1, MAX_POSITIONS
    return (1, MAX_SIZE) if _SIZES.fullmatch(name) else None


def _check(name: str, value: object, low: int, high: int) -> None:
    numbers = value if isinstance(value, list | tuple) else (value,)
    if _LAYERS.fullmatch(name.rpartition(".")[2]) and len(numbers) > 1:
        numbers = (*numbers, sum(n for n in numbers if isinstance(n, int)))
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
            shown = str(number) if isinstance(number, int) else repr(number)
            raise NotUnderstoodError(f"'{name}' is {shown[:40]}; give a whole number from {low} to {high}")


def _check_other(name: str, value: object) -> None:
    """Refuse numbers that are none, sizes beyond all bounds, and a class that is not in a list."""
    if isinstance(value, float) and not math.isfinite(value):
        raise NotUnderstoodError(f"'{name}' is {value}; give a finite number")
    if isinstance(value, list) and len(value) > MAX_COUNT // 16:
        raise NotUnderstoodError(f"'{name}' has {len(value):,} entries; give at most {MAX_COUNT // 16:,}")
    if name.rpartition(".")[2] in _FETCHED and value not in (None, False):
        raise NotUnderstoodError(
            f"'{name}' is {str(value)[:80]!r}: a model of a hub, and nothing is fetched; give a 'backbone_config'"
        )
    last = name.rpartition(".")[2]
    low, high = next(((low, high) for pattern, low, high in _RANGES if pattern.fullmatch(last)), (-math.inf, math.inf))
    if isinstance(value, int | float) and not isinstance(value, bool) and not low <= value <= high:
        raise NotUnderstoodError(f"'{name}' is {str(value)[:40]}; give a number from {low:g} to {high:g}")
    is_size = isinstance(value, int) and _OTHER_SIZES.fullmatch(name.rpartition(".")[2]) is not None
    if is_size and isinstance(value, int) and value > MAX_SIZE:
        raise NotUnderstoodError(f"'{name}' is {str(value)[:40]}; give at most {MAX_SIZE}")
    # GPT-Neo writes layers as [[kinds, how often], ..].
    pairs = value if name.rpartition(".")[2] == "attention_types" and isinstance(value, list) else ()
    for number in (pair[1] for pair in pairs if isinstance(pair, list) and len(pair) > 1):
        _check(name, number, 0, MAX_LAYERS)
    if name.rpartition(".")[2] == "architectures" and isinstance(value, str):
        raise NotUnderstoodError(f"'{name}' is '{value[:80]}'; give a list: [\"{value[:80]}\"]")


def _check_experts(fields: Fields, inside: str) -> None:
    chosen, experts = (next(((n, fields[n]) for n in names if fields.get(n)), None) for names in (_CHOSEN, _EXPERTS))
    if chosen is None or experts is None or not isinstance(chosen[1], int) or not isinstance(experts[1], int):
        return
    if chosen[1] > experts[1]:
        raise NotUnderstoodError(
            f"'{inside}{chosen[0]}' {chosen[1]} is more than '{inside}{experts[0]}' {experts[1]}; "
            "a token goes to at most all experts"
        )


def _first(config: object, names: tuple[str, ...]) -> tuple[str, int] | None:
    found = ((n, getattr(config, n, None)) for n in names)
    return next(((n, v) for n, v in found if isinstance(v, int) and not isinstance(v, bool) and v > 0), None)


def _has_head_size(config: object, by_default: int) -> bool:
    """Whether a config, or its kind of model, gives heads a size of their own; what is worked out does not count."""
    of_kind = any(getattr(type(config), name, None) for name in _HEAD_SIZES)
    return of_kind or any(getattr(config, name, None) not in (None, by_default) for name in _HEAD_SIZES)


def _divisors(number: int, near: int) -> str:
    """The divisors of a number on both sides of another, for people."""
    found = sorted(_divisors_of(number), key=lambda d: (abs(d - near), d))[:2]
    return " or ".join(str(d) for d in sorted(found))


def _divisors_of(number: int) -> Iterator[int]:
    low = 1
    while low * low <= number:
        if number % low == 0:
            yield from {low, number // low}
        low += 1


# How attention is recorded, best first: as our operator, as torch's fused call (which is lifted), as it is spelled out.
_IMPLEMENTATIONS = (IMPLEMENTATION, "sdpa", "eager")
# What says how a checkpoint was kept or is run, not what the model is.
_NOT_OF_THE_MODEL = frozenset({
    "attn_implementation", "_attn_implementation", "_experts_implementation", "auto_map", "dtype", "torch_dtype",
    "output_attentions", "output_hidden_states", "return_dict", "use_return_dict", "quantization_config", "torchscript",
    "use_cache", "gradient_checkpointing", "_name_or_path", "transformers_version",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class BuiltModel:
    """A model and what a reader of its graph should know: parts left out, attention that is not fused."""

    module: nn.Module
    notes: tuple[str, ...] = ()


def build(config_text: str, dtype: DType) -> nn.Module:
    """Build the language model of a `config.json` on the meta device.

    NotUnderstoodError when transformers does not know the model type, or when its sizes do not fit one another.
    """
    return build_noted(config_text, dtype).module


def build_noted(config_text: str, dtype: DType, is_whole: bool = False) -> BuiltModel:
    """Build the model of a `config.json`, with what is to be said of it.

    Of a model that sees or hears it is the language model, or the whole one.
    """
    fields: dict[str, object] = json.loads(config_text)
    model_type = str(fields.pop("model_type"))
    check_fields(fields)
    _import_transformers()
    register()
    config: ModelConfig | None = None
    try:
        kept = {key: value for key, value in fields.items() if key not in _NOT_OF_THE_MODEL}
        config = config_object(model_type, kept)
        chosen = choose(config, is_whole)
        check_heads(chosen.config)
        with torch.device("meta"), _undrawn(), _counted():
            return _built(chosen, dtype)
    except SlipstickError:
        raise
    except (Exception, RecursionError) as error:
        if config is None:
            check_heads(SimpleNamespace(**fields))  # says which numbers would fit
        # What went wrong as one line; an arithmetic slip on a size that is not given says which ones are not.
        words = " ".join(str(error).split())[:300]
        said = f"transformers cannot build model type '{model_type}': {type(error).__name__}: {words}"
        missing = missing_sizes(config) if config is not None and "NoneType" in words else ()
        raise NotUnderstoodError(
            f"{said}; sizes that are not given: {', '.join(missing)}" if missing else said
        ) from error


def config_object(model_type: str, fields: Fields) -> ModelConfig:
    """Return what transformers makes of a config; its classes would ask a hub for a backbone that is named."""
    check_fields(fields)
    transformers = _import_transformers()
    from huggingface_hub import constants

    with swapped(constants, "HF_HUB_OFFLINE", True):
        return cast(ModelConfig, transformers.AutoConfig.for_model(model_type, **fields))


def _built(chosen: Architecture, dtype: DType) -> BuiltModel:
    """The model with the first way of recording attention that its classes know."""
    for implementation in _IMPLEMENTATIONS:
        settable = getattr(chosen.model_class, "_can_set_experts_implementation", None)
        options = {
            "dtype": torch_dtype(dtype),
            "attn_implementation": implementation,
            **({"experts_implementation": IMPLEMENTATION} if settable is not None and settable() else {}),
        }
        try:
            module = chosen.model_class._from_config(copy.deepcopy(chosen.config), **options)
        except (KeyError, ValueError) as error:
            if implementation == _IMPLEMENTATIONS[-1] or not _is_unknown(implementation, error):
                raise
            continue
        if not isinstance(module, nn.Module):
            raise NotUnderstoodError(f"model type '{chosen.config.model_type}' did not give a module")
        _all_on_meta(module, torch_dtype(dtype))
        return BuiltModel(module, (*chosen.notes, *_attention_note(module, implementation)))
    raise NotUnderstoodError(f"model type '{chosen.config.model_type}' has no attention that can be recorded")


def _all_on_meta(module: nn.Module, dtype: torch.dtype) -> None:
    """Move what old models allocate for real (`torch.FloatTensor(..)`) to where all other parameters are."""
    for part in module.modules():
        for name, p in list(part._parameters.items()):
            if p is not None and p.device.type != "meta":
                moved = torch.empty(p.shape, dtype=dtype if p.is_floating_point() else p.dtype, device="meta")
                part._parameters[name] = nn.Parameter(moved, p.requires_grad)


def _is_unknown(implementation: str, error: Exception) -> bool:
    """Whether a model says that it has no such attention: old ones look for a class of that name."""
    if isinstance(error, KeyError):
        return error.args == (implementation,)
    return "scaled_dot_product_attention" in str(error)


def _attention_note(module: nn.Module, implementation: str) -> tuple[str, ...]:
    if implementation == IMPLEMENTATION or is_fused(module):
        return ()
    return (f"attention is recorded from the '{implementation}' classes of transformers, the model has no others",)


@one_context
def _undrawn() -> Contexts:
    """Draw no weights: on `meta` they have no values, and what would set these takes as long as building the model."""
    for name in [n for n in vars(nn.init) if n.endswith("_") and not n.startswith("_")]:
        yield swapped(nn.init, name, lambda tensor, *args, **options: tensor)


@contextmanager
def _counted() -> Iterator[None]:
    """Refuse a model of more modules than any has, whichever numbers of its config made them."""
    made = 0

    def count(*_: object) -> None:
        nonlocal made
        made += 1
        if made > MAX_MODULES:
            raise NotUnderstoodError(f"it has more than {MAX_MODULES:,} modules; give it fewer layers or experts")

    hook = register_module_module_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()


def _import_transformers() -> ModuleType:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
    try:
        import transformers
    except ImportError as error:
        raise NotUnderstoodError(
            "reading HuggingFace configs needs transformers: pip install 'slipstick[hf]'"
        ) from error
    logging.getLogger("transformers").setLevel(logging.ERROR)
    return transformers
