"""What is run of a model that has an encoder and a decoder, or reads pictures among tokens and inputs of its own.

The encoder reads `src` tokens, or as many frames of sound as the config fixes. A training step decodes `seq` tokens. A
prefill encodes a prompt and decodes the token that starts an answer; with sound, it decodes the `seq` tokens that
prompt the decoder. A decode step adds one token behind `kv` decoded ones and reads the cached keys and values of the
encoder's output, which were made once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from ...ir.errors import NotBuiltError
from ...ir.graph import Workload
from ..loss import LabelledInputs, loss_of, returned
from ..modalities.feeding import Feeds
from ..record.adapter import FakeWorld
from ..record.failures import explained
from ..semantic.lift import lifted
from ..workloads import HINTS, LayerState, ModelOutput, RecordingRun, ids_of, plan_one, prefilled, symbolic_past
from .lengths import SOURCE
from .operators.cache import Past, cache_class

_CACHE_OF_ENCODER = "cross_"


def plan_run(model: nn.Module, world: FakeWorld, workload: Workload, is_transformers: bool) -> RecordingRun:
    """Return inputs and call for one workload of any module; encoder-decoders are those of transformers."""
    if not (is_transformers and getattr(model.config, "is_encoder_decoder", False)):
        return plan_one(model, world, workload, is_transformers)
    if workload is Workload.TRAIN:
        return _train(model, world)
    return _prefill(model, world) if workload is Workload.PREFILL else _decode(model, world)


def _train(model: nn.Module, world: FakeWorld) -> RecordingRun:
    source, target = _source(model, world), ids_of(world, "batch", "seq")
    with world.mode:
        labels = torch.empty(target.shape, dtype=torch.int64, device="cpu")

    def call() -> tuple[Tensor, ...]:
        return (loss_of(model(**source, decoder_input_ids=target, use_cache=False), labels),)

    return RecordingRun({**source, "decoder_input_ids": target, "labels": labels}, call)


def _prefill(model: nn.Module, world: FakeWorld) -> RecordingRun:
    source = _source(model, world)
    first = ids_of(world, "batch", "seq" if _hears(model) else 1)
    given = {**source, "decoder_input_ids": first}

    return RecordingRun(given, lambda: (prefilled_pair(model, given),))


def prefilled_pair(model: nn.Module, inputs: Mapping[str, object]) -> Tensor:
    """Encode, decode what starts an answer and return the logits of its last token; a cache keeps both sides."""
    out: ModelOutput = model(**inputs, past_key_values=_cache([], []), use_cache=True)
    return out.logits[:, -1:]


def _decode(model: nn.Module, world: FakeWorld) -> RecordingRun:
    from transformers.modeling_outputs import BaseModelOutput

    token = ids_of(world, "batch", 1)
    own, crossed = _pasts(model, world)
    with world.mode:
        encoded = torch.empty(token.shape[0], crossed[0].length, _width(model), dtype=next(model.parameters()).dtype)
    inputs: dict[str, Tensor] = {"decoder_input_ids": token}
    for prefix, pasts in (("", own), (_CACHE_OF_ENCODER, crossed)):
        for i, past in enumerate(pasts):
            inputs |= {name.replace(f".{i}.", f".{i}.{prefix}", 1): t for name, t in past.named(i)}

    def call() -> tuple[Tensor, ...]:
        past = _cache(own, crossed)
        encoder_outputs = BaseModelOutput(last_hidden_state=encoded)  # its keys and values are cached: nobody reads it
        out = model(encoder_outputs=encoder_outputs, decoder_input_ids=token, past_key_values=past, use_cache=True)
        return (out.logits,)

    return RecordingRun(inputs, call)


class _Caches(Protocol):
    """What is read of a cache of transformers for decoders that look at an encoder."""

    self_attention_cache: _Layers
    cross_attention_cache: _Layers


class _Layers(Protocol):
    layers: list[LayerState]


def _cache(own: list[Past], crossed: list[Past]) -> _Caches:
    from transformers.cache_utils import EncoderDecoderCache

    given = cache_class()
    both = EncoderDecoderCache(given(own), given([replace(past, is_complete=True) for past in crossed]))
    return cast(_Caches, both)


def _pasts(model: nn.Module, world: FakeWorld) -> tuple[list[Past], list[Past]]:
    """The shapes that the model caches, by one tiny prefill of its own; then with symbolic lengths."""
    cache = _cache([], [])
    source = {
        name: t.new_zeros(2, *(4 if isinstance(s, torch.SymInt) else s for s in t.shape[1:]))
        for name, t in _source(model, world).items()
    }
    with explained(model), world.mode, torch.no_grad(), lifted(model):
        start = torch.zeros(2, 3, dtype=torch.int64)
        model(**source, decoder_input_ids=start, past_key_values=cache, use_cache=True)
    own = [symbolic_past(layer, world, "kv") for layer in cache.self_attention_cache.layers]
    crossed = [symbolic_past(layer, world, _length(model, layer)) for layer in cache.cross_attention_cache.layers]
    return [past for past in own if past.keys is not None], [past for past in crossed if past.keys is not None]


def _length(model: nn.Module, layer: LayerState) -> str | int:
    return int(layer.keys.shape[2]) if _hears(model) and layer.keys is not None else SOURCE


def _source(model: nn.Module, world: FakeWorld) -> Mapping[str, Tensor]:
    """What the encoder reads: tokens of a prompt, or frames of sound of the length that the config fixes."""
    if not _hears(model):
        return {"input_ids": ids_of(world, "batch", SOURCE)}
    dtype = next(model.parameters()).dtype
    return {_main_input(model): world.tensor(("batch", *_frames(model)), dtype, HINTS)}


def _frames(model: nn.Module) -> tuple[int, int]:
    """Dims of the sound of one sequence; NotBuiltError where the config fixes no length."""
    if (found := fixed_frames(model)) is not None:
        return found
    raise NotBuiltError(
        f"{type(model).__name__} reads '{_main_input(model)}', of which the config does not fix a length, so that its "
        "cache has none; ask for --phase train or prefill"
    )


def fixed_frames(model: nn.Module) -> tuple[int, int] | None:
    """Return the dims of the sound of one sequence, by what the encoders of such models read; None of other models."""
    config = model.config
    longest = getattr(config, "max_source_positions", None)
    if isinstance(mels := getattr(config, "num_mel_bins", None), int) and isinstance(longest, int):
        # WhisperEncoder: two convolutions, the second with stride 2, then as many positions as the config says.
        return mels, 2 * longest
    if isinstance(width := getattr(config, "input_feat_per_channel", None), int) and isinstance(longest, int):
        return longest, width * int(getattr(config, "input_channels", 1))
    return None


def reads_known(model: nn.Module) -> bool:
    """Whether what a language model reads is known: tokens, or sound of a length that the config fixes."""
    is_two = bool(getattr(model.config, "is_encoder_decoder", False))
    return not _hears(model) or (is_two and fixed_frames(model) is not None)


def _hears(model: nn.Module) -> bool:
    return _main_input(model) != "input_ids"


def _main_input(model: nn.Module) -> str:
    return str(getattr(model, "main_input_name", "input_ids"))


def _width(model: nn.Module) -> int:
    return int(getattr(model.config, "d_model", None) or model.config.hidden_size)  # type: ignore[union-attr,arg-type]


TOKENS = "input_ids"


def plan_fed(
    model: nn.Module, world: FakeWorld, workload: Workload, feeds: Feeds, speaks: bool, say: Callable[[str], None]
) -> RecordingRun:
    """Return inputs and call: a training step, a prefill that leaves a cache where the model speaks, or a forward pass.

    Training of logits [.., vocab] of the tokens starts from their cross-entropy, of all else from the sum of outputs,
    which is reported.
    """
    made = feeds.made(world)
    with world.mode:
        labelled = LabelledInputs.of(model, made)
    batch = feeds.lengths["batch"] if feeds.fixed else _batch(made, world, feeds)
    given: Mapping[str, object] = {**made, **feeds.beside(batch)}
    labels = {"labels": labelled.labels} if workload is Workload.TRAIN and labelled.labels is not None else {}

    def call() -> tuple[Tensor, ...]:
        with feeds.working_out():
            if workload is Workload.PREFILL and speaks:
                is_pair = bool(getattr(model.config, "is_encoder_decoder", False))
                return ((prefilled_pair if is_pair else prefilled)(model, given),)
            with torch.set_grad_enabled(workload is Workload.TRAIN):
                out = model(**given)
        if workload is not Workload.TRAIN:
            return tuple(returned(out))
        loss, note = labelled.loss(out)
        say(note)
        return (loss,)

    return RecordingRun({**made, **labels}, call)


def _batch(made: Mapping[str, Tensor], world: FakeWorld, feeds: Feeds) -> int | torch.SymInt:
    return made[TOKENS].shape[0] if TOKENS in made else world.size("batch", feeds.lengths)
