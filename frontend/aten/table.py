"""What each ATen operator is in the IR: one table, names without overloads to handlers."""

from __future__ import annotations

from collections.abc import Mapping

from ..semantic import norm as semantic_norm
from ..semantic.costs import Priced
from . import (
    data as aten_data,
)
from . import (
    fft as aten_fft,
)
from . import (
    images as aten_images,
)
from . import (
    lookup as aten_lookup,
)
from . import (
    math as aten_math,
)
from . import (
    scan as aten_scan,
)
from . import (
    semantic as aten_semantic,
)
from . import (
    views as aten_views,
)
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
