"""Trees of values into sections of a schema, with all faults at once, and the numbers that a section holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from pydantic import ValidationError

from .faults import Fault, Locate, all_of, nowhere
from .records import NumberRecord
from .system_numbers import Number, Section, leaves_of
from .system_report import faults_of
from .system_tree import Tree

S = TypeVar("S", bound=Section)


def records_of(section: Section, path: str = "") -> Iterator[NumberRecord]:
    """Return every number of a section with its path, in the order of the schema."""
    return (leaf.record(here) for here, leaf in leaves_of(section, path) if isinstance(leaf, Number))


def checked(top: type[S], tree: dict[str, Tree]) -> tuple[S | None, list[Fault]]:
    """Check a tree against its schema; return the section, or None and all faults."""
    try:
        return top.model_validate(tree), []
    except ValidationError as error:
        return None, list(faults_of(error, tree, top))


def section_of(top: type[S], tree: dict[str, Tree], what: str, locate: Locate = nowhere) -> S:
    """Check a tree against its schema; SystemFileError lists all faults, each where it lies."""
    section, faults = checked(top, tree)
    if section is None:
        raise all_of(what, faults, locate)
    return section
