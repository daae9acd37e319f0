"""What a verb says on stderr while it works: with -v every stage, on a terminal the one that runs."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from shutil import get_terminal_size

from ...ir.text.stages import LOGGER

# A verb that is done sooner than this shows no running stage.
_SOON_S = 0.5
_CLEAR_LINE = "\r\x1b[2K"


class StatusLine(logging.Handler):
    """Keeps the stage that runs on one line of a terminal, and takes the line away when the stage has ended."""

    def __init__(self) -> None:
        """Begin to count the time; stages that begin very soon are not shown."""
        super().__init__(logging.DEBUG)
        self._began = time.perf_counter()
        self._is_shown = False

    def emit(self, record: logging.LogRecord) -> None:
        """Show a stage that begins in the place of the one before; other lines find the terminal's line free."""
        if record.levelno != logging.DEBUG:
            self._hide()
        elif time.perf_counter() - self._began >= _SOON_S:
            sys.stderr.write(f"{_CLEAR_LINE}{record.getMessage()[: get_terminal_size().columns - 5]} ...")
            sys.stderr.flush()
            self._is_shown = True

    def close(self) -> None:
        """Take the line away."""
        self._hide()
        super().close()

    def _hide(self) -> None:
        if self._is_shown:
            sys.stderr.write(_CLEAR_LINE)
            sys.stderr.flush()
            self._is_shown = False


@contextmanager
def watching(verbose: bool) -> Iterator[None]:
    """Show stages while a verb runs; inside another verb that is watched nothing more is shown."""
    logger = logging.getLogger(LOGGER)
    if any(isinstance(one, StatusLine | _Lines) for one in logger.handlers):
        yield
        return
    shown = _Lines() if verbose else StatusLine()
    kept, propagated = logger.level, logger.propagate
    logger.addHandler(shown)
    logger.setLevel(shown.level)
    logger.propagate = False
    try:
        yield
    finally:
        shown.close()
        logger.removeHandler(shown)
        logger.setLevel(kept)
        logger.propagate = propagated


class _Lines(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes a line for each stage that has ended, and for each fact once: a file may be read several times."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setLevel(logging.INFO)
        self._told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if (line := record.getMessage()) not in self._told:
            self._told.add(line)
            super().emit(record)


def hide_stage() -> None:
    """Take the line of the running stage away for good: what follows shows its own progress."""
    logger = logging.getLogger(LOGGER)
    for shown in [one for one in logger.handlers if isinstance(one, StatusLine)]:
        shown.close()
        logger.removeHandler(shown)
