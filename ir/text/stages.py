"""What the product does at length, told by stages to whoever listens: the logger `slipstick` of the standard library.

A stage logs its beginning at DEBUG and its end, with its seconds, at INFO. Python's users see both with
`logging.basicConfig(level="INFO")`; the command line shows them with -v, and the running one on a terminal.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

LOGGER: Final = "slipstick"


@contextmanager
def stage(what: str) -> Iterator[None]:
    """Log that some work begins, and its seconds when it has ended without an error.

    >>> import logging
    >>> with stage("price 3 shapes"):
    ...     logging.getLogger(LOGGER).isEnabledFor(logging.INFO)
    False
    """
    _log("DEBUG", what)
    began = time.perf_counter()
    yield
    _log("INFO", f"{what}: {time.perf_counter() - began:.2f} s")


def told(what: str) -> None:
    """Log a fact that took no time of its own: what was read, and where from."""
    _log("INFO", what)


def _log(level: str, what: str) -> None:
    # Nobody listens where nobody has imported logging, and a cached estimate is too short to import it for nothing.
    if (logging := sys.modules.get("logging")) is not None:
        logging.getLogger(LOGGER).log(getattr(logging, level), "%s", what)
