"""Which class of transformers a config stands for: the one it names, or the one that its kind of model is used as."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, cast

from ....ir.errors import NotUnderstoodError
from ....ir.records import dataclass

# In the order in which a config without a class of its own is read; an encoder-decoder begins with the second.
_CAUSAL, _SEQ2SEQ, _SPEECH, _MASKED = (
    "MODEL_FOR_CAUSAL_LM_MAPPING",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING",
    "MODEL_FOR_MASKED_LM_MAPPING",
)
_NO_HEAD = "MODEL_MAPPING"
_DECODER_FIRST = (_CAUSAL, _SEQ2SEQ, _SPEECH, _MASKED)
_ENCODER_DECODER_FIRST = (_SEQ2SEQ, _SPEECH, _CAUSAL, _MASKED)
_ENCODER_FIRST = (_MASKED, _CAUSAL, _SEQ2SEQ, _SPEECH)
# Heads of models that are in no table of models without a head, most used first.
_TASKS = (
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING",
    "MODEL_FOR_MULTIMODAL_LM_MAPPING",
    "MODEL_FOR_CTC_MAPPING",
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING",
    "MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING",
    "MODEL_FOR_UNIVERSAL_SEGMENTATION_MAPPING",
    "MODEL_FOR_OBJECT_DETECTION_MAPPING",
    "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING",
    "MODEL_FOR_DEPTH_ESTIMATION_MAPPING",
    "MODEL_FOR_IMAGE_TO_IMAGE_MAPPING",
    "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
    "MODEL_FOR_TIME_SERIES_PREDICTION_MAPPING",
    "MODEL_FOR_MASK_GENERATION_MAPPING",
)
_SPOKEN = (_TASKS[0], _TASKS[1], _CAUSAL, _SEQ2SEQ, _NO_HEAD)
_TEXT_PARTS = ("text_config", "decoder", "llm_config", "language_config")


class ModelConfig(Protocol):
    """What is read of a config object of transformers."""

    model_type: str
    tie_word_embeddings: bool
    architectures: list[str] | None
    sub_configs: Mapping[str, type]

    def to_dict(self) -> dict[str, object]:
        """Return all that it says."""
        ...


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


def choose(config: ModelConfig, is_whole: bool = False) -> Architecture:
    """Return the architecture of a config.

    `architectures` of the config decides where it names a class of transformers. Otherwise an encoder-decoder is one
    with a language head, an encoder of tokens is trained on masked ones unless `is_decoder`, and all others are causal;
    a type without a language model is the class without a head, or with that of its task. Of a model that also sees or
    hears, the text backbone is taken where it is a language model, unless `is_whole`. NotUnderstoodError when nothing
    fits.
    """
    if is_whole and has_towers(config) and (whole := _whole(config, _SPOKEN)) is not None:
        return Architecture(whole, config)
    found = _named(config)
    if found is None and not has_towers(config) and (other := _named_otherwise(config)) is not None:
        return Architecture(other, config)
    found = found or _by_kind(config)
    if found is None:
        return _backbone(config)
    # The part of a config that a class is built from, None when it takes the whole.
    wanted = found.config_class
    if wanted is None or isinstance(config, wanted):
        of_part = None
    else:
        parts = (getattr(config, name, None) for name in config.sub_configs)
        of_part = next((cast(ModelConfig, part) for part in parts if isinstance(part, wanted)), None)
    if of_part is not None:
        return _of_part(found, config, of_part)
    if _sees_or_hears(config) and (text := _text_part(config)) is not None and (inner := _by_kind(text)) is not None:
        return _of_part(inner, config, text)
    return Architecture(found, config)


def _named(config: ModelConfig) -> ModelClass | None:
    names = list(config.architectures or ())
    found = (c for mapping in _DECODER_FIRST for c in _classes(config, mapping) if c.__name__ in names)
    return next(found, None)


def _named_otherwise(config: ModelConfig) -> ModelClass | None:
    """A class of transformers without a language head that the config names and that is built from such a config."""
    import transformers

    found = (getattr(transformers, name, None) for name in config.architectures or ())
    made = (cast(ModelClass, c) for c in found if isinstance(c, type) and hasattr(c, "_from_config"))
    return next((c for c in made if c.config_class is not None and isinstance(config, c.config_class)), None)


def _whole(config: ModelConfig, tables: Iterable[str] = (_NO_HEAD, *_TASKS)) -> ModelClass | None:
    """The class of all parts of a model: the one it names, else the first in these tables."""
    return _named_otherwise(config) or next((c for mapping in tables for c in _classes(config, mapping)), None)


def has_towers(config: ModelConfig) -> bool:
    """Whether a model sees or hears beside a language model inside it."""
    text = _text_part(config)
    return text is not None and _sees_or_hears(config) and _by_kind(text) is not None


def speaks(model_class: type) -> bool:
    """Whether a class of transformers has a language head, or makes tokens one after another."""
    from transformers.models.auto import modeling_auto

    tables = (getattr(modeling_auto, f"{mapping}_NAMES") for mapping in _DECODER_FIRST)
    names = {n for t in tables for found in t.values() for n in ((found,) if isinstance(found, str) else found)}
    generates = getattr(model_class, "can_generate", None)
    return model_class.__name__ in names or bool(generates is not None and generates())


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
        whole = _whole(config)
        if whole is None:
            raise NotUnderstoodError(f"transformers has no class for a whole model of type '{config.model_type}'")
        return Architecture(whole, config)
    return _of_part(inner, config, text)


def _of_part(model_class: ModelClass, config: ModelConfig, part: ModelConfig) -> Architecture:
    """The language model alone, with one matrix for both its ends where the whole model has one."""
    own = copy.deepcopy(part)
    if getattr(config, "tie_word_embeddings", False):
        own.tie_word_embeddings = True
    return Architecture(model_class, own, (_note(config, part),))


def _note(config: ModelConfig, part: ModelConfig) -> str:
    return f"only the language model of '{config.model_type}' is in this graph ('{part.model_type}'), no other part"
