"""Torch's own count of a model as transformers builds and runs it; nothing of ours takes part.

Attention, experts, norms and rotary embeddings are the eager ones of transformers, in fp32. Where a model asks for
values, fake tensors will not do and the same is computed on real ones.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from slipstick.frontend.record.adapter import DataDependent, FakeWorld, make_fake, swapped
from slipstick.frontend.record.failures import first_line

from .counter import Counted, Counter

# Other sizes than those a recording is made at, so that what is wrong in a symbolic size shows.
BATCH, SEQ, KV = 2, 96, 56
# Beyond this a run on real tensors takes too long.
_MOST_REAL_PARAMETERS = 600_000_000
# What encoders make of their first token, for other tasks than language.
_POOLER = "pooler"
# What models call their caches: attention's, and the states of recurrences alone.
_CACHES = ("past_key_values", "cache_params", "state")


@dataclass(frozen=True, slots=True)
class Oracle:
    """Products that torch ran, by pass, None for a pass that cannot be run; and the parameters of the model.

    `num_used` are those that a training step gives a gradient, `num_frozen` those that want none, used or not.
    `why_not` says why there is no count at all.
    """

    num_parameters: int = 0
    num_used: int = 0
    num_frozen: int = 0
    forward: Counted | None = None
    backward: Counted | None = None
    prefill: Counted | None = None
    decode: Counted | None = None
    is_real: bool = False
    why_not: str = ""


class _ModelClass(Protocol):
    def _from_config(self, config: object, **options: object) -> object: ...


class _Output(Protocol):
    logits: Tensor


def count(model_type: str, fields: Mapping[str, object]) -> Oracle:
    """Count on fake tensors, or on real ones where the model reads values."""
    try:
        return _count(model_type, fields, is_fake=True)
    except Exception as error:
        why_not = first_line(error)
    try:
        if _num_parameters(model_type, fields) <= _MOST_REAL_PARAMETERS:
            return replace(_count(model_type, fields, is_fake=False), is_real=True)
    except Exception as error:
        why_not = first_line(error)
    return Oracle(_num_parameters_or_0(model_type, fields), why_not=why_not)


def _num_parameters_or_0(model_type: str, fields: Mapping[str, object]) -> int:
    try:
        return _num_parameters(model_type, fields)
    except Exception:
        return 0


def _num_parameters(model_type: str, fields: Mapping[str, object]) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in _build(model_type, fields).parameters())


def _build(model_type: str, fields: Mapping[str, object]) -> nn.Module:
    import transformers

    given = json.loads(json.dumps(dict(fields)))
    config = transformers.AutoConfig.for_model(model_type, **given)
    make = cast("Callable[..., object]", transformers.AutoModelForCausalLM.from_config)
    options = {"dtype": torch.float32, "attn_implementation": "eager", "experts_implementation": "batched_mm"}
    try:
        model = make(config, **options)
    except (AttributeError, ImportError):  # a tower of another library, a config that only holds others
        model = _of_part(config, config.get_text_config(decoder=True), options)
    assert isinstance(model, nn.Module)
    # Evaluation mode: dropout costs no product, and layers that are dropped at random would not be counted.
    return model.eval()


def _of_part(config: object, part: object, options: Mapping[str, object]) -> object:
    """Build the language model of a part of a config, with the class of the part or of the whole."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    known = cast("Mapping[type, _ModelClass]", MODEL_FOR_CAUSAL_LM_MAPPING)
    return known[type(part if type(part) in known else config)]._from_config(part, **options)


@contextmanager
def _running(mode: FakeTensorMode | None) -> Iterator[None]:
    """Fake tensors where there is a mode, and no look for packed sequences in data that is not there."""
    import transformers

    masking = transformers.masking_utils
    with ExitStack() as stack:
        stack.enter_context(swapped(masking, "find_packed_sequence_indices", lambda position_ids: None))
        if mode is not None:
            stack.enter_context(mode)
        yield


def _count(model_type: str, fields: Mapping[str, object], is_fake: bool) -> Oracle:
    mode = FakeTensorMode(allow_non_fake_inputs=True) if is_fake else None
    model = _build(model_type, fields) if mode is None else _fake(model_type, fields, mode)
    with _running(mode):
        forward, backward = _train(model)
        found = Oracle(
            num_parameters=sum(p.numel() for p in model.parameters()),
            num_used=sum(p.numel() for p in model.parameters() if p.grad is not None),
            num_frozen=sum(p.numel() for p in model.parameters() if not p.requires_grad),
            forward=forward,
            backward=backward,
        )
        poolers = _poolers(model)
        # Hooks of the counter ask whatever could have a gradient for one.
        model.requires_grad_(False)
        return replace(found, prefill=_or_none(_prefill, model, poolers), decode=_or_none(_decode, model, poolers))


def _fake(model_type: str, fields: Mapping[str, object], mode: FakeTensorMode) -> nn.Module:
    """Build a model of fake tensors; one that reads values while it is built gets them when it stands."""
    try:
        with mode:
            return _build(model_type, fields)
    except DataDependent:
        with torch.device("meta"):
            model = _build(model_type, fields)
        make_fake(model, FakeWorld(mode))
        return model


def _is_used(parameter: Tensor) -> bool:
    return parameter.grad is not None or not parameter.requires_grad


def _poolers(model: nn.Module) -> tuple[str, ...]:
    """Poolers by the names that the counter calls them: no gradient reaches them, nobody reads what they compute."""
    name = type(model).__name__
    found = ((path, part) for path, part in model.named_modules() if path.endswith(_POOLER))
    return tuple(f"{name}.{path}" for path, part in found if not any(map(_is_used, part.parameters())))


def _live(counter: Counter, poolers: Sequence[str]) -> Counted:
    """What was counted but for poolers."""
    return counter.counted - Counted(sum(sum(counter.flop_counts.get(name, {}).values()) for name in poolers), 0)


def _or_none(
    run: Callable[[nn.Module, Sequence[str]], Counted], model: nn.Module, poolers: Sequence[str]
) -> Counted | None:
    """Serving needs more of a model than training does: a cache, logits of the last position."""
    try:
        with torch.no_grad():
            return run(model, poolers)
    except Exception:
        return None


def _ids(model: nn.Module, length: int) -> Tensor:
    """Tokens of a batch; of sound, every codebook is a row."""
    rows = BATCH * int(getattr(model, "num_codebooks", 1))
    return torch.zeros(rows, length, dtype=torch.int64)


def _train(model: nn.Module) -> tuple[Counted, Counted]:
    ids = _ids(model, SEQ)
    with Counter() as counter, counter.watching(model):
        logits = cast(_Output, model(input_ids=ids, use_cache=False)).logits
        forward = counter.counted
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids.flatten())
        torch.autograd.backward(loss)
        # A pooler runs forward only.
        dead = counter.counted - _live(counter, _poolers(model))
        return forward - dead, counter.counted - forward


def _prefill(model: nn.Module, poolers: Sequence[str]) -> Counted:
    last = {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}
    with Counter() as counter, counter.watching(model):
        model(input_ids=_ids(model, SEQ), use_cache=True, **last)
        return _live(counter, poolers)


def _decode(model: nn.Module, poolers: Sequence[str]) -> Counted:
    out = model(input_ids=_ids(model, KV), use_cache=True)
    past = {name: kept for name in _CACHES if (kept := getattr(out, name, None)) is not None}
    if not past:
        raise ValueError("the model keeps no cache")
    with Counter() as counter, counter.watching(model):
        model(input_ids=_ids(model, 1), use_cache=True, **past)
        return _live(counter, poolers)
