"""Prices that are given with a system: a profile, numbers of its own, assignments; put in their place in its tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..machine.files.system_tree import split_override

if TYPE_CHECKING:
    from ..machine.files.catalogue import Assembled, File
    from .section import Prices


def with_prices(found: Assembled, profile: str | None, overrides: Sequence[str]) -> Assembled:
    """Put the book of prices into a system, where a user, its file, or an assignment gives any.

    The usual book is not read for a system that says nothing of prices: nobody may ask what it costs.

    Args:
        found: the system; `prices` in its file is a profile by name or path, or what differs from the usual one.
        profile: name or path of a profile, in place of what the file says.
        overrides: all assignments, of which those to `prices` need the book.

    Raises:
        UnknownNameError: a profile that there is not.
        SystemFileError: a file that cannot be read.
    """
    own = found.tree.get("prices")
    if profile is None and own is None and not any(split_override(text)[0][0] == "prices" for text in overrides):
        return found
    if profile is None and own is not None and not isinstance(own, str | dict):
        # Neither a name nor numbers: the schema says so.
        return found
    from .book import laid_down, shipped

    years = [text.removeprefix("prices.") for text in overrides if text.startswith("prices.year=")]
    tree, origins = laid_down([*shipped(), *_given(found, profile)], years)
    placed = (replace(origin, keys=("prices", *origin.keys)) for origin in origins)
    return replace(found, tree={**found.tree, "prices": tree}, origins=(*found.origins, *placed))


def book_of(found: Assembled, profile: str | None, overrides: Sequence[str]) -> Prices:
    """Return the book of prices of a system, checked; arguments and errors as of `with_prices`."""
    from .book import build_prices, load_prices, shipped

    keys = (split_override(text) for text in overrides)
    own = tuple(f"{'.'.join(path[1:])}={value}" for path, value in keys if path[0] == "prices")
    if profile is None and found.tree.get("prices") is not None:
        return build_prices([*shipped(), *_given(found, profile)], own)
    return load_prices(profile, own) if profile else load_prices(overrides=own)


def _given(found: Assembled, profile: str | None) -> list[File]:
    """The profile, and over it the numbers that stand in the system's own file."""
    from .book import USUAL, profile_file, profile_files

    own = None if profile is not None else found.tree.get("prices")
    if isinstance(own, dict):
        return [profile_file(USUAL), replace(found.file, tree=own, part=("prices",))]
    folder: Path | None = found.file.folder if isinstance(own, str) else None
    return profile_files(profile or str(own or USUAL), folder)
