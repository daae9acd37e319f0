"""What each ATen operator is in the IR: one table, names without overloads to handlers."""

from __future__ import annotations

from collections.abc import Mapping

from . import (
    aten_data,
    aten_fft,
    aten_images,
    aten_lookup,
    aten_math,
    aten_scan,
    aten_semantic,
    aten_views,
    semantic_norm,
)
from .costs import Priced
from .fx_import import Handler

HANDLERS: Mapping[str, Handler] = Priced(
    {
        **aten_views.HANDLERS,
        **aten_math.HANDLERS,
        **aten_data.HANDLERS,
        **aten_lookup.HANDLERS,
        **aten_semantic.HANDLERS,
        **aten_images.HANDLERS,
        **aten_scan.HANDLERS,
        **semantic_norm.HANDLERS,
        **aten_fft.HANDLERS,
    }
)
