"""Files of fits that are there already: what a fit wrote may be written over, what people wrote may not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..backends.system_tree import read_tree
from ..ir.errors import SystemFileError, UsageError

if TYPE_CHECKING:
    from ..backends.system_tree import Tree


def refuse_unless(path: Path, what: str, fitted: Callable[[dict[str, Tree]], bool]) -> None:
    """UsageError where a file that is there is no fit of `what`: one that someone wrote is not written over."""
    if path.is_dir():
        raise UsageError(f"cannot write '{path}': Is a directory")
    if not path.exists():
        return
    try:
        tree = read_tree(path.read_text(encoding="utf-8"), path.name)
    except (OSError, UnicodeDecodeError, SystemFileError) as error:
        raise UsageError(f"cannot read '{path}', the fit to replace: {error}") from error
    if not fitted(tree):
        raise UsageError(f"'{path}' is no fit of {what}: it is not written over; give another -o FILE.yaml or FOLDER")


def has_record(tree: Tree) -> bool:
    """Whether a part of a file has the record of a fit."""
    fit = tree.get("fit") if isinstance(tree, dict) else None
    return isinstance(fit, dict) and "fitted" in fit
