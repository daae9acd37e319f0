"""Language models and parts of them: torch's own layers, x-transformers, litgpt."""

from __future__ import annotations

from torch import nn

from ..case import Case, Feed

_WIDE = Feed(("batch", "seq", 256))


def _encoder_layer() -> nn.Module:
    return nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True)


CASES: tuple[Case, ...] = (Case("torch", "TransformerEncoderLayer", _encoder_layer, (_WIDE,)),)
