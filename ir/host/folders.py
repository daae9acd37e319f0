"""The folders of a user: below home, or one of a private temporary folder where nobody says where home is."""

from __future__ import annotations

import os
import stat
from functools import cache
from pathlib import Path

from ..text.stages import LOGGER


def user_folder(variable: str, usual: str) -> Path:
    """Return a folder of the user: what a variable says, else the usual one below home.

    >>> import os
    >>> os.environ["EXAMPLE_HOME"] = "/tmp/example"
    >>> print(user_folder("EXAMPLE_HOME", ".cache"))
    /tmp/example
    """
    if named := os.environ.get(variable):
        return Path(named)
    home = home_folder()
    return (_temporary_home() if home is None else home) / usual


def home_folder() -> Path | None:
    """Return the home of the user; None without HOME and without an entry of the user, as in some containers."""
    try:
        return Path.home()
    except RuntimeError:
        return None


@cache
def _temporary_home() -> Path:
    """Return a folder that no other user may enter, and say so; one that cannot be written where there is none."""
    import logging
    from tempfile import gettempdir

    folder = Path(os.devnull)
    try:
        private = Path(gettempdir(), f"slipstick-{os.getuid() if hasattr(os, 'getuid') else 'home'}")
        private.mkdir(mode=0o700, exist_ok=True)
        if _is_private(private):
            folder = private
    except OSError:
        pass
    logging.getLogger(LOGGER).warning(
        "there is no home folder: caches and runs are %s; set HOME to a folder that can be written",
        "not kept" if folder == Path(os.devnull) else f"kept in '{folder}'",
    )
    return folder


def _is_private(folder: Path) -> bool:
    """Whether a folder, and no link to one, is ours alone: in a temporary folder others may have been before us."""
    found = folder.lstat()
    ours = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    return stat.S_ISDIR(found.st_mode) and ours and not stat.S_IMODE(found.st_mode) & 0o077
