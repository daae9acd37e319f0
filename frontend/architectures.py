"""Which class of transformers a config stands for: the one it names, or the one that its kind of model is used as."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, cast

from ..ir.errors import NotUnderstoodError

# In the order in which a config without a class of its own is read; an encoder-decoder begins with the second.
_CAUSAL, _SEQ2SEQ, _SPEECH, _MASKED = (
    "MODEL_FOR_CAUSAL_LM_MAPPING", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING", "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING",
    "MODEL_FOR_MASKED_LM_MAPPING",
)  # fmt: skip
_DECODER_FIRST = (_CAUSAL, _SEQ2SEQ, _SPEECH, _MASKED)
_ENCODER_DECODER_FIRST = (_SEQ2SEQ, _SPEECH, _CAUSAL, _MASKED)
_ENCODER_FIRST = (_MASKED, _CAUSAL, _SEQ2SEQ, _SPEECH)
_TEXT_PARTS = ("text_config", "decoder", "llm_config", "language_config")


class ModelConfig(Protocol):
    """What is read of a config object of transformers."""

    model_type: str
    tie_word_embeddings: bool
    architectures: list[str] | None
    sub_configs: Mapping[str, type]


class ModelClass(Protocol):
    """A class of models that is built from a config."""

    __name__: str
    config_class: type | None

    def _from_config(self, config: ModelConfig, **options: object) -> object: ...


@dataclass(frozen=True, slots=True)
class Architecture:
    """A class to build, the config (or the part of it) that it is built from, and what a reader should know of that."""

    model_class: ModelClass
    config: ModelConfig
    notes: tuple[str, ...] = ()


def choose(config: ModelConfig) -> Architecture:
    """Return the architecture of a config: causal language models, encoder-decoders and masked encoders.

    `architectures` of the config decides where it names one of these. Otherwise an encoder-decoder is one with a
    language head, an encoder is trained on masked tokens unless `is_decoder`, and all others are causal. Of a model
    that also sees or hears, the text backbone is taken. NotUnderstoodError when nothing fits.
    """
    found = _named(config) or _by_kind(config)
    if found is None:
        return _backbone(config)
    of_part = _part_for(config, found)
    if of_part is not None:
        return _of_part(found, config, of_part)
    if _sees_or_hears(config) and (text := _text_part(config)) is not None and (inner := _by_kind(text)) is not None:
        return _of_part(inner, config, text)
    return Architecture(found, config)


def _named(config: ModelConfig) -> ModelClass | None:
    names = list(config.architectures or ())
    found = (c for mapping in _DECODER_FIRST for c in _classes(config, mapping) if c.__name__ in names)
    return next(found, None)


def _by_kind(config: ModelConfig) -> ModelClass | None:
    order = _DECODER_FIRST
    if getattr(config, "is_encoder_decoder", False):
        order = _ENCODER_DECODER_FIRST
    elif getattr(config, "is_decoder", None) is False:
        order = _ENCODER_FIRST
    return next((c for mapping in order for c in _classes(config, mapping)), None)


def _classes(config: ModelConfig, mapping: str) -> Iterator[ModelClass]:
    from transformers.models.auto import modeling_auto

    table = getattr(modeling_auto, mapping)
    if type(config) in table:
        found = table[type(config)]
        yield from cast("tuple[ModelClass, ...]", found if isinstance(found, tuple | list) else (found,))


def _part_for(config: ModelConfig, model_class: ModelClass) -> ModelConfig | None:
    """The part of a config that a class is built from, None when it takes the whole."""
    wanted = model_class.config_class
    if wanted is None or isinstance(config, wanted):
        return None
    parts = (getattr(config, name, None) for name in config.sub_configs)
    return next((cast(ModelConfig, part) for part in parts if isinstance(part, wanted)), None)


def _sees_or_hears(config: ModelConfig) -> bool:
    """Whether a config is of more than a language model: it has other parts, or its layers are those of a part."""
    return not hasattr(config, "num_hidden_layers") or any(name not in _TEXT_PARTS for name in config.sub_configs)


def _text_part(config: ModelConfig) -> ModelConfig | None:
    parts = (getattr(config, name, None) for name in _TEXT_PARTS)
    return next((cast(ModelConfig, part) for part in parts if hasattr(part, "model_type")), None)


def _backbone(config: ModelConfig) -> Architecture:
    text = _text_part(config)
    inner = None if text is None else _by_kind(text)
    if text is None or inner is None:
        raise NotUnderstoodError(
            f"model type '{config.model_type}' has no language head: neither a causal language model, nor an "
            "encoder-decoder with one, nor a masked one, and no text_config of such a kind"
        )
    return _of_part(inner, config, text)


def _of_part(model_class: ModelClass, config: ModelConfig, part: ModelConfig) -> Architecture:
    """The language model alone, with one matrix for both its ends where the whole model has one."""
    own = copy.deepcopy(part)
    if getattr(config, "tie_word_embeddings", False):
        own.tie_word_embeddings = True
    return Architecture(model_class, own, (_note(config, part),))


def _note(config: ModelConfig, part: ModelConfig) -> str:
    return f"only the language model of '{config.model_type}' is in this graph ('{part.model_type}'), no other part"


__all__ = ["Architecture", "ModelClass", "ModelConfig", "choose"]
