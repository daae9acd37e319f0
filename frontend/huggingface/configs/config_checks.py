"""Sizes of a model config, looked at before anything is built: whole numbers, in bounds, that fit one another."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from ....ir.errors import NotUnderstoodError

Fields = Mapping[str, object]

# Beyond these a file is a slip or a trap: building takes time and memory for each layer, expert and head.
MAX_LAYERS = 4096
MAX_COUNT = 1 << 16
MAX_SIZE = 1 << 31
MAX_POSITIONS = 1 << 27

_LAYERS = re.compile(r"(num_|n_)?((hidden|encoder|decoder)_)*layers?")
_COUNTS = re.compile(
    r"(num|n)_\w*(heads?|experts?|groups?|codebooks|experts_per_tok)|moe_(num_experts|top_k)|num_blocks"
)
_POSITIONS = re.compile(r"max_position_embeddings|n_positions|n_ctx|max_seq_len|max_(source|target)_positions")
_SIZES = re.compile(
    r"(hidden|intermediate|vocab|embedding|ffn_hidden)_size|d_model|d_ff|d_kv|n_embd|n_inner|head_dim|dim"
)
# Others may be 0 or -1 for "none", so only their upper end is looked at.
_OTHER_SIZES = re.compile(r"\w+_(dim|size)|d_\w+")
_HEAD_SIZES = (
    "head_dim", "d_kv", "d_head", "dim_head", "qk_nope_head_dim", "kv_channels", "attention_head_dim",
    "attention_head_size", "head_size", "qk_head_dim",
)  # fmt: skip
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
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
            shown = str(number) if isinstance(number, int) else repr(number)
            raise NotUnderstoodError(f"'{name}' is {shown[:40]}; give a whole number from {low} to {high}")


def _check_other(name: str, value: object) -> None:
    """Refuse numbers that are none, sizes beyond all bounds, and a class that is not in a list."""
    if isinstance(value, float) and not math.isfinite(value):
        raise NotUnderstoodError(f"'{name}' is {value}; give a finite number")
    is_size = isinstance(value, int) and _OTHER_SIZES.fullmatch(name.rpartition(".")[2]) is not None
    if is_size and isinstance(value, int) and value > MAX_SIZE:
        raise NotUnderstoodError(f"'{name}' is {str(value)[:40]}; give at most {MAX_SIZE}")
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


__all__ = ["check_fields", "check_heads", "missing_sizes"]
